"""Choosing among scripted replicas, on a clock that the test moves. Ray Serve's part is one line: see `send`."""

import random
from collections import Counter

import pytest

from paceline.routing.target_choice import TargetChoice
from paceline.routing.target_load import TargetReport


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Fleet:
    """Gateways with a choice each, and replicas with a true load."""

    def __init__(self, replicas: str = "abcd", *, gateways: int = 1, seed: int = 0, valid_s: float = 3.0) -> None:
        self.clock = Clock()
        self.rng = random.Random(seed)
        self.choices = [
            TargetChoice(clock=self.clock, rng=random.Random(seed + 1 + number), report_valid_s=valid_s)
            for number in range(gateways)
        ]
        self.busy = dict.fromkeys(replicas, 0)
        self.sent: Counter[str] = Counter()
        for choice in self.choices:
            for replica in replicas:
                choice.join(replica)

    def report(self, replica: str, **facts) -> None:
        for choice in self.choices:
            choice.reported(replica, TargetReport(**{"busy": self.busy[replica]} | facts))

    def poll(self) -> None:
        for replica in self.busy:
            self.report(replica)

    def send(self, gateway: int = 0) -> str:
        """One request, which stays in the true load; where nothing is preferred Ray Serve chooses, here by chance."""
        choice = self.choices[gateway]
        wanted = choice.prefer(self.busy.keys())
        with choice.asking(wanted) as asking:
            got = wanted or self.rng.choice(sorted(self.busy))
            asking.got(got)
            self.busy[got] += 1
            self.sent[got] += 1
        return got


@pytest.mark.parametrize("gateways", [1, 4])
@pytest.mark.parametrize("seed", range(20))
def test_a_burst_between_two_polls_is_shared_out(gateways, seed):
    """100 requests in one second over 4 replicas that report every 5 s: nobody has 1.5 times what another has."""
    fleet = Fleet(gateways=gateways, seed=seed, valid_s=6.0)
    kept = []
    for _ in range(2):  # the first poll finds an empty fleet, the second one what the burst left
        fleet.poll()
        fleet.clock.now += 3
        for number in range(100):
            choice = fleet.choices[number % gateways]
            wanted = choice.prefer(fleet.busy.keys())
            asking = choice.asking(wanted)
            asking.__enter__().got(wanted)
            kept.append(asking)
            fleet.busy[wanted] += 1
            fleet.sent[wanted] += 1
            fleet.clock.now += 0.01
        fleet.clock.now += 1

        assert max(fleet.busy.values()) <= 1.5 * min(fleet.busy.values())


def test_a_replica_whose_gauge_is_stuck_is_found_out_within_ten_seconds():
    """One report that says full for ever does not keep a replica out of use for good, nor fill it."""
    fleet = Fleet()
    started = fleet.clock.now
    found = []
    for number in range(600):
        if number % 10 == 0:
            for replica in "abc":
                fleet.busy[replica] = 5
                fleet.report(replica)
            fleet.report("d", busy=99)
        if fleet.send() == "d":
            found.append(fleet.clock.now - started)
        fleet.clock.now += 0.1

    gaps = [later - earlier for earlier, later in zip([0.0, *found], found, strict=False)]
    assert found
    assert all(7.5 <= gap <= 10 for gap in gaps)


def test_a_quiet_gateway_goes_by_the_reports():
    """Where requests are rare, a busy replica is not tried just because it has got nothing for a while."""
    fleet = Fleet("ab")
    fleet.busy["b"] = 50
    sent = Counter()
    for _ in range(8):
        fleet.clock.now += 60
        fleet.poll()
        sent[fleet.send()] += 1

    assert sent == {"a": 8}


def test_equal_replicas_get_equal_shares():
    """Ties go to a random replica, never to the first of a list."""
    fleet = Fleet()
    for _ in range(4000):
        fleet.busy = dict.fromkeys("abcd", 2)
        fleet.poll()
        fleet.clock.now += 0.2
        fleet.send()

    assert all(900 <= count <= 1100 for count in fleet.sent.values())


def test_gateways_that_believe_the_same_do_not_all_go_to_one_replica():
    """When one replica looks idle to everybody it gets its share twice over, not everything."""
    fleet = Fleet(gateways=20)
    fleet.busy = {"a": 0, "b": 9, "c": 9, "d": 9}
    fleet.poll()
    for gateway in range(20):
        fleet.send(gateway)

    assert fleet.sent["a"] <= 15


@pytest.mark.parametrize("facts", [{"draining": True}, {"stalled_s": 5.0}, None])
def test_replicas_that_drain_stall_or_say_nothing_are_not_preferred(facts):
    """However idle they look; once they report well again they are."""
    fleet = Fleet("ab")
    fleet.busy["b"] = 50
    fleet.report("b")
    if facts is not None:
        fleet.report("a", **facts)
    assert {fleet.choices[0].prefer("ab") for _ in range(20)} == {"b"}

    fleet.report("a")

    assert fleet.choices[0].prefer("ab") == "a"


def test_a_replica_that_failed_is_avoided_for_a_while():
    """Five seconds later it is as good as any other."""
    fleet = Fleet("ab")
    choice = fleet.choices[0]
    choice.failed("a")
    fleet.busy["b"] = 3
    fleet.poll()
    assert choice.prefer("ab") == "b"
    assert choice.failed_lately() == {"a"}

    fleet.clock.now += 5.1
    fleet.poll()

    assert choice.prefer("ab") == "a"
    assert choice.failed_lately() == set()


def test_a_fleet_of_which_nothing_is_known_has_no_preference():
    """The choice is Ray Serve's then, by its own count."""
    assert Fleet().choices[0].prefer("abcd") is None


def test_a_replica_that_comes_back_begins_at_nothing():
    """Requests of the process that is gone neither count for the new one nor against it."""
    fleet = Fleet("a")
    choice = fleet.choices[0]
    fleet.report("a", busy=5)
    with choice.asking("a") as old:
        old.got("a")
        fleet.clock.now += 1
        fleet.report("a", busy=6)
        choice.leave("a")
        choice.join("a")
        assert choice.load_of("a").score is None
        fleet.report("a", busy=0)

    assert choice.load_of("a").score == 0


def test_a_request_counts_where_it_went():
    """One that was meant for a replica but got a place on another counts there, and nowhere once it has ended."""
    fleet = Fleet("ab")
    fleet.poll()
    choice = fleet.choices[0]
    with choice.asking("a") as asking:
        assert (choice.load_of("a").score, choice.load_of("b").score) == (1, 0)
        asking.got("b")
        assert (choice.load_of("a").score, choice.load_of("b").score) == (0, 1)

    assert (choice.load_of("a").score, choice.load_of("b").score) == (0, 0)
