"""Draft heads behind real gRPC links, on a tiny real target: exact, used, woken, replaced."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from apt_heads import HEADS, add_native_mtp, save_apt_heads, save_apt_target
from head_fleet import CHAIN, PLAIN, TREE, HeadFleet, head_fleet
from paceline.core.plans import Plan, Route
from paceline.rpc.endpoint import Endpoint
from paceline.rpc.link_server import DrafterServicer
from paceline.rpc.peer_server import PeerServer
from peers import LOOPBACK, PEER, TOKEN, wait_until

LENGTH = 150
REMOTE = ("eagle", "mtp", "medusa")


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HeadFleet]:
    root = tmp_path_factory.mktemp("models")
    save_apt_heads(root, save_apt_target(root / "target"))
    heads = {name: {"method": method, "model": str(root / name)} for name, method in HEADS.items()}
    with head_fleet(root / "target", heads) as made:
        yield made


def check_both_places(fleet: HeadFleet, group: str, top_k: int, plain: list[tuple[int, ...]]) -> None:
    """The text of plain decoding from a group in either place, with the same drafts, which are often right."""
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
    assert all(tree.is_chain for tree in there.values()) == (top_k == CHAIN)


@pytest.mark.parametrize("top_k", [CHAIN, TREE])
def test_a_seed_gives_the_text_of_plain_decoding(fleet: HeadFleet, top_k: int) -> None:
    """EAGLE, MTP, Medusa, EAGLE-3, in both places, chains and trees; drafts are used, and the same in both places."""
    fleet.shape(top_k)
    plain = fleet.answers(None)[0]
    for group in HEADS:
        check_both_places(fleet, group, top_k, plain)


@pytest.mark.parametrize("variant", ["llama", "qwen2"])
def test_a_targets_own_mtp_modules_draft(tmp_path: Path, variant: str) -> None:
    """A folder with `num_nextn_predict_layers` and no other file serves a group of method mtp without `model`."""
    model = save_apt_target(tmp_path / "target", variant)
    add_native_mtp(tmp_path / "target", save_apt_heads(tmp_path, model)["mtp"])
    with head_fleet(tmp_path / "target", {"own": {"method": "mtp"}}) as fleet:
        check_both_places(fleet, "own", CHAIN, fleet.answers(None)[0])


async def ids_of(fleet: HeadFleet, plan: Plan) -> list[int]:
    return [token_id async for chunk in fleet.answer(plan, 1, 1.0, LENGTH) for token_id in chunk.token_ids]


async def plain_and(fleet: HeadFleet, group: str, at: dict[int, Callable[[], None]]) -> None:
    """One long answer, plain and with ``group``, is the same text; ``at`` says what happens after how many tokens."""
    plain = await ids_of(fleet, PLAIN)
    fleet.stop_at(*at)
    answer = asyncio.create_task(ids_of(fleet, Plan(Route.SPECULATIVE, "test", group, 6)))
    for act in at.values():
        await fleet.at_stop(act)
    assert await answer == plain


@pytest.mark.parametrize("group", REMOTE)
def test_a_head_wakes_after_a_plain_period(fleet: HeadFleet, group: str) -> None:
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
def test_a_head_can_be_replaced_in_the_middle_of_an_answer(fleet: HeadFleet, group: str) -> None:
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
            kept.append(fleet.accepted(group))
            first = link.incarnation
            link.set_endpoints([Endpoint("other", server.address, TOKEN)])
            wait_until(lambda: link.live and link.incarnation != first)

        asyncio.run(plain_and(fleet, group, {60: replace}))
        kept.append(fleet.accepted(group))
        fleet.unlink(group)
    before, end = kept
    assert before > 5
    assert end - before > 5
    assert servicer.load.sessions == 0
