"""``paceline demo``: the whole platform once, from start to clean end, with a verdict on each claim."""

import time
from contextlib import closing
from dataclasses import dataclass, field

import httpx
import psutil
from rich.console import Console
from rich.text import Text

from paceline.cli.models import ProgressBars
from paceline.client.conversation import AnswerFacts, ChatQuestion, TextPiece, Turn
from paceline.client.rest import RestClient
from paceline.config.load import load_config
from paceline.config.locate import find_config
from paceline.config.schema import DeploymentConfig
from paceline.errors import AnswerFailedError
from paceline.telemetry import catalogue
from paceline.telemetry.instruments import Counter
from paceline_serve.local_platform import LocalPlatform
from paceline_serve.local_ray import is_alive
from paceline_serve.memory_watch import MemoryWatch
from paceline_serve.metric_values import metric_value
from paceline_serve.model_files import fetch_models
from paceline_serve.names import GATEWAY, TARGET, drafter_deployment
from paceline_serve.ports import EVERY_ADDRESS, free_port
from paceline_serve.serve_flags import ServeFlags, with_flags
from paceline_serve.signals import StopRequestedError, stop_on_signals

_QUESTION = "Write a Python function that returns the largest number of a list, and explain each line."
_LINK_WITHIN_S = 15.0
_EXIT_INTERRUPTED = 130  # as shells have it for Ctrl-C
_LEAST_TAU = 1.3
_MOST_BYTES = 4 * 2**30


@dataclass(frozen=True, slots=True)
class DemoAnswer:
    """One answer and how it was made."""

    text: str
    facts: AnswerFacts
    tokens_per_s: float


@dataclass(slots=True)
class Verdicts:
    """Claims that were checked, printed as they come."""

    console: Console
    failed: list[str] = field(default_factory=list)

    def check(self, claim: str, *, holds: bool, found: str) -> None:
        """Print one claim with what was found; remember it if it does not hold."""
        mark = ("yes", "green") if holds else ("NO", "red")
        self.console.print(Text.assemble(f"  {claim}: ", mark, f" ({found})"))
        if not holds:
            self.failed.append(claim)


def run_demo(*, max_tokens: int) -> int:
    """Run it; returns the exit code, 0 if every claim holds."""
    # What a model writes is shown as it is, brackets and colons too.
    console = Console(highlight=False, soft_wrap=True, markup=False, emoji=False)
    verdicts = Verdicts(console)
    config = _config()
    platform = LocalPlatform(config)
    try:
        # From before the fetch: a model that is converted takes more memory than one that runs.
        with stop_on_signals(), MemoryWatch(lambda: [psutil.Process(), *platform.ray.processes()]) as memory:
            with ProgressBars() as progress:
                fetch_models(config, progress)
            processes = _run(platform, verdicts, max_tokens=max_tokens)
    except StopRequestedError:
        console.print("stopped; everything that was started has ended")
        return _EXIT_INTERRUPTED
    left = [process.pid for process in processes if is_alive(process)]
    verdicts.check(
        f"all {len(processes)} processes have ended",
        holds=not left,
        found=f"still there: {left}" if left else "none left",
    )
    peak = memory.peak_bytes
    verdicts.check(
        "peak resident memory at most 4 GB",
        holds=peak <= _MOST_BYTES,
        found=f"{peak / 2**30:.2f} GB, over fetching and running",
    )
    if verdicts.failed:
        console.print(Text.assemble(("The demo failed:", "red"), f" {'; '.join(verdicts.failed)}"))
    return 1 if verdicts.failed else 0


def _run(platform: LocalPlatform, verdicts: Verdicts, *, max_tokens: int) -> list[psutil.Process]:
    """Start, show, stop; returns the processes that there were."""
    console = verdicts.console
    started = time.monotonic()
    console.print(f"Starting {platform.config.model.served_name} with drafter group '{_group(platform)}' ...")
    with platform:
        _wait_for_drafter(platform.url)
        console.print(f"Ready after {time.monotonic() - started:.0f} s.")
        _show(platform, verdicts, max_tokens=max_tokens)
        return platform.ray.processes()


def _wait_for_drafter(url: str) -> None:
    """Wait until the target's link to the drafter is up. Without it the check of the route will fail."""
    give_up_at = time.monotonic() + _LINK_WITHIN_S
    while time.monotonic() < give_up_at:
        (model,) = httpx.get(f"{url}/v1/models", trust_env=False).json()["data"]
        if any(group["live"] for group in model["paceline"]["drafter_groups"]):
            return
        time.sleep(0.2)


def _config() -> DeploymentConfig:
    config = load_config(find_config("local-cpu"))
    host = config.gateway.host
    return with_flags(config, ServeFlags(http_port=free_port(host), grpc_port=free_port(EVERY_ADDRESS)))


def _show(platform: LocalPlatform, verdicts: Verdicts, *, max_tokens: int) -> None:
    console = verdicts.console
    _check_processes(platform, verdicts)
    console.print(f"\nQuestion: {_QUESTION}\n")
    drafted_before = _drafted(platform)
    plain = _ask(platform.url, "off", max_tokens)
    drafted_plain = _drafted(platform)
    speculative = _ask(platform.url, "on", max_tokens)
    drafted = _drafted(platform) - drafted_plain
    console.print(f"Answer: {speculative.text}\n")
    for name, answer in (("off", plain), ("on", speculative)):
        console.print(f"  speculation {name}: {_line(answer)}")
    accepted = _counted(platform, TARGET, catalogue.ACCEPTED_TOKENS)
    same = plain.text == speculative.text
    verdicts.check("the text is the same", holds=same, found=f"{speculative.facts.completion_tokens} tokens")
    tau = speculative.facts.tau or 0.0
    verdicts.check(f"tau above {_LEAST_TAU}", holds=tau > _LEAST_TAU, found=f"{tau:.2f} tokens per target pass")
    routes = (plain.facts.route, speculative.facts.route)
    verdicts.check("the routes are as asked", holds=routes == ("plain", "speculative"), found=", ".join(routes))
    verdicts.check(
        "drafts crossed the link" if _is_remote(platform) else "drafts were made where they were asked for",
        holds=drafted > 0 and accepted > 0 and drafted_plain == drafted_before,
        found=f"{drafted:.0f} drafted, the target accepted {accepted:.0f}",
    )


def _check_processes(platform: LocalPlatform, verdicts: Verdicts) -> None:
    pids = platform.serve.replica_pids()
    roles = {"gateway": GATEWAY, "target": TARGET}
    if _is_remote(platform):
        roles["drafter"] = drafter_deployment(_group(platform))
    first = {role: pids.get(name, [0])[0] for role, name in roles.items()}
    verdicts.check(
        f"{' and '.join(roles)} are processes of their own",
        holds=len(set(first.values())) == len(first) and all(first.values()),
        found=", ".join(f"{role} {pid}" for role, pid in first.items()),
    )


def _group(platform: LocalPlatform) -> str:
    """The one drafter group that the demo's config has."""
    (group,) = platform.config.drafters
    return group


def _is_remote(platform: LocalPlatform) -> bool:
    """Whether that group drafts in a process of its own."""
    return platform.config.drafters[_group(platform)].place == "remote"


def _drafted(platform: LocalPlatform) -> float:
    """Draft tokens so far: those that a drafter's process has sent, or that a pass of the target contained."""
    if _is_remote(platform):
        return _counted(platform, drafter_deployment(_group(platform)), catalogue.DRAFTER_TOKENS)
    return _counted(platform, TARGET, catalogue.DRAFTED_TOKENS)


def _counted(platform: LocalPlatform, deployment: str, counter: Counter) -> float:
    """A counter summed over a deployment's replicas, as their own processes report it."""
    return sum(metric_value(text, counter) for text in platform.metrics(deployment))


def _ask(url: str, mode: str, max_tokens: int) -> DemoAnswer:
    question = ChatQuestion((Turn("user", _QUESTION),), temperature=0.0, max_tokens=max_tokens, speculation=mode)
    pieces: list[str] = []
    started = time.monotonic()
    with closing(RestClient(url)) as client:
        for event in client.ask(question):
            if isinstance(event, TextPiece):
                pieces.append(event.text)
            else:
                seconds = time.monotonic() - started
                return DemoAnswer("".join(pieces), event, event.completion_tokens / seconds)
    raise AnswerFailedError("incomplete", "the answer ended without its facts.")


def _line(answer: DemoAnswer) -> str:
    facts = answer.facts
    alpha = "" if facts.alpha is None else f", alpha {facts.alpha:.2f}"
    tau = "unknown" if facts.tau is None else f"{facts.tau:.2f}"
    return f"{answer.tokens_per_s:.1f} tokens/s, tau {tau}{alpha}, route {facts.route}: {facts.reason}"
