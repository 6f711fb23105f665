"""Usage, and what Paceline adds to OpenAI's bodies."""

from collections.abc import Sequence
from typing import Any

from paceline.core.generation import RoundTrace
from paceline.gateway.answer_summary import AnswerSummary
from paceline.gateway.token_texts import TokenTexts

_SIGN_BIT = 1 << 63


def usage_body(summary: AnswerSummary) -> dict[str, Any]:
    """OpenAI's ``usage``; drafts are its "predictions"."""
    return {
        "prompt_tokens": summary.prompt_tokens,
        "completion_tokens": summary.completion_tokens,
        "total_tokens": summary.prompt_tokens + summary.completion_tokens,
        "prompt_tokens_details": {"cached_tokens": summary.cached_tokens},
        "completion_tokens_details": {
            "accepted_prediction_tokens": summary.accepted_tokens,
            "rejected_prediction_tokens": summary.rejected_tokens,
        },
    }


def facts_body(summary: AnswerSummary) -> dict[str, Any]:
    """The ``paceline`` object: how the answer was made, and the seed that replays it."""
    return {
        "route": summary.route.value,
        "reason": summary.reason,
        "drafter": summary.drafter,
        "switches": summary.switches,
        "tau": summary.tau,
        "alpha": summary.alpha,
        "seed": _signed(summary.seed),
        "resumed": summary.resumed,
        "verifier": summary.verifier,
    }


def rounds_body(rounds: Sequence[RoundTrace], texts: TokenTexts) -> list[dict[str, Any]]:
    """Rounds in order; ids with their texts, so that a reader needs no tokenizer.

    Of trees also the parent of each draft and the places of the accepted ones.
    """
    return [
        {
            "drafted": [_token(token_id, texts) for token_id in trace.drafted],
            "accepted": trace.accepted,
            "rejected": len(trace.drafted) - trace.accepted,
            "target_token": None if trace.target_token is None else _token(trace.target_token, texts),
            "wait_ms": round(trace.wait_ms, 3),
            "draft_ms": round(trace.draft_ms, 3),
            "verify_ms": round(trace.verify_ms, 3),
            **({"parents": trace.parents, "accepted_path": trace.path} if trace.parents else {}),
        }
        for trace in rounds
    ]


def _token(token_id: int, texts: TokenTexts) -> dict[str, Any]:
    return {"id": token_id, "text": texts.of(token_id).text}


def _signed(seed: int) -> int:
    """Seeds are signed in this dialect; the same 64 bits."""
    return seed - (1 << 64) if seed & _SIGN_BIT else seed
