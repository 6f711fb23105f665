"""The facade through which code counts; one instance per process, passed in by the composition root."""

from collections.abc import Iterable

import prometheus_client
from prometheus_client.metrics import MetricWrapperBase

from paceline.telemetry.catalogue import ALL
from paceline.telemetry.instruments import OTHER, Counter, Gauge, Histogram, Instrument, Label


class Metrics:
    """Records values of catalogue metrics in a registry of its own. Safe to call from any thread.

    A label value beyond its bound counts as ``other``; with ``strict`` it raises ValueError instead, as a
    missing, unknown or wrongly typed label always does.
    """

    def __init__(self, *, instruments: Iterable[Instrument] = ALL, strict: bool = False) -> None:
        self._strict = strict
        self._registry = prometheus_client.CollectorRegistry()
        self._series = {instrument.name: _register(instrument, self._registry) for instrument in instruments}
        self._open_values: dict[tuple[str, str], set[str]] = {}  # (metric, label) -> values seen so far

    def count(self, counter: Counter, amount: float = 1, **labels: str) -> None:
        """Add ``amount`` (0 or more) to a counter."""
        self._child(counter, labels).inc(amount)  # type: ignore[attr-defined]  # a counter by its spec

    def set(self, gauge: Gauge, value: float, **labels: str) -> None:
        """Set a gauge."""
        self._child(gauge, labels).set(value)  # type: ignore[attr-defined]  # a gauge by its spec

    def observe(self, histogram: Histogram, value: float, **labels: str) -> None:
        """Add one value to a histogram."""
        self._child(histogram, labels).observe(value)  # type: ignore[attr-defined]  # a histogram by its spec

    def value(self, instrument: Counter | Gauge, **labels: str) -> float:
        """Current value of a counter or gauge; 0 where nothing was recorded."""
        return self._registry.get_sample_value(instrument.prometheus_name, labels) or 0.0

    def render(self) -> str:
        """All series in the Prometheus text format."""
        return prometheus_client.generate_latest(self._registry).decode()

    def _child(self, instrument: Instrument, labels: dict[str, str]) -> MetricWrapperBase:
        series = self._series[instrument.name]
        if not instrument.labels and not labels:
            return series
        bounded = {label.name: self._bound(instrument, label, labels) for label in instrument.labels}
        unknown = labels.keys() - bounded.keys()
        if unknown:
            raise ValueError(f"{instrument.name} has no label {sorted(unknown)}")
        return series.labels(**bounded)

    def _bound(self, instrument: Instrument, label: Label, labels: dict[str, str]) -> str:
        value = labels.get(label.name)
        if not isinstance(value, str):
            raise ValueError(f"{instrument.name} needs a text for label '{label.name}', got {value!r}")  # noqa: TRY004
        if self._within_bound(instrument, label, value):
            return value
        if self._strict:
            raise ValueError(f"'{value}' is outside the bound of label '{label.name}' of {instrument.name}")
        return OTHER

    def _within_bound(self, instrument: Instrument, label: Label, value: str) -> bool:
        if label.values:
            return value in label.values
        seen = self._open_values.setdefault((instrument.name, label.name), set())
        if value not in seen and len(seen) < label.max_values:
            seen.add(value)
        return value in seen


def _register(instrument: Instrument, registry: prometheus_client.CollectorRegistry) -> MetricWrapperBase:
    name, doc, labels = instrument.base_name, instrument.doc, [label.name for label in instrument.labels]
    match instrument:
        case Counter():
            return prometheus_client.Counter(name, doc, labels, registry=registry)
        case Gauge():
            return prometheus_client.Gauge(name, doc, labels, registry=registry)
        case Histogram():
            return prometheus_client.Histogram(name, doc, labels, registry=registry, buckets=instrument.buckets)
        case _:
            raise TypeError(f"{instrument.name} is of no known kind")
