"""``python -m soak``: run one and report; exit code 1 if anything was lost, truncated, wrong or leaked."""

import argparse
import sys
import tempfile
import time
from pathlib import Path

from rich.console import Console

from paceline_serve.local_ray import set_ray_environment

set_ray_environment()  # before anything imports Ray

from paceline.bench.provenance import collect_provenance  # noqa: E402
from paceline.bench.report import show, write  # noqa: E402
from soak.report import examples, faults_found, make_result  # noqa: E402
from soak.run import Settings, soak  # noqa: E402

_SAY_EVERY_S = 10.0


def main() -> int:
    """Parse, run, report."""
    options = _parse()
    settings = Settings(
        options.n,
        options.seed,
        options.model,
        options.at_a_time,
        with_faults=not options.no_faults,
        kill_gateways=options.kill_gateways,
        planted={name: float(share) for name, _, share in (one.partition("=") for one in options.plant)},
    )
    told = {name: value for name, value in vars(options).items() if name not in {"n", "seed", "output"} and value}
    provenance = collect_provenance(config=told, seed=options.seed, argv=["python -m soak", *sys.argv[1:]])
    with tempfile.TemporaryDirectory(prefix="soak-") as folder:
        outcome = soak(settings, Path(folder), _Speaker().say)
    result = make_result(outcome, provenance)
    show(result, Console(width=120))
    for path in options.output:
        write(result, path)
    found = faults_found(outcome)
    verdict = f"{len(found)} found" if found else "nothing lost, truncated, wrong or leaked"
    sys.stdout.write("".join(f"{line}\n" for line in (*examples(found), verdict)))
    return 1 if found else 0


class _Speaker:
    """Prints how it goes on, but not too often."""

    def __init__(self) -> None:
        self._started_s = time.monotonic()
        self._next_s = 0.0

    def say(self, text: str) -> None:
        """Print unless it is progress that comes too soon."""
        now = time.monotonic()
        if now >= self._next_s or " of " not in text:
            self._next_s = now + _SAY_EVERY_S
            sys.stderr.write(f"{now - self._started_s:6.0f} s  {text}\n")


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="soak", description=__doc__)
    parser.add_argument("-n", type=int, default=2000, help="requests")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--model", default="tiny", help="tiny, or a name that `paceline models list` shows")
    parser.add_argument("--at-a-time", type=int, default=32, help="clients")
    parser.add_argument("--no-faults", action="store_true", help="leave the fleet alone")
    parser.add_argument("--kill-gateways", action="store_true", help="cuts answers, which are counted apart")
    parser.add_argument("--plant", action="append", default=[], metavar="FAULT=SHARE", help="a bug to find")
    parser.add_argument("-o", "--output", type=Path, action="append", default=[], help="FILE.md or FILE.json")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
