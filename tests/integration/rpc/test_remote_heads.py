"""Draft heads behind real gRPC links, on a tiny real target: exact, used, woken, replaced."""

import asyncio
import threading
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest

from apt_heads import HEADS, save_apt_heads, save_apt_target
from paceline.backends import native
from paceline.backends.native import NativeBackend
from paceline.config.schema import DeploymentConfig, DrafterConfig, Tunables
from paceline.core.drafts import DraftProposal, DraftReply, DraftTree
from paceline.core.generation import GenerationChunk, GenerationRequest
from paceline.core.plans import Plan, Route
from paceline.core.sampling_params import SamplingParams
from paceline.drafting.host import DrafterHost
from paceline.drafting.registry import BuiltDrafter, build_drafter
from paceline.engine.group_pace import GroupPace
from paceline.engine.guarded_drafter import GuardedDrafter
from paceline.engine.speculation import Speculation
from paceline.engine.waiting import Action, Move, Snapshot
from paceline.rpc.endpoint import Endpoint
from paceline.rpc.link_server import DrafterServicer
from paceline.rpc.peer_server import PeerServer
from paceline.rpc.remote_drafter import RemoteDrafter
from paceline.telemetry import catalogue
from peers import LOOPBACK, PEER, TOKEN, LoopThread, loop_thread, remote, wait_until

PROMPT = (5, 6, 7, 5, 6, 7)
CHAIN, TREE = 1, 3
PASS_S = 0.005  # as long as a message takes
PLAIN = Plan(Route.PLAIN, "test")


def patient(snapshot: Snapshot) -> Move:
    """Wait for every draft that is under way."""
    return Move(Action.WAIT, tuple(range(len(snapshot.outstanding))), 1.0, longest_s=2.0)


class Fleet:
    """A target, and heads for it in its process and in drafter servers."""

    def __init__(self, root: Path, thread: LoopThread, verifier: str = "coupled") -> None:
        self.thread = thread
        self.target = root / "target"
        self.sections = {
            **{f"{name}-here": self._section(root, name, place="in_process") for name in HEADS},
            **{name: self._section(root, name) for name in HEADS},
        }
        self.config = DeploymentConfig.model_validate(
            {
                "model": {"source": str(self.target), "name": "tiny"},
                "verifier": verifier,
                "engine": {"threads": 1, "kv_cache_tokens": 4096, "poison_freed_pages": True},
                "drafters": self.sections,
                "tunables": self._tunables(CHAIN),
            }
        )
        self.backend = NativeBackend.start(self.target, config=self.config, drafters={})
        self.proposals: defaultdict[str, dict[tuple[str, int], DraftTree]] = defaultdict(dict)
        self.running = threading.Event()  # cleared: the target's passes wait
        self.running.set()
        self._slow_down()

    def _slow_down(self) -> None:
        runner = self.backend.parts.runner
        forward = runner.forward

        def slowly(rows):
            time.sleep(PASS_S)
            assert self.running.wait(30)
            return forward(rows)

        runner.forward = slowly

    def note(self, replies: list[DraftReply]) -> None:
        """Keep what each group proposed behind each text, by request without the group's name."""
        for reply in replies:
            if isinstance(reply, DraftProposal) and len(reply.tree):
                group, _, request = reply.session.partition("_")
                self.proposals[group][request, reply.base_hash] = reply.tree

    def shape(self, top_k: int, *, enabled: bool = True) -> None:
        self.backend.apply_tunables(self._tunables(top_k, enabled=enabled))

    def built(self, group: str) -> BuiltDrafter:
        """A group's drafter as a replica makes it."""
        host = DrafterHost(target_folder=self.target, target_dtype="float32")
        return build_drafter(group, DrafterConfig.model_validate(self.sections[group]), host)

    def link(self, group: str, links: ExitStack) -> RemoteDrafter:
        link = links.enter_context(remote(self.thread, *self.built(group), hello=self.backend.facts))
        self.backend.add_drafter(group, link)
        return link

    def unlink(self, group: str) -> None:
        gone = threading.Event()
        self.backend.remove_drafter(group, gone.set)
        assert gone.wait(10)

    def accepted(self, group: str) -> float:
        return self.backend.metrics.value(catalogue.ACCEPTED_TOKENS, group=group)

    async def answer(
        self, plan: Plan, seed: int, temperature: float, length: int = 30
    ) -> AsyncIterator[GenerationChunk]:
        sampling = SamplingParams(temperature=temperature, max_tokens=length, ignore_eos=True)
        key = f"{plan.drafter}_{seed}-{temperature}/1"
        async for batch in self.backend.generate(GenerationRequest(key, PROMPT, sampling, seed, plan)):
            for chunk in batch:
                yield chunk

    def answers(self, group: str | None) -> tuple[list[tuple[int, ...]], int]:
        """Token ids of six answers, decoded in one batch; how many drafts were kept."""
        plan = PLAIN if group is None else Plan(Route.SPECULATIVE, "test", group, 6)

        async def one(seed: int, temperature: float) -> list[GenerationChunk]:
            return [chunk async for chunk in self.answer(plan, seed, temperature)]

        async def together() -> list[list[GenerationChunk]]:
            return await asyncio.gather(*[one(seed, heat) for seed in range(3) for heat in (0.0, 1.0)])

        found = asyncio.run(together())
        ids = [tuple(token_id for chunk in chunks for token_id in chunk.token_ids) for chunks in found]
        stats = [chunks[-1].stats for chunks in found]
        return ids, sum(one.accepted for one in stats if one)

    @staticmethod
    def _section(root: Path, name: str, **changes: str) -> dict[str, str]:
        return {"method": HEADS[name], "model": str(root / name), **changes}

    @staticmethod
    def _tunables(top_k: int, *, enabled: bool = True) -> Tunables:
        return Tunables(
            draft_adaptive=False,
            draft_top_k=top_k,
            max_draft_tokens=6,
            shadow_share=0.0,
            link_deadline_ms=5000,
            speculation_enabled=enabled,
        )


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("models")
    save_apt_heads(root, save_apt_target(root / "target"))
    return root


@pytest.fixture(scope="module")
def fleet(root: Path) -> Iterator[Fleet]:
    with loop_thread() as thread, pytest.MonkeyPatch.context() as patch:
        patch.setattr(native, "Speculation", partial(Speculation, choose=patient))
        patch.setattr(GroupPace, "miss", lambda _: None)  # whatever else this machine does
        made = Fleet(root, thread)
        collect = GuardedDrafter.collect

        def noted(drafter: GuardedDrafter, timeout_s: float) -> list[DraftReply]:
            replies = collect(drafter, timeout_s)
            made.note(replies)
            return replies

        patch.setattr(GuardedDrafter, "collect", noted)
        yield made
        made.backend.parts.engine.check_integrity()
        asyncio.run(made.backend.close())


@pytest.mark.parametrize("top_k", [CHAIN, TREE])
def test_a_seed_gives_the_text_of_plain_decoding(fleet: Fleet, top_k: int) -> None:
    """EAGLE, MTP, Medusa, EAGLE-3, in both places, chains and trees; drafts are used, and the same in both places."""
    fleet.shape(top_k)
    fleet.proposals.clear()
    plain = fleet.answers(None)[0]
    for group in HEADS:
        here = fleet.answers(f"{group}-here")[0]
        with ExitStack() as links:
            fleet.link(group, links)
            away, kept = fleet.answers(group)
            fleet.unlink(group)
        assert here == plain, group
        assert away == plain, group
        assert kept > 20, group
        there, local = fleet.proposals[group], fleet.proposals[f"{group}-here"]
        both = [at for at in there.keys() & local.keys() if len(there[at]) == len(local[at])]
        assert len(both) > 20, group  # of the other sizes, the target's pages had less room
        assert all(there[at] == local[at] for at in both), group


LENGTH = 150
REMOTE = ("eagle", "mtp", "medusa")


async def plain_and(fleet: Fleet, group: str, at: dict[int, Callable[[], None]]) -> None:
    """One long answer, plain and with ``group``, is the same text; ``at`` says what happens after how many tokens."""
    plain = [chunk async for chunk in fleet.answer(PLAIN, 1, 1.0, LENGTH)]
    ids: list[int] = []
    events = sorted(at.items())
    async for chunk in fleet.answer(Plan(Route.SPECULATIVE, "test", group, 6), 1, 1.0, LENGTH):
        ids += chunk.token_ids
        while events and len(ids) >= events[0][0]:
            events.pop(0)[1]()
    assert ids == [token_id for chunk in plain for token_id in chunk.token_ids]
    assert not events


@pytest.mark.parametrize("group", REMOTE)
def test_a_head_wakes_after_a_plain_period(fleet: Fleet, group: str) -> None:
    """The features of what was written meanwhile reach it; its drafts are right again, and the text is as ever."""
    fleet.shape(CHAIN)
    kept: list[float] = []

    def turn(on: bool) -> None:
        fleet.shape(CHAIN, enabled=on)
        kept.append(fleet.accepted(group))

    with ExitStack() as links:
        fleet.link(group, links)
        asyncio.run(plain_and(fleet, group, {50: lambda: turn(False), 90: lambda: turn(True)}))
        kept.append(fleet.accepted(group))
        fleet.unlink(group)
    before, asleep, end = kept
    assert before > 5
    assert end - asleep > 5


@pytest.mark.parametrize("group", REMOTE)
def test_a_head_can_be_replaced_in_the_middle_of_an_answer(fleet: Fleet, group: str) -> None:
    """Another process is given the whole text with its features, and goes on drafting; the text is as ever."""
    fleet.shape(CHAIN)
    kept: list[float] = []
    with ExitStack() as links:
        link = fleet.link(group, links)
        built = fleet.built(group)
        servicer = DrafterServicer(built.drafter, built.facts)
        links.callback(servicer.close)
        server = fleet.thread.call(lambda: PeerServer(PEER, node_ip=LOOPBACK, token=TOKEN, servicers=[servicer]))
        fleet.thread.run(server.start())
        links.callback(lambda: fleet.thread.run(server.stop(0.0)))

        def replace() -> None:
            fleet.running.clear()
            kept.append(fleet.accepted(group))
            first = link.incarnation
            link.set_endpoints([Endpoint("other", server.address, TOKEN)])
            wait_until(lambda: link.live and link.incarnation != first)
            fleet.running.set()

        asyncio.run(plain_and(fleet, group, {60: replace}))
        kept.append(fleet.accepted(group))
        fleet.unlink(group)
    before, end = kept
    assert before > 5
    assert end - before > 5
    assert servicer.load.sessions == 0
