"""``paceline chat``: one question, or a conversation."""

import sys
import time
from contextlib import closing
from dataclasses import replace
from enum import StrEnum
from typing import Annotated

import typer

from paceline.cli.answer_text import facts_line, json_answer, round_line
from paceline.client.conversation import AnswerFacts, ChatClient, ChatQuestion, ShownRound, Turn
from paceline.errors import PacelineError

_DEFAULT_URL = "http://127.0.0.1:8000"
_PROMPT = "you> "


class Mode(StrEnum):
    """Values of ``--speculation``."""

    AUTO = "auto"
    ON = "on"
    OFF = "off"


def chat(
    prompt: Annotated[str | None, typer.Argument(help="The question; without one, chat until end of input.")] = None,
    *,
    url: Annotated[str, typer.Option(help="Root of the REST API.")] = _DEFAULT_URL,
    grpc: Annotated[str | None, typer.Option(metavar="HOST:PORT", help="Ask over gRPC instead.")] = None,
    system: Annotated[str | None, typer.Option(help="System message.")] = None,
    temperature: Annotated[float | None, typer.Option(help="0 is greedy. Default: the server's, 1.")] = None,
    max_tokens: Annotated[int | None, typer.Option(help="Most tokens of an answer.")] = None,
    speculation: Annotated[Mode, typer.Option(help="Whether to speculate.")] = Mode.AUTO,
    drafter: Annotated[str | None, typer.Option(help="Drafter group.")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed, to get the same answer again.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print each answer as one JSON object.")] = False,
    explain: Annotated[bool, typer.Option("--explain", help="Show every round of drafting and checking.")] = False,
) -> None:
    """Chat with a running Paceline."""
    question = ChatQuestion(
        turns=(Turn("system", system),) if system is not None else (),
        temperature=temperature,
        max_tokens=max_tokens,
        seed=seed,
        speculation=speculation.value,
        drafter=drafter,
        explain=explain,
    )
    with closing(_connect(url, grpc)) as client:
        if prompt is not None:
            _ask(client, _with_turn(question, "user", prompt), as_json=as_json)
        else:
            _converse(client, question, as_json=as_json)


def _connect(url: str, grpc_address: str | None) -> ChatClient:
    # Imported here: each door's library takes a while to load and only one is used.
    if grpc_address is not None:
        from paceline.client.grpc_client import GrpcClient  # noqa: PLC0415

        return GrpcClient(grpc_address)
    from paceline.client.rest import RestClient  # noqa: PLC0415

    return RestClient(url)


def _converse(client: ChatClient, question: ChatQuestion, *, as_json: bool) -> None:
    """Ask until the input ends. A failed turn is forgotten and the conversation goes on."""
    while True:
        try:
            line = input(_PROMPT if sys.stdin.isatty() else "")
        except EOFError:
            return
        if not line.strip():
            continue
        asked = _with_turn(question, "user", line)
        try:
            question = _with_turn(asked, "assistant", _ask(client, asked, as_json=as_json))
        except PacelineError as error:
            if not sys.stdin.isatty():
                raise
            print(f"paceline: {error}", file=sys.stderr)


def _with_turn(question: ChatQuestion, role: str, content: str) -> ChatQuestion:
    return replace(question, turns=(*question.turns, Turn(role, content)))


def _ask(client: ChatClient, question: ChatQuestion, *, as_json: bool) -> str:
    """Ask once, print the answer, return its text. Leaving early, by Ctrl-C say, ends the generation."""
    texts: list[str] = []
    rounds: list[ShownRound] = []
    start_s = time.monotonic()
    with closing(client.ask(question)) as events:
        for event in events:
            if isinstance(event, AnswerFacts):
                _print_end(event, "".join(texts), rounds, seconds=time.monotonic() - start_s, as_json=as_json)
                continue
            texts.append(event.text)
            rounds.extend(event.rounds)
            if not as_json:
                print(event.text, end="", flush=True)
    return "".join(texts)


def _print_end(facts: AnswerFacts, text: str, rounds: list[ShownRound], *, seconds: float, as_json: bool) -> None:
    tokens_per_s = facts.completion_tokens / seconds if seconds > 0 else 0.0
    if as_json:
        print(json_answer(facts, text, rounds, seconds=seconds, tokens_per_s=tokens_per_s))
        return
    print()
    for number, entry in enumerate(rounds, start=1):
        print(round_line(number, entry))
    print(facts_line(facts, tokens_per_s), file=sys.stderr)
