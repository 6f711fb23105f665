"""Known mistakes on draft trees, planted one at a time: the suite's checks must see each."""

from dataclasses import replace

import pytest
import torch

from enumeration import ChainCase
from known_laws import alternating, fixed
from paceline.core.sampling_params import SamplingParams
from paceline.verification import rejection
from paceline.verification.draws import CounterDraws
from paceline.verification.rejection import Remainder
from paceline.verification.sampler_state import SamplerState
from paceline.verification.walk import LawAsk, Walk
from planted_bugs import Check, Plant, fresh_draw_on_mismatch, remainder_at_the_draft_only, target_instead_of_residual
from sampled_laws import assert_sampled_law
from tree_enumeration import Shape, TreeSource, assert_exact_tree, drawn_trees, trees_pruned_by_value

SKEWED, SPREAD = fixed(0.6, 0.3, 0.1), fixed(0.1, 0.1, 0.8)
TREE: Shape = (-1, -1, 0, 1)
CASE = ChainCase(3, 2, alternating(SKEWED, SPREAD), alternating(SPREAD, SKEWED))
PENALISED = replace(
    CASE, params=SamplingParams(presence_penalty=1.5, repetition_penalty=1.4), draft_params=SamplingParams()
)
MASKED = replace(
    CASE,
    params=SamplingParams(bad_words=((0, 1), (1, 1), (2, 0)), min_tokens=2),
    draft_params=SamplingParams(),
    eos=(2,),
)
# Of the ids that p has more of than q, the second test accepts one with 0.44 after the first has failed with 0.5.
TWO_TESTS = ChainCase(3, 2, fixed(0.3, 0.4, 0.3), fixed(0.6, 0.3, 0.1))


def exact(verifier: str, case: ChainCase = CASE, *, trees: TreeSource = drawn_trees) -> Check:
    return lambda: assert_exact_tree(verifier, case, TREE, trees=trees)


def siblings_against_the_unchanged_target(patch: pytest.MonkeyPatch) -> None:
    """Every sibling is tested against p itself; the residual is right."""
    original = Remainder.reject

    def weight(self: Remainder, slot: int) -> float:
        return float(self._law.probabilities_of(self._support)[slot])

    def reject(self: Remainder, draft_probs: torch.Tensor) -> None:
        original(self, draft_probs)
        self.mass = 1.0

    patch.setattr(Remainder, "weight", weight)
    patch.setattr(Remainder, "reject", reject)


def mass_is_not_renormalised(patch: pytest.MonkeyPatch) -> None:
    """The residual is tested as weights, not as a distribution."""
    original = Remainder.reject

    def reject(self: Remainder, draft_probs: torch.Tensor) -> None:
        original(self, draft_probs)
        self.mass = 1.0

    patch.setattr(Remainder, "reject", reject)


def draft_law_is_not_renormalised(patch: pytest.MonkeyPatch) -> None:
    def without(draft_probs: torch.Tensor, slot: int) -> torch.Tensor:
        left = draft_probs.clone()
        left[slot] = 0.0
        return left

    patch.setattr(rejection, "without", without)


def draft_law_keeps_the_rejected_sibling(patch: pytest.MonkeyPatch) -> None:
    """Draws without replacement, tested as if with it."""
    patch.setattr(rejection, "without", lambda draft_probs, slot: draft_probs)


def logits_by_depth(patch: pytest.MonkeyPatch) -> None:
    """Takes the row of logits that a chain would have at this depth."""

    def law(self: Walk):
        answer = yield LawAsk(self.row.logits[len(self.path)], self.row.state)
        return answer

    patch.setattr(Walk, "law", law)


def parent_not_in_the_prefix(patch: pytest.MonkeyPatch) -> None:
    """Penalties and masks look at committed tokens only; the position still counts."""
    patch.setattr(SamplerState, "output_counts", lambda self: {})
    patch.setattr(SamplerState, "seen_token_ids", lambda self: self._prompt_ids)


def siblings_in_the_prefix(patch: pytest.MonkeyPatch) -> None:
    """Penalties and masks see the siblings of a node's ancestors as well."""

    def descend(self: Walk, child: int) -> None:
        for sibling in self.row.tree.children(self.node):
            if sibling != child:
                self.row.state._counts[self.row.tree.token_ids[sibling]] += 1
        original(self, child)

    original = Walk.descend
    patch.setattr(Walk, "descend", descend)


def drafts_are_not_pushed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Walk, "descend", lambda self, child: self.path.append(child))


def one_uniform_for_all_siblings(patch: pytest.MonkeyPatch) -> None:
    original = CounterDraws.accept
    patch.setattr(CounterDraws, "accept", lambda *args, sibling: original(*args, sibling=0))


def no_bug(patch: pytest.MonkeyPatch) -> None:
    """The check brings its own mistake: a drafter that breaks the rules."""


def sampled_siblings() -> None:
    assert_sampled_law("rejection", TWO_TESTS, num_samples=1500, length=2, shape=(-1, -1, -1))


BUGS: dict[str, tuple[Plant, Check]] = {
    "takes q from the rejected draft only": (remainder_at_the_draft_only, exact("rejection")),
    "siblings against the unchanged target": (siblings_against_the_unchanged_target, exact("rejection")),
    "the residual is not renormalised between siblings": (mass_is_not_renormalised, exact("rejection")),
    "the draft law is not renormalised between siblings": (draft_law_is_not_renormalised, exact("rejection")),
    "the draft law keeps a rejected sibling": (draft_law_keeps_the_rejected_sibling, exact("rejection")),
    "draws from p instead of the residual": (target_instead_of_residual, exact("rejection")),
    "a tree pruned by drawn values": (no_bug, exact("rejection", trees=trees_pruned_by_value)),
    "coupled draws afresh on a mismatch": (fresh_draw_on_mismatch, exact("coupled")),
    "logits of the wrong node, coupled": (logits_by_depth, exact("coupled", PENALISED)),
    "logits of the wrong node, rejection": (logits_by_depth, exact("rejection", PENALISED)),
    "penalties on committed tokens only": (parent_not_in_the_prefix, exact("coupled", PENALISED)),
    "penalties see siblings, coupled": (siblings_in_the_prefix, exact("coupled", PENALISED)),
    "penalties see siblings, rejection": (siblings_in_the_prefix, exact("rejection", PENALISED)),
    "bad words do not reach into the tree": (drafts_are_not_pushed, exact("coupled", MASKED)),
    "min_tokens does not count drafts": (drafts_are_not_pushed, exact("rejection", MASKED)),
    "one uniform for all siblings": (one_uniform_for_all_siblings, sampled_siblings),
}


@pytest.mark.parametrize("bug", BUGS)
def test_planted_bug_is_seen(bug: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the bug in place the check fails; `test_checks_pass_without_bugs` passes the same checks without."""
    plant, check = BUGS[bug]
    plant(monkeypatch)

    with pytest.raises(AssertionError):
        check()


@pytest.mark.parametrize("verifier", ["coupled", "rejection", "block"])
@pytest.mark.parametrize("case", [CASE, PENALISED, MASKED], ids=["plain", "penalised", "masked"])
def test_checks_pass_without_bugs(verifier: str, case: ChainCase) -> None:
    """The cases that reveal the bugs pass on the code as it is: penalties, bad words and min_tokens over a path."""
    assert_exact_tree(verifier, case, TREE)


def test_sampled_check_passes_without_bugs() -> None:
    """Three siblings that are often rejected: the tests of one level are independent of each other."""
    sampled_siblings()


def test_pruning_by_value_does_not_hurt_coupled() -> None:
    """Under `coupled` a tree may be cut by anything: it decides nothing but speed."""
    assert_exact_tree("coupled", CASE, TREE, trees=trees_pruned_by_value)
