"""The law of whole answers, drawn with the noise that serves."""

import pytest

from enumeration import ChainCase
from known_laws import fixed
from paceline.core.sampling_params import SamplingParams
from sampled_laws import assert_sampled_law
from toy_target import hashed_law

# Many rejections with long chains: later tests are seen, fail, and are made again in the next round.
MUCH_REJECTED = ChainCase(2, 3, fixed(0.5, 0.5), fixed(0.8, 0.2))
RANDOM = ChainCase(3, 3, hashed_law(3, salt=10), hashed_law(3, salt=11), SamplingParams(top_p=0.95))


@pytest.mark.parametrize("verifier", ["coupled", "rejection", "block"])
@pytest.mark.parametrize("case", [MUCH_REJECTED, RANDOM], ids=["much rejected", "random"])
def test_answers_follow_the_target(verifier: str, case: ChainCase) -> None:
    """Over seeds, answers of several rounds have the target's law: no noise is used twice."""
    assert_sampled_law(verifier, case, num_samples=1000, length=4)


@pytest.mark.parametrize("verifier", ["coupled", "rejection", "block"])
@pytest.mark.parametrize("case", [MUCH_REJECTED, RANDOM], ids=["much rejected", "random"])
def test_answers_with_trees_follow_the_target(verifier: str, case: ChainCase) -> None:
    """The same with trees of two drafts at each of two levels, drawn as drafters draw them."""
    assert_sampled_law(verifier, case, num_samples=600, length=4, shape=(-1, -1, 0, 0, 1, 1))
