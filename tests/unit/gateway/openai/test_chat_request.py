import pytest

from paceline.core.priority import Priority
from paceline.errors import InvalidRequestError, UnsupportedFeatureError
from paceline.gateway.openai.chat_request import ChatCompletionRequest

USER = {"role": "user", "content": "hi"}


def _request(**fields):
    return ChatCompletionRequest.model_validate({"messages": [USER]} | fields).to_gateway_request()


def test_text_parts_are_joined():
    """A message in parts reads like one text."""
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    assert _request(messages=[{"role": "user", "content": parts}]).prompt[0].content == "ab"


@pytest.mark.parametrize("kind", ["image_url", "input_audio", "file", "refusal", None])
def test_other_parts_are_refused_by_place(kind):
    """An image in the second message's first part is named there."""
    message = {"role": "user", "content": [{"type": kind}]}
    with pytest.raises(UnsupportedFeatureError) as caught:
        _request(messages=[USER, message])
    assert caught.value.param == "messages[1].content[0].type"


@pytest.mark.parametrize("field", ["tool_calls", "annotations"])
def test_tool_calls_of_earlier_answers_are_refused(field):
    """What would not be rendered is not dropped; an empty list is nothing."""
    with pytest.raises(UnsupportedFeatureError, match=field):
        _request(messages=[{"role": "assistant", "content": "x", field: [{"id": "1"}]}])
    assert _request(messages=[{"role": "assistant", "content": "x", field: []}])


def test_tool_results_keep_their_call_id():
    """A tool message reaches the template with the id of its call."""
    message = _request(messages=[USER, {"role": "tool", "content": "42", "tool_call_id": "c1"}]).prompt[1]
    assert (message.role, message.content, message.tool_call_id) == ("tool", "42", "c1")


def test_a_developer_is_a_system():
    """The newer role name reaches templates as the one that they know."""
    assert _request(messages=[{"role": "developer", "content": "x"}, USER]).prompt[0].role == "system"


def test_a_message_without_content_is_refused():
    """null content is an error at its place."""
    with pytest.raises(InvalidRequestError) as caught:
        _request(messages=[{"role": "user", "content": None}])
    assert caught.value.param == "messages[0].content"


def test_both_names_of_the_limit_work():
    """max_completion_tokens and max_tokens mean the same; only a contradiction is refused."""
    assert _request(max_tokens=8).max_tokens == 8
    assert _request(max_completion_tokens=9).max_tokens == 9
    assert _request(max_tokens=8, max_completion_tokens=8).max_tokens == 8
    with pytest.raises(InvalidRequestError, match="contradict"):
        _request(max_tokens=8, max_completion_tokens=9)


@pytest.mark.parametrize(("word", "priority"), [("high", 0), ("normal", 1), ("low", 2)])
def test_a_priority_is_one_of_three_words(word, priority):
    """Without one a request is as most are."""
    assert _request(priority=word).priority == priority
    assert _request().priority == Priority.NORMAL


def test_top_logprobs_needs_logprobs():
    """Alternatives without the token's own logprob are a client's mistake."""
    with pytest.raises(InvalidRequestError) as caught:
        _request(top_logprobs=2)
    assert caught.value.param == "top_logprobs"
    assert _request(logprobs=True, top_logprobs=2).sampling.logprobs == 2
    assert _request(logprobs=True).sampling.logprobs == 0
    assert _request().sampling.logprobs is None
