"""The verifiers by name."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from types import MappingProxyType
from typing import Protocol

from paceline.core.drafts import DrawRule
from paceline.errors import ConfigError, EngineFailedError
from paceline.verification import block, coupled, rejection
from paceline.verification.draws import CounterDraws, Draws
from paceline.verification.rows import Verdict, VerifyRow
from paceline.verification.walk import Rule, Walk, plain, verdicts_of

__all__ = ["VERIFIERS", "Verdict", "Verifier", "VerifyRow", "make_verifier"]


class Verifier(Protocol):
    """Turns target logits and drafts into committed tokens whose law is the target's."""

    @property
    def name(self) -> str:
        """The name in the configuration."""

    @property
    def draw_rule(self) -> DrawRule:
        """How drafters must draw for this verifier."""

    @property
    def seed_invariant(self) -> bool:
        """Whether a seed gives the same tokens whatever is drafted; else they are equal in law."""

    def verify(self, rows: Sequence[VerifyRow]) -> list[Verdict]:
        """One verdict per row, in order; rows without drafts are sampled.

        Every state is left as it was found. Raises EngineFailedError for logits without a distribution,
        and where logits and drafts differ in number.
        """

    def sample(self, rows: Sequence[VerifyRow]) -> list[Verdict]:
        """Plain decoding: one token per row from its first logits."""


@dataclass(frozen=True, slots=True)
class TreeVerifier:
    """A rule with its name and its chance."""

    name: str
    draw_rule: DrawRule
    seed_invariant: bool
    rule: Rule
    draws: Draws

    def verify(self, rows: Sequence[VerifyRow]) -> list[Verdict]:
        """See `Verifier.verify`."""
        for row in rows:
            if row.logits.shape[0] != 1 + len(row.tree):
                raise EngineFailedError(f"{row.logits.shape[0]} rows of logits for {len(row.tree)} drafts")
        with ExitStack() as undo:
            for row in rows:
                undo.enter_context(row.state.walk())
            walkers = [(self.rule if len(row.tree) else plain)(Walk(row), self.draws) for row in rows]
            return verdicts_of(walkers, self.draws)

    def sample(self, rows: Sequence[VerifyRow]) -> list[Verdict]:
        """See `Verifier.sample`."""
        return verdicts_of([plain(Walk(row), self.draws) for row in rows], self.draws)


def _coupled(draws: Draws) -> Verifier:
    return TreeVerifier("coupled", DrawRule.COUPLED, True, coupled.verify, draws)


def _rejection(draws: Draws) -> Verifier:
    return TreeVerifier("rejection", DrawRule.INDEPENDENT, False, rejection.verify, draws)


def _block(draws: Draws) -> Verifier:
    return TreeVerifier("block", DrawRule.INDEPENDENT, False, block.verify, draws)


VERIFIERS: Mapping[str, Callable[[Draws], Verifier]] = MappingProxyType(
    {"coupled": _coupled, "rejection": _rejection, "block": _block}
)
_COUNTER_DRAWS = CounterDraws()


def make_verifier(name: str, *, draws: Draws = _COUNTER_DRAWS) -> Verifier:
    """The verifier called ``name``; ConfigError lists the known names."""
    if name not in VERIFIERS:
        raise ConfigError(f"There is no verifier '{name}'. Known verifiers: {', '.join(VERIFIERS)}.")
    return VERIFIERS[name](draws)
