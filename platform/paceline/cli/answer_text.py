"""Answers as text for the terminal."""

import json
from dataclasses import asdict

from paceline.client.conversation import AnswerFacts, ShownRound, ShownToken


def json_answer(facts: AnswerFacts, text: str, rounds: list[ShownRound], *, seconds: float, tokens_per_s: float) -> str:
    """The answer as one JSON object."""
    body = {"text": text, "seconds": round(seconds, 3), "tokens_per_s": round(tokens_per_s, 2)} | asdict(facts)
    return json.dumps(body | ({"rounds": [asdict(entry) for entry in rounds]} if rounds else {}))


def facts_line(facts: AnswerFacts, tokens_per_s: float) -> str:
    """One line about how the answer was made."""
    drafts = f" by '{facts.drafter}'" if facts.drafter and facts.route == "speculative" else ""
    return (
        f"[{tokens_per_s:.1f} tokens/s, tau {_number(facts.tau)}, alpha {_number(facts.alpha)}, "
        f"route {facts.route}{drafts}: {facts.reason}; {facts.completion_tokens} tokens, "
        f"finish {facts.finish_reason}, seed {facts.seed}]"
    )


def round_line(number: int, entry: ShownRound) -> str:
    """One line about a round; tokens without a known text are shown by id."""
    shown = [_shown(token) for token in entry.drafted]
    path = entry.path or range(entry.accepted)
    accepted = [shown[place] for place in path]
    rejected = [text for place, text in enumerate(shown) if place not in path]
    target = "none" if entry.target_token is None else _shown(entry.target_token)
    return (
        f"round {number}: drafted {len(entry.drafted)}, accepted {len(accepted)} {' '.join(accepted)}".rstrip()
        + f", rejected {len(rejected)} {' '.join(rejected)}".rstrip()
        + f", target {target}"
        + f" (wait {entry.wait_ms:.1f} ms, draft {entry.draft_ms:.1f} ms, verify {entry.verify_ms:.1f} ms)"
    )


def _shown(token: ShownToken) -> str:
    return json.dumps(token.text, ensure_ascii=False) if token.text is not None else f"#{token.token_id}"


def _number(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.2f}"
