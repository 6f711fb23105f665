import json
from collections.abc import Generator

import pytest
import typer
from typer.testing import CliRunner

from paceline.cli import chat as chat_module
from paceline.cli.main import build_app, main
from paceline.client.conversation import (
    AnswerEvent,
    AnswerFacts,
    ChatQuestion,
    ShownRound,
    ShownToken,
    TextPiece,
    Turn,
)
from paceline.errors import AnswerFailedError

FACTS = AnswerFacts(
    model="tiny", finish_reason="stop", prompt_tokens=3, completion_tokens=4, accepted_tokens=2, rejected_tokens=1,
    route="speculative", reason="drafter group 'ngram' is live", drafter="ngram", switches=0, tau=2.0, alpha=None,
    seed=7, resumed=0, verifier="coupled", system_fingerprint="fp",
)  # fmt: skip
ROUND = ShownRound((ShownToken(5, "a"), ShownToken(6, "\n"), ShownToken(7, "c")), 1, ShownToken(8), 1.0, 0.5, 20.25)


class _Client:
    """Answers every question alike and remembers it."""

    def __init__(self, error: Exception | None = None) -> None:
        self.questions: list[ChatQuestion] = []
        self.error = error
        self.closed = False

    def ask(self, question: ChatQuestion) -> Generator[AnswerEvent, None, None]:
        self.questions.append(question)
        yield TextPiece("Hel")
        if self.error:
            raise self.error
        yield TextPiece("lo", (ROUND,) if question.explain else ())
        yield FACTS

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def client(monkeypatch):
    made = _Client()
    monkeypatch.setattr(chat_module, "_connect", lambda url, grpc: made)
    return made


def _run(*args: str, stdin: str = ""):
    app = typer.Typer()
    app.command()(chat_module.chat)
    return CliRunner().invoke(app, list(args), input=stdin)


def test_one_question_one_answer(client):
    """The text goes to stdout; speed, tau, alpha and route go to stderr, so that the text can be piped."""
    result = _run("hi")

    assert result.exit_code == 0
    assert result.stdout == "Hello\n"
    for part in ("tokens/s", "tau 2.00", "alpha unknown", "route speculative by 'ngram'", "seed 7", "finish stop"):
        assert part in result.stderr
    assert client.closed


def test_flags_reach_the_request(client):
    """Every option ends up in the question."""
    _run("hi", "--system", "brief", "--temperature", "0", "--max-tokens", "9", "--speculation", "on",
         "--drafter", "small", "--seed", "3", "--explain")  # fmt: skip

    turns = (Turn("system", "brief"), Turn("user", "hi"))
    expected = ChatQuestion(
        turns, temperature=0.0, max_tokens=9, seed=3, speculation="on", drafter="small", explain=True
    )
    assert client.questions == [expected]


def test_json_is_one_object(client):
    """Nothing else is on stdout, and a program finds all facts in it."""
    result = _run("hi", "--json", "--explain")

    answer = json.loads(result.stdout)
    assert answer["text"] == "Hello"
    assert (answer["tau"], answer["route"], answer["completion_tokens"]) == (2.0, "speculative", 4)
    assert answer["tokens_per_s"] > 0
    assert answer["rounds"][0]["accepted"] == 1


def test_explain_shows_each_round(client):
    """Drafted, accepted, rejected, the target's own token and the times; ids where the text is not known."""
    result = _run("hi", "--explain")

    tokens = 'drafted 3, accepted 1 "a", rejected 2 "\\n" "c", target #8'
    times = "(wait 1.0 ms, draft 0.5 ms, verify 20.2 ms)"
    assert f"round 1: {tokens} {times}" in result.stdout


def test_a_conversation_remembers_its_turns(client):
    """Without a prompt lines are turns, until the input ends; empty lines are skipped."""
    result = _run(stdin="one\n\ntwo\n")

    assert result.exit_code == 0
    assert client.questions[1].turns == (Turn("user", "one"), Turn("assistant", "Hello"), Turn("user", "two"))


def test_nobody_there_is_one_sentence_and_exit_code_1(monkeypatch, capsys):
    """No stack trace for a server that is not running, over either door."""
    for flags in (["--url", "http://127.0.0.1:9"], ["--grpc", "127.0.0.1:9"]):
        monkeypatch.setattr("sys.argv", ["paceline", "chat", "hi", *flags])
        with pytest.raises(SystemExit) as caught:
            main()
        said = capsys.readouterr().err
        assert caught.value.code == 1
        assert said.startswith("paceline: Nothing answers at")
        assert said.count("\n") == 1


def test_a_broken_answer_is_an_error(client, monkeypatch):
    """What came is shown, then the error; the exit is not a success."""
    client.error = AnswerFailedError("engine_failed", "boom")
    result = _run("hi")

    assert result.stdout == "Hel"
    assert result.exit_code != 0
    assert isinstance(result.exception, AnswerFailedError)


def test_chat_is_mounted():
    """The command is part of ``paceline``."""
    assert CliRunner().invoke(build_app(), ["chat", "--help"]).exit_code == 0
