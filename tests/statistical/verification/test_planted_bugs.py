"""Known mistakes of speculative sampling, planted one at a time: the suite's checks must see each."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from enumeration import ChainCase, Tokens, assert_exact, drawn_chains
from known_laws import alternating, fixed
from noise_checks import assert_independent_draws
from paceline.core.drafts import SparseLaw
from paceline.core.sampling_params import SamplingParams
from paceline.verification import block, draft_draw, draws, noise, walk
from paceline.verification.draws import CounterDraws
from paceline.verification.law import TokenLaw, sparse_probabilities
from paceline.verification.noise import NoiseKey, Purpose, row_key
from paceline.verification.sampler_state import SamplerState
from paceline.verification.verifier import VerifyRow, make_verifier
from paceline.verification.walk import Walk
from planted_bugs import Check, Plant, fresh_draw_on_mismatch, remainder_at_the_draft_only, target_instead_of_residual
from sampled_laws import assert_sampled_law
from toy_target import hashed_law

SKEWED = fixed(0.6, 0.3, 0.1)
SPREAD = fixed(0.1, 0.1, 0.8)
CASE = ChainCase(3, 2, alternating(SKEWED, SPREAD), alternating(SPREAD, SKEWED))
TRUNCATED = replace(CASE, params=SamplingParams(top_k=2))
PENALISED = replace(CASE, params=SamplingParams(presence_penalty=1.5))
MILD = ChainCase(3, 3, hashed_law(3, scale=0.7, salt=4), hashed_law(3, scale=0.7, salt=5))
MUCH_REJECTED = ChainCase(2, 3, fixed(0.5, 0.5), fixed(0.8, 0.2))


def exact(verifier: str, case: ChainCase = CASE, **kwargs) -> Check:
    return lambda: assert_exact(verifier, case, **kwargs)


def sampled(verifier: str, case: ChainCase = MUCH_REJECTED) -> Check:
    return lambda: assert_sampled_law(verifier, case, num_samples=1500, length=4)


def residual_at_the_draft_only(patch: pytest.MonkeyPatch) -> None:
    """In `block` too, whose residual is its own."""

    def residual_law(self: block._Prefix) -> TokenLaw:
        if not self.draft:
            return self.law
        left = self.weight * self.law.probabilities_of(self.draft.support)
        slot = self.draft.slots[0]
        left[slot] = (left[slot] - self.draft_probs[slot]).clamp(min=0.0)
        return self.law.reweighted(self.draft.support, left / self.weight)

    remainder_at_the_draft_only(patch)
    patch.setattr(block._Prefix, "residual_law", residual_law)


def unscaled_residual(patch: pytest.MonkeyPatch) -> None:
    original = block._Prefix.residual_law
    patch.setattr(block._Prefix, "residual_law", lambda self: original(self._replace(weight=1.0)))


def stop_at_first_failure(patch: pytest.MonkeyPatch) -> None:
    """`block` as if its tests were those of `rejection`: shorter prefixes veto longer ones."""
    original, failed = block.passes, []

    def passes(prefix: block._Prefix, chance: draws.Draws, walk: Walk, length: int) -> bool:
        if length == 1:
            failed.clear()
        if not original(prefix, chance, walk, length):
            failed.append(length)
        return not failed

    patch.setattr(block, "passes", passes)


def one_uniform_for_all_positions(patch: pytest.MonkeyPatch) -> None:
    original = CounterDraws.accept
    patch.setattr(
        CounterDraws,
        "accept",
        lambda self, weight, against, key, **_: original(self, weight, against, replace(key, position=0)),
    )


def unwarped_bonus(patch: pytest.MonkeyPatch) -> None:
    """The token after the last draft comes from the plain softmax."""
    original = walk.target_laws

    def laws(logits, states) -> list[TokenLaw]:
        return [
            TokenLaw(row) if state.num_output == CASE.depth else original([row], [state])[0]
            for row, state in zip(logits, states, strict=True)
        ]

    patch.setattr(walk, "target_laws", laws)


def penalties_on_committed_tokens_only(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(SamplerState, "output_counts", lambda self: {})


def accept_at_zero(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        CounterDraws,
        "accept",
        lambda self, weight, against, key, **_: draws.uniform(key) * against <= weight,
    )


def _key_without(patch: pytest.MonkeyPatch, **dropped: object) -> None:
    for module in (noise, draws, draft_draw):
        patch.setattr(module, "row_key", lambda key: row_key(replace(key, **dropped)))


def no_purpose_in_the_key(patch: pytest.MonkeyPatch) -> None:
    _key_without(patch, purpose=Purpose.TARGET)


def no_round_in_the_key(patch: pytest.MonkeyPatch) -> None:
    _key_without(patch, round_start=0)


def keyed_by_output_index(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(SamplerState, "position", SamplerState.num_output)


def drop_unlikely_drafts(case: ChainCase) -> Iterator[tuple[float, Tokens, tuple[SparseLaw, ...]]]:
    """Cuts the chain before a draft because of the value that was drawn."""
    for chance, drafts, laws in drawn_chains(case):
        kept = 0
        while kept < len(drafts):
            ids, probabilities = sparse_probabilities(laws[kept])
            if probabilities[ids.tolist().index(drafts[kept])] < 0.2:
                break
            kept += 1
        yield chance, drafts[:kept], laws[:kept]


def assert_zero_is_never_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Raise AssertionError if weight 0 passes against a uniform of 0."""
    with monkeypatch.context() as patch:
        patch.setattr(draws, "uniform", lambda key, index=0: 0.0)
        assert not CounterDraws().accept(0.0, 1.0, NoiseKey(0, 0, 0, Purpose.ACCEPT))


def assert_same_after_resume() -> None:
    """Raise AssertionError if noise depends on where the prompt is said to end."""
    logits = fixed(0.4, 0.3, 0.3)(())
    for seed in range(20):
        whole = SamplerState(SamplingParams(), prompt_token_ids=(0, 1), eos_token_ids=(), seed=seed)
        whole.commit((2, 0, 1))
        resumed = SamplerState(SamplingParams(), prompt_token_ids=(0, 1, 2, 0, 1), eos_token_ids=(), seed=seed)
        verifier = make_verifier("coupled")
        one, other = verifier.sample([VerifyRow(state, logits[None, :], None) for state in (whole, resumed)])
        assert one == other, f"seed {seed}"


BUGS: dict[str, tuple[Plant, Check]] = {
    "rejection draws from p instead of the residual": (target_instead_of_residual, exact("rejection")),
    "block draws from p instead of the residual": (target_instead_of_residual, exact("block")),
    "rejection takes q from the rejected draft only": (residual_at_the_draft_only, exact("rejection")),
    "block takes q from the rejected draft only": (residual_at_the_draft_only, exact("block")),
    "block's residual is not scaled by the prefix weight": (unscaled_residual, exact("block", MILD)),
    "block stops at the first failed test": (stop_at_first_failure, exact("block")),
    "coupled draws afresh on a mismatch": (fresh_draw_on_mismatch, exact("coupled")),
    "one uniform for all positions, rejection": (one_uniform_for_all_positions, sampled("rejection")),
    "one uniform for all positions, block": (one_uniform_for_all_positions, sampled("block")),
    "un-warped bonus, coupled": (unwarped_bonus, exact("coupled", TRUNCATED)),
    "un-warped bonus, rejection": (unwarped_bonus, exact("rejection", TRUNCATED)),
    "un-warped bonus, block": (unwarped_bonus, exact("block", TRUNCATED)),
    "penalties on committed tokens only": (penalties_on_committed_tokens_only, exact("coupled", PENALISED)),
    "no purpose in the noise key, by columns": (no_purpose_in_the_key, assert_independent_draws),
    "no purpose in the noise key, by answers": (no_purpose_in_the_key, sampled("rejection")),
    "no round in the noise key, by columns": (no_round_in_the_key, assert_independent_draws),
    "no round in the noise key, by answers": (no_round_in_the_key, sampled("block")),
    "noise keyed by output index": (keyed_by_output_index, assert_same_after_resume),
}


@pytest.mark.parametrize("bug", BUGS)
def test_planted_bug_is_seen(bug: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the bug in place the check fails; the bug-free code passes the same check elsewhere."""
    plant, check = BUGS[bug]
    plant(monkeypatch)

    with pytest.raises(AssertionError):
        check()


@pytest.mark.parametrize("verifier", ["coupled", "rejection", "block"])
@pytest.mark.parametrize("case", [CASE, MILD, TRUNCATED, PENALISED], ids=["plain", "mild", "truncated", "penalised"])
def test_checks_pass_without_bugs(verifier: str, case: ChainCase) -> None:
    """The cases that reveal the bugs pass on the code as it is."""
    assert_exact(verifier, case)


def test_resume_check_passes_without_bugs() -> None:
    """A choice resumed from prompt plus committed tokens draws what it would have drawn."""
    assert_same_after_resume()


def test_strict_acceptance(monkeypatch: pytest.MonkeyPatch) -> None:
    """A draft that the target forbids is never accepted; the non-strict comparison is seen."""
    assert_zero_is_never_accepted(monkeypatch)
    accept_at_zero(monkeypatch)

    with pytest.raises(AssertionError):
        assert_zero_is_never_accepted(monkeypatch)


@pytest.mark.parametrize("verifier", ["rejection", "block"])
def test_dropping_drawn_drafts_is_seen(verifier: str) -> None:
    """A drafter that drops a draft for its value biases the rules that test against q; coupled is immune."""
    with pytest.raises(AssertionError):
        assert_exact(verifier, CASE, chains=drop_unlikely_drafts)

    assert_exact("coupled", CASE, chains=drop_unlikely_drafts)


def test_the_key_names_everything() -> None:
    """Every field of the key changes the noise."""
    key = NoiseKey(5, 1, 9, Purpose.ACCEPT, 7)
    changed = [
        replace(key, seed=6),
        replace(key, choice=2),
        replace(key, position=10),
        replace(key, purpose=Purpose.DRAFT),
        replace(key, round_start=8),
    ]

    assert len({row_key(other) for other in (key, *changed)}) == 6
