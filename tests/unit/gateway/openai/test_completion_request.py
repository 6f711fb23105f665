import pytest

from paceline.errors import InvalidRequestError, UnsupportedFeatureError
from paceline.gateway.openai.completion_request import CompletionRequest


def _request(prompt, **fields):
    return CompletionRequest.model_validate({"prompt": prompt} | fields).to_gateway_request()


@pytest.mark.parametrize(
    ("prompt", "meant"), [("ab", "ab"), (["ab"], "ab"), ([1, 2], (1, 2)), ([[1, 2]], (1, 2)), ([7], (7,))]
)
def test_a_prompt_has_four_spellings(prompt, meant):
    """Text, ids, and a list with one of either."""
    assert _request(prompt).prompt == meant


@pytest.mark.parametrize("prompt", [["a", "b"], [[1], [2]]])
def test_several_prompts_are_refused(prompt):
    """One request is one prompt, and the error says so."""
    with pytest.raises(UnsupportedFeatureError) as caught:
        _request(prompt)
    assert caught.value.param == "prompt"


def test_an_empty_list_is_refused():
    """Nothing to continue."""
    with pytest.raises(InvalidRequestError, match="empty"):
        _request([])


def test_the_default_limit_is_openais():
    """16 tokens, for this endpoint only; 0 is not unset."""
    assert _request("a").max_tokens == 16
    assert _request("a", max_tokens=0).max_tokens == 0
