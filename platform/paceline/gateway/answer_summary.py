"""Facts about a whole answer, over all its choices."""

from collections.abc import Iterable
from dataclasses import dataclass

from paceline.core.generation import ChoiceStats
from paceline.core.model_identity import ModelIdentity
from paceline.core.plans import Plan, Route


@dataclass(frozen=True, slots=True)
class AnswerSummary:
    """What the client learns at the end. The prompt counts once, however many choices there are."""

    model: str
    prompt_tokens: int
    cached_tokens: int  # of the prompt's, those that no choice had to compute
    completion_tokens: int
    accepted_tokens: int
    rejected_tokens: int  # drafted and not kept
    route: Route
    reason: str
    drafter: str | None
    switches: int
    tau: float | None  # None before the first target pass
    alpha: float | None  # None while no draft was tested
    seed: int  # unsigned 64-bit
    resumed: int
    verifier: str
    system_fingerprint: str


def summarise(
    stats: Iterable[ChoiceStats],
    *,
    plan: Plan,
    prompt_tokens: int,
    seed: int,
    identity: ModelIdentity,
    verifier: str,
) -> AnswerSummary:
    """Add up the counts of all choices. tau and alpha are ratios of sums, so long choices weigh more."""
    choices = list(stats)
    completion = sum(choice.completion_tokens for choice in choices)
    in_rounds = completion - sum(choice.replayed for choice in choices)
    rounds = sum(choice.rounds for choice in choices)
    tested = sum(choice.tested for choice in choices)
    accepted = sum(choice.accepted for choice in choices)
    used = next((choice.drafter for choice in choices if choice.drafter), None)
    drafted = sum(choice.drafted for choice in choices)
    route, reason = plan.route, plan.reason
    if route is Route.PLAIN and used and drafted:
        # A plan without a drafter drafts nothing: a later attempt had another one.
        change = "it was turned on again during the answer" if plan.drafter else "the answer went on with drafts"
        route, reason = Route.SPECULATIVE, f"{reason}; {change}"
    return AnswerSummary(
        model=identity.name,
        prompt_tokens=prompt_tokens,
        cached_tokens=min((choice.cached_tokens for choice in choices), default=0),
        completion_tokens=completion,
        accepted_tokens=accepted,
        rejected_tokens=drafted - accepted,
        route=route,
        reason=reason,
        drafter=None if route is Route.PLAIN else used or plan.drafter,
        switches=sum(choice.switches for choice in choices),
        tau=in_rounds / rounds if rounds else None,
        alpha=accepted / tested if tested else None,
        seed=seed,
        resumed=max((choice.resumed for choice in choices), default=0),
        verifier=verifier,
        system_fingerprint=identity.system_fingerprint,
    )
