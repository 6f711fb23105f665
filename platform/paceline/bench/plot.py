"""Draws a run: tokens/s by category, and the inter-token latencies. Needs matplotlib (the bench extra)."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from paceline.bench.report import Result
from paceline.errors import ConfigError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Apart for colour-blind readers too (Paul Tol's "bright"); more sides begin again.
_COLORS = ("#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377", "#bbbbbb")
_PERCENTILES = ("p50", "p90", "p99")


def draw(result: Result, path: Path) -> None:
    """Write a PNG. Raises ConfigError without matplotlib, and for results that have no picture."""
    if result.kind != "run":
        raise ConfigError(f"A result of 'bench {result.kind}' has no picture; write .json or .md.")
    try:
        from matplotlib.figure import Figure  # noqa: PLC0415  # an extra
    except ImportError as error:
        raise ConfigError("Pictures need matplotlib: install 'paceline[bench]', or write .json or .md.") from error
    variants: dict[str, Any] = result.data["variants"]
    figure = Figure(figsize=(11, 4.5), layout="constrained")
    speed_axes, latency_axes = figure.subplots(1, 2, width_ratios=(2, 1))
    _draw_speed(speed_axes, variants)
    _draw_latency(latency_axes, variants)
    if result.provenance:
        machine = result.provenance.machine
        figure.supxlabel(f"{result.provenance.source[:16]}, {machine['cpu']}, {machine['cores']} cores", fontsize=7)
    figure.savefig(path, dpi=130)


def _draw_speed(axes: "Axes", variants: dict[str, Any]) -> None:
    names = list(dict.fromkeys(name for found in variants.values() for name in found["speed"] if name != "looping"))
    width = 0.8 / len(variants)
    for index, (variant, found) in enumerate(variants.items()):
        heights = [(found["speed"].get(name) or {}).get("tokens_per_s") or 0.0 for name in names]
        places = [place + index * width for place in range(len(names))]
        axes.bar(places, heights, width, label=f"{variant}: {found['options']}", color=_COLORS[index % len(_COLORS)])
    axes.set_xticks([place + width * (len(variants) - 1) / 2 for place in range(len(names))], names, rotation=30)
    axes.margins(y=0.25)  # room for the legend
    axes.set_ylabel("tokens/s")
    axes.set_title("Speed, looping answers left out")
    axes.legend(fontsize=7)


def _draw_latency(axes: "Axes", variants: dict[str, Any]) -> None:
    width = 0.8 / len(variants)
    for index, found in enumerate(variants.values()):
        itl = found["speed"]["headline"]["itl_s"]
        if itl is None:
            continue
        places = [place + index * width for place in range(len(_PERCENTILES))]
        axes.bar(places, [itl[name] * 1e3 for name in _PERCENTILES], width, color=_COLORS[index % len(_COLORS)])
    axes.set_xticks([place + width * (len(variants) - 1) / 2 for place in range(3)], _PERCENTILES)
    axes.set_ylabel("ms")
    axes.set_title("Inter-token latency")
