"""Statistics, exactly, on timelines made by hand."""

import pytest

from paceline.bench.measure import (
    LevelRate,
    SampleShare,
    Slo,
    acceptance,
    distribution,
    gaps_s,
    intervals_s,
    keeps,
    load_figures,
    shared_time,
    speed,
    tpot_s,
    ttft_s,
)
from paceline.bench.records import BlockRun
from timelines import recording, sample

NO_SLO = Slo()
STEADY = recording([(1.0, 1), (1.5, 1), (2.0, 1)])
LATE = recording([(7.5, 1), (8.0, 1), (8.5, 1)])
CHUNKED = recording([(1.0, 2), (1.6, 3), (1.8, 1)])


def test_percentiles_interpolate():
    """Of 0 to 100 each percentile is its own value; of nothing there is none."""
    found = distribution(range(101))

    assert (found.count, found.mean, found.p50, found.p90, found.p99) == (101, 50.0, 50.0, 90.0, 99.0)
    assert distribution([]) is None


def test_a_chunk_of_k_tokens_is_k_intervals():
    """Three tokens after 0.6 s are three intervals of 0.2 s; chunk gaps are what they are."""
    assert intervals_s(CHUNKED) == pytest.approx([0.2, 0.2, 0.2, 0.2])
    assert gaps_s(CHUNKED) == pytest.approx([0.6, 0.2])


def test_tpot_is_time_over_tokens_after_the_first_chunk():
    """The tokens of the first chunk belong to TTFT."""
    assert tpot_s(CHUNKED) == pytest.approx(0.8 / 4)
    assert tpot_s(recording([(1.0, 4)])) is None


def test_ttft_counts_from_when_the_request_was_due():
    """A client that was busy and sent late is not excused."""
    assert ttft_s(sample(0.9, 2.0, STEADY, due_s=0.4)) == pytest.approx(0.6)


def test_each_moment_is_shared_by_the_requests_in_flight():
    """[0, 4] and [1, 3] overlap for two seconds, which count one second each; idle time counts for nobody."""
    run = BlockRun(0, "a", [sample(0, 4, STEADY), sample(1, 3, STEADY), sample(9, 10, STEADY)], 10.0)

    assert [share.share_s for share in shared_time(run)] == pytest.approx([3.0, 1.0, 1.0])


def test_requests_at_the_same_moments_share_equally():
    """Equal edges neither lose time nor count it twice."""
    run = BlockRun(0, "a", [sample(0, 2, STEADY), sample(0, 2, STEADY), sample(2, 3, STEADY)], 3.0)

    assert [share.share_s for share in shared_time(run)] == pytest.approx([1.0, 1.0, 1.0])


def test_speed_is_sum_of_tokens_over_sum_of_time():
    """A long answer weighs more than a short one; a mean of rates would be 2.25."""
    shares = [SampleShare(sample(0, 2, STEADY), 0, 2.0), SampleShare(sample(2, 4, CHUNKED), 0, 2.0)]
    figures = speed(shares, NO_SLO)

    assert (figures.answers, figures.tokens, figures.seconds) == (2, 9, 4.0)
    assert figures.tokens_per_s == pytest.approx(9 / 4)


def test_tau_and_alpha_are_ratios_of_sums():
    """Tokens over passes, accepted over tested; None where nothing was tested."""
    drafted = recording([(1.0, 1), (2.0, 3), (3.0, 2)], rounds=[(0, 0), (3, 2), (2, 1)])
    figures = speed([SampleShare(sample(0, 3, drafted), 0, 3.0)], NO_SLO)

    assert figures.tau == pytest.approx(6 / 3)
    assert figures.alpha == pytest.approx(3 / 5)
    assert speed([SampleShare(sample(0, 2, STEADY), 0, 2.0)], NO_SLO).alpha is None


def test_a_i_is_conditional_on_the_levels_before():
    """Level i counts only rounds that accepted the i - 1 before and tested an i-th."""
    drafted = recording([(1.0, 9)], rounds=[(3, 3), (3, 2), (2, 1), (1, 0), (1, 1), (0, 0)])

    assert acceptance([drafted]) == (LevelRate(1, 5, 0.8), LevelRate(2, 3, 2 / 3), LevelRate(3, 2, 0.5))


@pytest.mark.parametrize(
    ("slo", "good"),
    [(Slo(1.0, 0.5), True), (Slo(0.99, 0.5), False), (Slo(1.0, 0.49), False), (Slo(None, 0.5), True), (NO_SLO, True)],
)
def test_an_slo_is_kept_only_in_all_its_parts(slo, good):
    """First token in 1.0 s and 0.5 s per token."""
    assert keeps(sample(0, 2, STEADY), slo) is good


def test_a_single_token_has_no_tpot_to_miss():
    """Only its first token counts."""
    assert keeps(sample(0, 1, recording([(1.0, 1)])), Slo(1.0, 0.001))


def test_failures_are_counted_and_keep_no_slo():
    """They stand beside the finished ones, by reason, with an example; goodput is per second of wall time."""
    runs = [
        BlockRun(0, "a", [sample(0, 2, STEADY), sample(0, 1, error="OVERLOADED")], 2.0),
        BlockRun(1, "a", [sample(5, 9, LATE), sample(5, 9, error="OVERLOADED")], 4.0),
    ]
    figures = load_figures(runs, Slo(1.0, None))

    assert (figures.requests, figures.completed, figures.errors) == (4, 2, {"OVERLOADED": 2})
    assert figures.error_examples == {"OVERLOADED": "why"}
    assert (figures.wall_s, figures.tokens_per_wall_s) == (6.0, 1.0)
    assert figures.goodput_per_s == pytest.approx(1 / 6)  # the other answer's first token was late


def test_a_client_that_fell_behind_says_so():
    """Sending 30 ms late is behind, 1 ms is not."""
    late = load_figures([BlockRun(0, "a", [sample(0.03, 2, STEADY, due_s=0.0)], 2.0)], NO_SLO)
    punctual = load_figures([BlockRun(0, "a", [sample(0.001, 2, STEADY, due_s=0.0)], 2.0)], NO_SLO)

    assert late.client_behind
    assert not punctual.client_behind
