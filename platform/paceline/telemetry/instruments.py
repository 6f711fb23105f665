"""Records that describe a metric: what it is called, counts and may be labelled with."""

from dataclasses import dataclass

PREFIX = "paceline"
OTHER = "other"  # stands for every label value beyond a label's bound
_UNIT_SUFFIXES = {"s": "_seconds", "By": "_bytes"}


@dataclass(frozen=True, slots=True)
class Label:
    """A label with a bounded number of values.

    Either ``values`` lists them, or they come from the deployment's configuration and only the first
    ``max_values`` of them are told apart. All the rest count as ``other``.
    """

    name: str
    doc: str
    values: tuple[str, ...] = ()
    max_values: int = 64


@dataclass(frozen=True, slots=True)
class Instrument:
    """What all metrics have: dotted name, unit (UCUM, or ``{thing}``), one documenting sentence or more."""

    name: str
    unit: str
    doc: str
    labels: tuple[Label, ...] = ()

    @property
    def base_name(self) -> str:
        """Prometheus name without the suffix that its kind adds."""
        return f"{PREFIX}_{self.name.replace('.', '_')}{_UNIT_SUFFIXES.get(self.unit, '')}"

    @property
    def prometheus_name(self) -> str:
        """Name of the series in the exposition; a histogram's series add ``_bucket``, ``_sum`` and ``_count``."""
        return self.base_name

    @property
    def kind(self) -> str:
        """Lower-case name of the kind."""
        return type(self).__name__.lower()


@dataclass(frozen=True, slots=True)
class Counter(Instrument):
    """Only grows; rates and ratios are taken in the query."""

    @property
    def prometheus_name(self) -> str:
        """Name of the series in the exposition."""
        return f"{self.base_name}_total"


@dataclass(frozen=True, slots=True)
class Gauge(Instrument):
    """A value at this moment."""


@dataclass(frozen=True, slots=True)
class Histogram(Instrument):
    """A distribution over fixed, increasing bucket bounds."""

    buckets: tuple[float, ...] = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
