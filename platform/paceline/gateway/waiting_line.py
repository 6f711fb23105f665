"""The order in which requests that wait for a place are served.

Resumed requests first, in the order of their arrival; then by priority; within a priority the tenant with
the fewest places in hand, and among equals the one whose turn was longest ago; each tenant's own requests
in the order of their arrival. Places in hand, not requests served, are what tenants share: answers differ in
length a hundredfold, and a turn-by-turn rule would give the fleet to whoever asks for the longest.
"""

import heapq
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import count
from typing import Generic, NamedTuple, TypeVar

from paceline.core.priority import Priority
from paceline.gateway.target_pool import PlaceWish

Item = TypeVar("Item")

_STALE_RANKS = 64  # ranks that are out of date may be this many beyond those that hold


class _Rank(NamedTuple):
    """Smaller goes first."""

    num_in_hand: int
    turn: int


class _FairClass(Generic[Item]):
    """Requests of one priority. Tenants are kept in a heap; a rank that has changed is pushed anew."""

    def __init__(self, rank_of: Callable[[str], _Rank]) -> None:
        self._rank_of = rank_of
        self.tenants: dict[str, dict[Item, PlaceWish]] = {}  # requests in the order of their arrival
        self._heap: list[tuple[_Rank, str]] = []

    def add(self, wish: PlaceWish, item: Item) -> None:
        if wish.tenant not in self.tenants:
            self.tenants[wish.tenant] = {}
            self.rank_changed(wish.tenant)
        self.tenants[wish.tenant][item] = wish

    def discard(self, tenant: str, item: Item) -> None:
        del self.tenants[tenant][item]
        if not self.tenants[tenant]:
            del self.tenants[tenant]

    def rank_changed(self, tenant: str) -> None:
        if tenant not in self.tenants:
            return
        heapq.heappush(self._heap, (self._rank_of(tenant), tenant))
        if len(self._heap) > 2 * len(self.tenants) + _STALE_RANKS:
            self._heap = [(self._rank_of(name), name) for name in self.tenants]
            heapq.heapify(self._heap)

    def __iter__(self) -> Iterator[tuple[Item, PlaceWish]]:
        """All requests, whole tenants one after another. The first costs O(log n), the others O(n log n) once."""
        while self._heap and not self._holds(self._heap[0]):
            heapq.heappop(self._heap)
        if not self.tenants:
            return
        first = self._heap[0][1]
        yield from self.tenants[first].items()
        for tenant in sorted(self.tenants.keys() - {first}, key=self._rank_of):
            yield from self.tenants[tenant].items()

    def _holds(self, entry: tuple[_Rank, str]) -> bool:
        rank, tenant = entry
        return tenant in self.tenants and rank == self._rank_of(tenant)


class WaitingLine(Generic[Item]):
    """Requests that wait, as hashable items of the caller's; and how many places each tenant has in hand."""

    def __init__(self) -> None:
        self._wishes: dict[Item, PlaceWish] = {}
        self._resumed: dict[Item, PlaceWish] = {}
        self._classes = {priority: _FairClass[Item](self._rank_of) for priority in Priority}
        self._in_hand: Counter[str] = Counter()  # places by tenant
        self._stakes: Counter[str] = Counter()  # requests and places by tenant
        self._turns: dict[str, int] = {}  # of tenants with a stake
        self._next_turn = count()

    def __len__(self) -> int:
        return len(self._wishes)

    def __contains__(self, item: Item) -> bool:
        return item in self._wishes

    @property
    def num_new(self) -> int:
        """Requests that do not go on with an answer."""
        return len(self._wishes) - len(self._resumed)

    def add(self, wish: PlaceWish, item: Item) -> None:
        """Put a request into the line."""
        self._wishes[item] = wish
        self._stakes[wish.tenant] += 1
        if wish.tenant not in self._turns:
            self._turns[wish.tenant] = next(self._next_turn)
        if wish.resumed:
            self._resumed[item] = wish
        else:
            self._classes[wish.priority].add(wish, item)

    def discard(self, item: Item) -> PlaceWish | None:
        """Take a request out; returns its wish, or None where it does not wait."""
        wish = self._remove(item)
        if wish is not None:
            self._lower_stake(wish.tenant)
        return wish

    def first(self, suits: Callable[[PlaceWish], bool]) -> Item | None:
        """The first request that ``suits``."""
        return next((item for item, wish in self._in_order() if suits(wish)), None)

    def serve(self, item: Item) -> PlaceWish:
        """Take a request out because it has a place; its tenant has one more in hand until `give_back`."""
        wish = self._remove(item)
        if wish is None:
            raise KeyError(item)
        self._in_hand[wish.tenant] += 1
        self._turns[wish.tenant] = next(self._next_turn)
        self._rank_changed(wish.tenant)
        return wish

    def give_back(self, tenant: str) -> None:
        """A place that a tenant's request was served with has gone back."""
        self._in_hand[tenant] -= 1
        self._rank_changed(tenant)
        self._lower_stake(tenant)

    def num_before(self, wish: PlaceWish) -> int:
        """Requests of this line that would be served before a new one, if no tenant's places went back meanwhile."""
        level = self._level(wish)
        before = len(self._resumed)
        for priority, group in self._classes.items():
            if priority < wish.priority:
                before += sum(len(line) for line in group.tenants.values())
        for tenant, line in self._classes[wish.priority].tenants.items():
            ahead = len(line) if tenant == wish.tenant else max(0, level + 1 - self._in_hand[tenant])
            before += min(len(line), ahead)
        return before

    def last_behind(self, wish: PlaceWish) -> Item | None:
        """The request that would be served last, if that is after a new one."""
        for priority in reversed(Priority):
            tenants = self._classes[priority].tenants
            if priority < wish.priority or not tenants:
                continue
            last = max(tenants, key=lambda tenant: self._in_hand[tenant] + len(tenants[tenant]))
            last_level = self._in_hand[last] + len(tenants[last])
            if priority == wish.priority and last_level <= self._level(wish) + 1:
                return None
            return next(reversed(tenants[last]))
        return None

    def _level(self, wish: PlaceWish) -> int:
        """Places that the tenant will have in hand when a new request's turn comes."""
        return self._in_hand[wish.tenant] + len(self._classes[wish.priority].tenants.get(wish.tenant, ()))

    def _in_order(self) -> Iterator[tuple[Item, PlaceWish]]:
        yield from self._resumed.items()
        for group in self._classes.values():
            yield from group

    def _rank_of(self, tenant: str) -> _Rank:
        return _Rank(self._in_hand[tenant], self._turns[tenant])

    def _rank_changed(self, tenant: str) -> None:
        for group in self._classes.values():
            group.rank_changed(tenant)

    def _remove(self, item: Item) -> PlaceWish | None:
        wish = self._wishes.pop(item, None)
        if wish is None:
            return None
        if wish.resumed:
            del self._resumed[item]
        else:
            self._classes[wish.priority].discard(wish.tenant, item)
        return wish

    def _lower_stake(self, tenant: str) -> None:
        self._stakes[tenant] -= 1
        if not self._stakes[tenant]:
            del self._stakes[tenant], self._in_hand[tenant], self._turns[tenant]
