"""Reads single values out of metrics in Prometheus text."""

from paceline.telemetry.instruments import Counter, Gauge


def metric_value(text: str, instrument: Counter | Gauge) -> float:
    """Sum over all series of one metric; 0 if it is not there."""
    total = 0.0
    for line in text.splitlines():
        series, _, value = line.rpartition(" ")
        if series.partition("{")[0] == instrument.prometheus_name:
            total += float(value)
    return total
