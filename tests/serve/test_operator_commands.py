"""The operator's commands as an operator runs them, beside a fleet that is under load."""

import itertools
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field

import grpc
import pytest

import fleet as fleets
from paceline.v1 import common_pb2, generation_pb2, generation_pb2_grpc
from paceline_serve.names import APP_NAME, GATEWAY, TARGET, drafter_deployment

pytestmark = [pytest.mark.serve, pytest.mark.model, pytest.mark.timeout(1200)]

_PACELINE = [sys.executable, "-c", "from paceline.cli.main import main; main()"]
_GROUPS = {
    "words": {"method": "ngram"},
    "inside": {"method": "ngram", "place": "in_process"},
}
_CONFIG = {
    "model": {"source": "smollm2-135m", "dtype": "bfloat16"},
    "engine": {"threads": 1},
    "target": {"replicas": 2, "migrate_after_s": 3},
    "drafters": _GROUPS,
    "tunables": {"draft_adaptive": False},
}
_PROMPT = "The alphabet again and again: a b c d e f g, a b c d e f g,"
_STREAMS = 8
_TOKENS = tuple(240 + 60 * index for index in range(_STREAMS))  # so that answers do not end together
_SETTLE_S = 1.0  # for messages that were under way when the command returned
_FIGURE_S = 5.0  # after which no pass may have drafts, or all must again


@dataclass
class _Answer:
    """One answer as its client saw it."""

    group: str
    tokens: int  # asked for
    ids: list[int] = field(default_factory=list)
    rounds: list[tuple[float, int]] = field(default_factory=list)  # arrival, drafts in the pass
    summary: generation_pb2.GenerationSummary | None = None

    def drafted(self, start: float, stop: float = float("inf")) -> list[int]:
        """Drafts of the passes whose tokens arrived in [start, stop)."""
        return [drafts for at, drafts in self.rounds if start <= at < stop]


def _ask(
    address: str, group: str, *, mode: int = generation_pb2.SPECULATION_MODE_ON, tokens: int = max(_TOKENS)
) -> _Answer:
    request = generation_pb2.GenerateRequest(
        prompt=_PROMPT,
        sampling=common_pb2.SamplingParams(temperature=0.0, max_tokens=tokens, ignore_eos=True),
        speculation=generation_pb2.Speculation(mode=mode, drafter=group),
        explain=True,
    )
    answer = _Answer(group, tokens)
    with grpc.insecure_channel(address) as channel:
        stub = generation_pb2_grpc.GenerationServiceStub(channel)
        for message in stub.Generate(request, timeout=600, metadata=(("application", APP_NAME),)):
            _note(answer, message)
    return answer


def _note(answer: _Answer, message: generation_pb2.GenerateResponse) -> None:
    assert not message.HasField("error"), message.error
    now = time.monotonic()
    for chunk in message.chunks:
        assert chunk.first_index == len(answer.ids), "a token is missing or came twice"
        answer.ids.extend(chunk.token_ids)
        answer.rounds.extend((now, len(round_.drafted_token_ids)) for round_ in chunk.rounds)
    if message.HasField("summary"):
        answer.summary = message.summary


class _Load:
    """Eight clients that ask again and again, with both drafter groups in turn."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._stop = threading.Event()
        self.answers: list[_Answer] = []
        self.failures: list[BaseException] = []
        self._threads = [threading.Thread(target=self._run, args=(index,)) for index in range(_STREAMS)]

    def __enter__(self) -> "_Load":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _run(self, index: int) -> None:
        for group in itertools.cycle(list(_GROUPS)[:: 1 if index % 2 else -1]):
            if self._stop.is_set():
                return
            try:
                self.answers.append(_ask(self._address, group, tokens=_TOKENS[index]))
            except BaseException as error:  # noqa: BLE001  # a thread's border; the test looks at it
                self.failures.append(error)
                return


@pytest.fixture(scope="module")
def fleet(tmp_path_factory):
    with fleets.running(tmp_path_factory.mktemp("fleet")) as running:
        running.before = running.command("status")
        running.deploy(_CONFIG, within_s=900)
        yield running


def _document(fleet) -> dict:
    return json.loads(fleet.command("status", "--json").stdout)


def _replicas(fleet, deployment: str) -> list[dict]:
    (group,) = [group for group in _document(fleet)["groups"] if group["name"] == deployment]
    return group["replicas"]


def test_where_there_is_nothing_the_commands_say_what_to_do(fleet):
    """One sentence and exit code 2: no Ray Serve yet, a token that does not fit, no Ray at all."""
    environment = fleet.environment
    fleet.environment = environment | {"RAY_AUTH_TOKEN": "another"}
    try:
        stranger = fleet.command("status")
    finally:
        fleet.environment = environment
    nowhere = fleet.command("drain", "x", "--address", "127.0.0.1:1")

    assert [done.returncode for done in (fleet.before, stranger, nowhere)] == [2, 2, 2]
    assert "Ray Serve does not run" in fleet.before.stderr
    assert "RAY_AUTH_TOKEN" in stranger.stderr
    assert nowhere.stderr == "paceline: No Ray answers at 127.0.0.1:1.\n"
    assert [len(done.stderr.splitlines()) for done in (fleet.before, stranger, nowhere)] == [1, 1, 1]


def test_status_shows_every_replica_with_what_it_says_itself(fleet):
    """Healthy is exit code 0; ids, processes and load are those of the replicas, and nothing else is printed."""
    fleet.eventually(lambda: _document(fleet)["healthy"], "a healthy fleet", within_s=120)
    found, table = _document(fleet), fleet.command("status")
    replicas = [replica for group in found["groups"] for replica in group["replicas"]]

    assert (table.returncode, table.stderr) == (0, "")
    assert table.stdout.rstrip().endswith("healthy")
    assert all(replica["replica"] in table.stdout for replica in replicas)
    for name in (GATEWAY, TARGET, drafter_deployment("words")):
        (group,) = [group for group in found["groups"] if group["name"] == name]
        assert sorted(replica["pid"] for replica in group["replicas"]) == sorted(fleet.pids(name))
        assert all(replica["silent"] is None for replica in group["replicas"])


def test_watching_ends_with_ctrl_c(fleet):
    """One document a second until the signal; that ends it well, whatever it shows."""
    command = [*_PACELINE, "status", "--watch", "--json"]
    environment = os.environ | {"RAY_ADDRESS": fleet.gcs}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment) as watch:
        shown = [json.loads(watch.stdout.readline()) for _ in range(2)]
        watch.send_signal(signal.SIGINT)
        _, errors = watch.communicate(timeout=60)

    assert (watch.returncode, errors) == (0, "")
    assert [group["name"] for group in shown[1]["groups"]][:2] == [GATEWAY, TARGET]


def _switch(fleet, *arguments: str) -> tuple[float, float]:
    """Run the command; returns when it began and when it was back."""
    began = time.monotonic()
    done = fleet.command("speculation", *arguments)
    back = time.monotonic()
    assert done.returncode == 0, done.stdout + done.stderr
    taken = re.search(r"has taken it within ([0-9.]+) s", done.stdout)
    assert taken is not None, done.stdout
    assert float(taken.group(1)) < _FIGURE_S
    return began, back


def test_all_answers_are_plain_within_five_seconds_and_speculate_again(fleet):
    """Off and back to auto under eight streams: same ids, none lost, no process replaced.

    Answers that ran at the time and answers that began while it was off both draft again.
    """
    reference = _ask(fleet.grpc_address, "", mode=generation_pb2.SPECULATION_MODE_OFF).ids
    pids = [fleet.pids(name) for name in (GATEWAY, TARGET, drafter_deployment("words"))]
    with _Load(fleet.grpc_address) as load:
        time.sleep(5)
        _, off = _switch(fleet, "off")
        time.sleep(4)
        on_began, on = _switch(fleet, "auto")
        time.sleep(_FIGURE_S + 5)

    assert load.failures == []
    assert all(answer.ids == reference[: answer.tokens] for answer in load.answers)
    assert [fleet.pids(name) for name in (GATEWAY, TARGET, drafter_deployment("words"))] == pids
    plain = [answer.drafted(off + _SETTLE_S, on_began) for answer in load.answers]
    assert sum(map(len, plain)) > _STREAMS
    assert sum(map(sum, plain)) == 0
    across = [answer for answer in load.answers if answer.drafted(0, off) and answer.drafted(on + _SETTLE_S)]
    began_off = [answer for answer in load.answers if off < answer.rounds[0][0] < on_began]
    assert across
    for answer in (*across, *began_off):
        # One that ends before has had no time to.
        if answer.drafted(on + _FIGURE_S):
            assert sum(answer.drafted(on, on + _FIGURE_S)) > 0, f"{answer.group} did not draft again"
    assert any(sum(answer.drafted(on)) for answer in across)
    assert {answer.group for answer in load.answers if sum(answer.drafted(on))} == set(_GROUPS)
    for answer in began_off:
        assert answer.summary.route == ("speculative" if sum(answer.drafted(on)) else "plain")


def test_one_group_is_turned_off_and_the_other_goes_on(fleet):
    """Whoever wants the group gets a plain answer that says why; `auto` brings it back."""
    _switch(fleet, "off", "--group", "words")
    wanted = _ask(fleet.grpc_address, "words")
    other = _ask(fleet.grpc_address, "inside")
    unknown = fleet.command("speculation", "off", "--group", "nobody")
    _switch(fleet, "auto", "--group", "words")
    again = _ask(fleet.grpc_address, "words")

    assert (wanted.summary.route, wanted.summary.reason) == ("plain", "the operator turned drafter group 'words' off")
    assert sum(wanted.drafted(0)) == 0
    assert other.summary.route == again.summary.route == "speculative"
    assert unknown.returncode == 2
    assert "There are: inside, words." in unknown.stderr


def test_a_drained_target_hands_over_its_answers_and_is_replaced(fleet):
    """Under eight streams: it takes no new work, every answer ends with the undisturbed ids, another process comes."""
    reference = _ask(fleet.grpc_address, "", mode=generation_pb2.SPECULATION_MODE_OFF).ids
    before = fleet.pids(TARGET)
    leaving = _replicas(fleet, TARGET)[0]
    with _Load(fleet.grpc_address) as load:
        time.sleep(3)
        done = fleet.command("drain", leaving["replica"], within_s=400)

    assert done.returncode == 0, done.stdout + done.stderr
    assert "has gone" in done.stdout
    assert load.failures == []
    assert all(answer.ids == reference[: answer.tokens] for answer in load.answers)
    fleet.eventually(lambda: len(set(fleet.pids(TARGET)) - {leaving["pid"]}) == len(before), "another", within_s=240)
    assert leaving["pid"] not in fleet.pids(TARGET)
    assert (set(before) - {leaving["pid"]}) <= set(fleet.pids(TARGET))


def test_a_drained_drafter_is_replaced_and_the_group_drafts_again(fleet):
    """An answer that runs meanwhile keeps its ids; links end, and a new process takes them up."""
    reference = _ask(fleet.grpc_address, "", mode=generation_pb2.SPECULATION_MODE_OFF).ids
    (leaving,) = _replicas(fleet, drafter_deployment("words"))
    running = fleet.start(_ask, fleet.grpc_address, "words")
    done = fleet.command("drain", leaving["replica"], "--no-wait")

    assert done.returncode == 0, done.stdout + done.stderr
    assert running.result(timeout=300).ids == reference
    fleet.eventually(
        lambda: _document(fleet)["healthy"] and leaving["pid"] not in fleet.pids(drafter_deployment("words")),
        "a healthy fleet with another drafter",
        within_s=240,
    )
    assert sum(_ask(fleet.grpc_address, "words").drafted(0)) > 0


def test_a_gateway_is_not_drained(fleet):
    """The refusal says what to do instead."""
    (gateway,) = _replicas(fleet, GATEWAY)
    done = fleet.command("drain", gateway["replica"])

    assert done.returncode == 2
    assert "gateway.replicas" in done.stderr


def test_the_commands_work_beside_a_local_platform(platform):
    """`paceline serve` prints an address that `paceline status` attaches to."""
    arguments = ["status", "--json", "--address", platform.local.ray_address]
    done = subprocess.run(
        [*_PACELINE, *arguments], capture_output=True, text=True, timeout=120, check=False, env=os.environ.copy()
    )

    assert done.stderr == ""
    pids = [r["pid"] for group in json.loads(done.stdout)["groups"] for r in group["replicas"]]
    assert {platform.pid(name) for name in (GATEWAY, TARGET, drafter_deployment("ngram"))} <= set(pids)
