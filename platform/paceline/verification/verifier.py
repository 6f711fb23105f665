"""The verifiers by name, and the walk that they share."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Protocol

from paceline.core.drafts import DrawRule
from paceline.errors import ConfigError, EngineFailedError
from paceline.verification import block, coupled, rejection
from paceline.verification.draws import Draws, counter_draws
from paceline.verification.noise import Purpose
from paceline.verification.rows import ChainRule, Verdict, VerifyRow
from paceline.verification.sampler_state import SamplerState
from paceline.verification.sampling import target_law

__all__ = ["VERIFIERS", "DrawsFactory", "Verdict", "Verifier", "VerifyRow", "make_verifier"]

DrawsFactory = Callable[[SamplerState], Draws]
"""Chance for one row, given its state at the start of the round."""


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
        for a proposal that is not a chain, and where logits and drafts differ in number.
        """

    def sample(self, rows: Sequence[VerifyRow]) -> list[Verdict]:
        """Plain decoding: one token per row from its first logits."""


@dataclass(frozen=True, slots=True)
class ChainVerifier:
    """A chain rule with its name and its chance."""

    name: str
    draw_rule: DrawRule
    seed_invariant: bool
    rule: ChainRule
    draws: DrawsFactory = counter_draws

    def verify(self, rows: Sequence[VerifyRow]) -> list[Verdict]:
        """See `Verifier.verify`."""
        return [self._verify_row(row) if row.draft_token_ids else self._sample_row(row) for row in rows]

    def sample(self, rows: Sequence[VerifyRow]) -> list[Verdict]:
        """See `Verifier.sample`."""
        return [self._sample_row(row) for row in rows]

    def _verify_row(self, row: VerifyRow) -> Verdict:
        _check_chain(row)
        draws = self.draws(row.state)
        with row.state.walk():
            return self.rule(row, draws)

    def _sample_row(self, row: VerifyRow) -> Verdict:
        law = target_law(row.logits[0], row.state)
        token_id = self.draws(row.state).sample(law, row.state.position, Purpose.TARGET)
        return Verdict((token_id,), accepted=0, tested=0)


def _check_chain(row: VerifyRow) -> None:
    if row.proposal is not None and not row.proposal.tree.is_chain:
        raise EngineFailedError("this verifier takes chains, and a proposal is a tree")
    if row.logits.shape[0] != 1 + len(row.draft_token_ids):
        raise EngineFailedError(f"{row.logits.shape[0]} rows of logits for {len(row.draft_token_ids)} drafts")


def _coupled(draws: DrawsFactory) -> Verifier:
    return ChainVerifier("coupled", DrawRule.COUPLED, True, coupled.verify_chain, draws)


def _rejection(draws: DrawsFactory) -> Verifier:
    return ChainVerifier("rejection", DrawRule.INDEPENDENT, False, rejection.verify_chain, draws)


def _block(draws: DrawsFactory) -> Verifier:
    return ChainVerifier("block", DrawRule.INDEPENDENT, False, block.verify_chain, draws)


VERIFIERS: Mapping[str, Callable[[DrawsFactory], Verifier]] = MappingProxyType(
    {"coupled": _coupled, "rejection": _rejection, "block": _block}
)


def make_verifier(name: str, *, draws: DrawsFactory = counter_draws) -> Verifier:
    """The verifier called ``name``; ConfigError lists the known names."""
    if name not in VERIFIERS:
        raise ConfigError(f"There is no verifier '{name}'. Known verifiers: {', '.join(VERIFIERS)}.")
    return VERIFIERS[name](draws)
