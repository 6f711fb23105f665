import pytest

from paceline.telemetry import catalogue
from paceline.telemetry.metrics import Metrics


def test_counts_add_up_per_label_and_show_in_the_text_format():
    """A counter adds per label value and is rendered under its Prometheus name."""
    metrics = Metrics(strict=True)

    metrics.count(catalogue.ACCEPTED_TOKENS, 3, group="ngram")
    metrics.count(catalogue.ACCEPTED_TOKENS, 0, group="ngram")
    metrics.count(catalogue.ACCEPTED_TOKENS, 2, group="draft")

    assert metrics.value(catalogue.ACCEPTED_TOKENS, group="ngram") == 3
    assert 'paceline_spec_accepted_tokens_total{group="draft"} 2.0' in metrics.render()


def test_gauges_hold_the_last_value_and_histograms_all_values():
    """A gauge keeps what was set last; a histogram counts each observation in its bucket."""
    metrics = Metrics(strict=True)

    metrics.set(catalogue.RUNNING, 4)
    metrics.set(catalogue.RUNNING, 1)
    metrics.observe(catalogue.STEP_TIME, 0.05)

    assert metrics.value(catalogue.RUNNING) == 1
    assert 'paceline_engine_step_time_seconds_bucket{le="0.06"} 1.0' in metrics.render()
    assert 'paceline_engine_step_time_seconds_bucket{le="0.04"} 0.0' in metrics.render()


@pytest.mark.parametrize("labels", [{}, {"group": "a", "color": "red"}, {"color": "red"}, {"group": 3}])
def test_wrong_labels_raise(labels):
    """A missing, unknown or wrongly typed label is a bug and raises, strict or not."""
    with pytest.raises(ValueError, match="label"):
        Metrics().count(catalogue.ACCEPTED_TOKENS, 1, **labels)


def test_values_outside_a_listed_bound_count_as_other():
    """A label value that is not listed counts as `other`, and raises under strict."""
    metrics = Metrics()

    metrics.count(catalogue.FINISHED_CHOICES, finish="exploded")

    assert metrics.value(catalogue.FINISHED_CHOICES, finish="other") == 1
    with pytest.raises(ValueError, match="outside the bound"):
        Metrics(strict=True).count(catalogue.FINISHED_CHOICES, finish="exploded")


def test_open_labels_stay_bounded():
    """However many names arrive, an open label makes at most its bound of series, plus `other`."""
    metrics = Metrics()

    for index in range(200):
        metrics.count(catalogue.ROUNDS, group=f"g{index}")

    assert metrics.value(catalogue.ROUNDS, group="other") == 200 - 64
    assert metrics.value(catalogue.ROUNDS, group="g0") == 1


def test_instances_are_independent():
    """Two instances in one process share nothing."""
    first, second = Metrics(), Metrics()

    first.count(catalogue.STEPS)

    assert second.value(catalogue.STEPS) == 0
