"""Who is served next: rules one by one, and the heaps against a plain sort."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from paceline.core.priority import Priority
from paceline.gateway.target_pool import PlaceWish
from paceline.gateway.waiting_line import WaitingLine


def _line(*wishes: PlaceWish) -> WaitingLine[int]:
    """Requests numbered from 0."""
    line: WaitingLine[int] = WaitingLine()
    for item, wish in enumerate(wishes):
        line.add(wish, item)
    return line


def _serve_next(line: WaitingLine[int]) -> int | None:
    item = line.first(lambda _wish: True)
    if item is not None:
        line.serve(item)
    return item


def _order(line: WaitingLine[int]) -> list[int]:
    return [item for item in iter(lambda: _serve_next(line), None) if item is not None]


def test_resumed_requests_go_first_then_the_important_ones():
    """Who has begun to answer goes on; among new requests a smaller priority number goes first."""
    line = _line(
        PlaceWish(priority=Priority.LOW),
        PlaceWish(),
        PlaceWish(priority=Priority.HIGH),
        PlaceWish(priority=Priority.LOW, resumed=True),
    )

    assert _order(line) == [3, 2, 1, 0]


def test_a_tenant_with_a_thousand_requests_delays_another_by_one_place():
    """The single request of a quiet tenant is the second to be served."""
    line = _line(*[PlaceWish(tenant="busy")] * 1000, PlaceWish(tenant="quiet"))

    assert _order(line)[:3] == [0, 1000, 1]


def test_tenants_share_places_not_requests():
    """Whoever has fewer places in hand goes first, however often it was served; among equals they take turns."""
    line = _line(*[PlaceWish(tenant="long")] * 4, *[PlaceWish(tenant="short")] * 4)
    assert [_serve_next(line) for _ in range(4)] == [0, 4, 1, 5]

    line.give_back("short")
    line.give_back("short")

    assert [_serve_next(line) for _ in range(3)] == [6, 7, 2]


def test_a_place_that_does_not_suit_the_first_goes_to_the_next():
    """Also behind the first request of a tenant, and behind a whole tenant."""
    line = _line(PlaceWish(tenant="a"), PlaceWish(tenant="a", fingerprint="x"), PlaceWish(tenant="b", fingerprint="y"))

    assert line.first(lambda wish: wish.fingerprint == "x") == 1
    assert line.first(lambda wish: wish.fingerprint == "y") == 2
    assert line.first(lambda wish: wish.fingerprint == "z") is None


@pytest.mark.parametrize(
    ("wish", "num_before"),
    [
        (PlaceWish(tenant="busy"), 1 + 5 + 1),
        (PlaceWish(tenant="new"), 1 + 1 + 1),
        (PlaceWish(priority=Priority.HIGH), 1),
        (PlaceWish(priority=Priority.LOW), 1 + 5 + 1),
    ],
)
def test_a_new_request_knows_how_many_go_before_it(wish, num_before):
    """Resumed and more important ones, its tenant's own, and what others get while places are shared."""
    line = _line(PlaceWish(resumed=True), *[PlaceWish(tenant="busy")] * 5, PlaceWish(tenant="other"))

    assert line.num_before(wish) == num_before


@pytest.mark.parametrize(
    ("wish", "last"),
    [
        (PlaceWish(tenant="a", priority=Priority.HIGH), 3),
        (PlaceWish(tenant="b"), 3),
        (PlaceWish(tenant="a"), None),
        (PlaceWish(tenant="b", priority=Priority.LOW), None),
    ],
)
def test_the_last_in_line_may_go_after_a_new_request(wish, last):
    """The newest request of the tenant with the most, unless the new one would be last itself; never a resumed one."""
    line = _line(*[PlaceWish(tenant="a")] * 2, PlaceWish(tenant="b"), PlaceWish(tenant="a"), PlaceWish(resumed=True))

    assert line.last_behind(wish) == last


WISHES = st.builds(
    PlaceWish,
    tenant=st.sampled_from("abcd"),
    priority=st.sampled_from(Priority),
    resumed=st.sampled_from([False, False, False, True]),
)


class LineAgainstSort(RuleBasedStateMachine):
    """Whatever comes, goes, is served and given back: the first is the first of a plain sort."""

    def __init__(self) -> None:
        super().__init__()
        self.line: WaitingLine[int] = WaitingLine()
        self.waiting: dict[int, PlaceWish] = {}
        self.in_hand: list[str] = []
        self.turns: dict[str, int] = {}
        self.clock = 0

    def _tick(self) -> int:
        self.clock += 1
        return self.clock

    def _forget(self, tenant: str) -> None:
        if tenant not in self.in_hand and all(wish.tenant != tenant for wish in self.waiting.values()):
            del self.turns[tenant]

    @rule(wish=WISHES)
    def add(self, wish):
        item = self._tick()
        self.turns.setdefault(wish.tenant, item)
        self.waiting[item] = wish
        self.line.add(wish, item)

    @precondition(lambda self: self.waiting)
    @rule(data=st.data())
    def leave(self, data):
        item = data.draw(st.sampled_from(sorted(self.waiting)))
        wish = self.waiting.pop(item)
        assert self.line.discard(item) == wish
        assert self.line.discard(item) is None
        self._forget(wish.tenant)

    @precondition(lambda self: self.waiting)
    @rule()
    def serve(self):
        def place_in_order(item: int):
            wish = self.waiting[item]
            if wish.resumed:
                return (-1, 0, 0, item)
            return (wish.priority, self.in_hand.count(wish.tenant), self.turns[wish.tenant], item)

        item = min(self.waiting, key=place_in_order)
        assert self.line.first(lambda _wish: True) == item
        wish = self.waiting.pop(item)
        assert self.line.serve(item) == wish
        self.in_hand.append(wish.tenant)
        self.turns[wish.tenant] = self._tick()

    @precondition(lambda self: self.in_hand)
    @rule(data=st.data())
    def give_back(self, data):
        tenant = data.draw(st.sampled_from(self.in_hand))
        self.in_hand.remove(tenant)
        self.line.give_back(tenant)
        self._forget(tenant)

    @invariant()
    def counts_agree(self):
        assert len(self.line) == len(self.waiting)
        assert all(item in self.line for item in self.waiting)


TestLineAgainstSort = LineAgainstSort.TestCase
TestLineAgainstSort.settings = settings(deadline=None)


def test_out_of_date_ranks_do_not_pile_up():
    """A line that is never empty keeps its memory."""
    line = _line(PlaceWish(tenant="busy"))
    for item in range(1, 2000):
        line.add(PlaceWish(tenant="busy"), item)
        assert _serve_next(line) == item - 1
        line.give_back("busy")

    assert len(line._classes[Priority.NORMAL]._heap) < 200
