"""Both public doors of a running platform."""

import grpc
import httpx
import openai
import pytest

from paceline.v1 import common_pb2, generation_pb2, generation_pb2_grpc

pytestmark = [pytest.mark.serve, pytest.mark.model, pytest.mark.timeout(300)]

_COPY = "Copy this list exactly: red, green, blue, red, green, blue, red, green, blue."


def _generate(address: str, **speculation) -> list[generation_pb2.GenerateResponse]:
    request = generation_pb2.GenerateRequest(
        conversation=generation_pb2.Conversation(messages=[generation_pb2.Message(role="user", content=_COPY)]),
        sampling=common_pb2.SamplingParams(temperature=0.0, max_tokens=24),
        speculation=generation_pb2.Speculation(**speculation),
    )
    with grpc.insecure_channel(address) as channel:
        return list(generation_pb2_grpc.GenerationServiceStub(channel).Generate(request, timeout=60))


def _ids(messages) -> list[int]:
    return [token for message in messages for chunk in message.chunks for token in chunk.token_ids]


def test_a_chat_reads_the_same_with_speculation_on_and_off(platform):
    """The same question gets the same text on both routes, and the answer says which it took."""
    plain = platform.chat(_COPY, speculation={"mode": "off"})
    speculative = platform.chat(_COPY, speculation={"mode": "on"})

    assert plain["choices"] == speculative["choices"]
    assert (plain["paceline"]["route"], speculative["paceline"]["route"]) == ("plain", "speculative")
    assert speculative["paceline"]["tau"] > 1 == plain["paceline"]["tau"]
    assert plain["system_fingerprint"] == speculative["system_fingerprint"]


def test_a_sampled_answer_depends_on_its_seed_only(platform):
    """At temperature 1 the seed fixes the text on every route."""
    fields = {"temperature": 1.0, "seed": 11, "max_tokens": 24}

    plain = platform.chat(_COPY, speculation={"mode": "off"}, **fields)
    speculative = platform.chat(_COPY, speculation={"mode": "on"}, **fields)

    assert plain["choices"][0]["message"] == speculative["choices"][0]["message"]


def test_answers_without_a_seed_differ(platform):
    """Each request without a seed draws one of its own, also when nothing else is going on."""
    fields = {"temperature": 1.0, "max_tokens": 12}
    texts = [platform.chat("Write a sentence.", **fields)["choices"][0]["message"]["content"] for _ in range(6)]

    assert len(set(texts)) > 1


def test_several_choices_are_each_what_they_would_be_alone(platform):
    """Choice 0 of a seed is the answer without `n`; the prompt is counted once, streamed or not."""
    fields = {"temperature": 1.0, "seed": 5, "max_tokens": 16, "speculation": {"mode": "on"}}
    one, two = (platform.chat(_COPY, **fields, n=n) for n in (1, 2))
    texts = [choice["message"]["content"] for choice in two["choices"]]

    assert texts[0] == one["choices"][0]["message"]["content"]
    assert texts[1] != texts[0]
    assert two["usage"]["prompt_tokens"] == one["usage"]["prompt_tokens"]
    assert two["usage"]["completion_tokens"] > one["usage"]["completion_tokens"]


def test_the_official_client_streams_a_chat(platform):
    """The openai package works unmodified: pieces of text, a finish reason, usage at the end."""
    with openai.OpenAI(base_url=f"{platform.url}/v1", api_key="none") as client:
        chunks = list(
            client.chat.completions.create(
                model="smollm2-135m",
                messages=[{"role": "user", "content": _COPY}],
                temperature=0,
                max_tokens=24,
                stream=True,
                stream_options={"include_usage": True},
            )
        )
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)

    assert text == platform.chat(_COPY, max_tokens=24)["choices"][0]["message"]["content"]
    assert chunks[-1].usage.completion_tokens == 24
    assert [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices][-1] == "length"


def test_grpc_streams_the_same_ids_on_both_routes(platform):
    """A plain grpcio client gets the same token ids with speculation off and on."""
    plain = _generate(platform.grpc_address, mode=generation_pb2.SPECULATION_MODE_OFF)
    speculative = _generate(platform.grpc_address, mode=generation_pb2.SPECULATION_MODE_ON)

    assert _ids(plain) == _ids(speculative)
    assert len(_ids(plain)) == 24
    assert speculative[-1].summary.route == "speculative"
    assert speculative[-1].summary.accepted_prediction_token_count > 0


def test_both_doors_give_the_same_ids(platform):
    """The same conversation has the same tokens over REST, as explain shows them, and over gRPC."""
    answer = platform.chat(_COPY, max_tokens=24, explain=True, speculation={"mode": "on"})
    messages = _generate(platform.grpc_address, mode=generation_pb2.SPECULATION_MODE_ON)
    (rounds,) = answer["paceline"]["rounds"]
    over_rest = []
    for each in rounds:
        over_rest += [token["id"] for token in each["drafted"][: each["accepted"]]]
        over_rest += [each["target_token"]["id"]] if each["target_token"] else []

    assert over_rest == _ids(messages)
    text = "".join(chunk.text for message in messages for chunk in message.chunks)
    assert text == answer["choices"][0]["message"]["content"]


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/models"])
def test_a_request_id_comes_back_once(platform, path):
    """Ray Serve's proxy returns the client's x-request-id; a second one would confuse whoever reads it."""
    headers = {"x-request-id": "label-of-the-test"}
    if path == "/v1/models":
        response = httpx.get(f"{platform.url}{path}", headers=headers, timeout=30)
    else:
        body = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 1}
        response = httpx.post(f"{platform.url}{path}", json=body, headers=headers, timeout=30)

    assert response.headers.get_list("x-request-id") == ["label-of-the-test"]


def test_grpc_errors_carry_their_code_and_reason(platform):
    """A group that is not deployed is NOT_FOUND, with the stable reason first in the details."""
    with pytest.raises(grpc.RpcError) as refused:
        _generate(platform.grpc_address, drafter="nobody")

    assert refused.value.code() is grpc.StatusCode.NOT_FOUND
    assert refused.value.details().startswith("DRAFTER_GROUP_NOT_FOUND: ")


def test_a_cancelled_grpc_call_frees_its_place(platform):
    """After the client's cancel the target neither runs nor holds anything."""
    request = generation_pb2.GenerateRequest(
        prompt="Count: one, two, three,",
        sampling=common_pb2.SamplingParams(temperature=0.0, max_tokens=2000, ignore_eos=True),
    )
    with grpc.insecure_channel(platform.grpc_address) as channel:
        call = generation_pb2_grpc.GenerationServiceStub(channel).Generate(request, timeout=60)
        next(iter(call))
        assert platform.target_report().load.running == platform.target_slots() == 1
        call.cancel()

        def is_free():
            report = platform.target_report()
            return report.load.running == 0 and report.num_held == 0 and platform.target_slots() == 0

        platform.eventually(is_free, "no sequence, no hold, no slot", within_s=5)


def test_a_closed_http_connection_frees_its_place(platform):
    """A browser that goes away in mid-stream leaves nothing behind."""
    body = {"prompt": "Count: one, two,", "max_tokens": 2000, "temperature": 0, "ignore_eos": True, "stream": True}
    with httpx.stream("POST", f"{platform.url}/v1/completions", json=body, timeout=60) as response:
        next(response.iter_lines())

    def is_free():
        report = platform.target_report()
        return report.load.running == 0 and report.num_held == 0 and report.load.free_pages == report.load.total_pages

    platform.eventually(is_free, "no sequence, no hold, no page", within_s=5)


def test_bad_input_is_refused_before_the_first_byte(platform):
    """What is out of range answers 400 in OpenAI's shape, also where a stream was asked for."""
    body = {"messages": [{"role": "user", "content": "Hi"}], "temperature": 3, "stream": True}

    response = httpx.post(f"{platform.url}/v1/chat/completions", json=body, timeout=30)

    assert response.status_code == 400
    assert response.json()["error"]["param"] == "temperature"


def test_the_model_list_names_the_drafter_groups(platform):
    """GET /v1/models shows the served model and which groups can draft for it."""
    (model,) = httpx.get(f"{platform.url}/v1/models", timeout=30).json()["data"]

    assert model["id"] == "smollm2-135m"
    assert [(group["name"], group["live"]) for group in model["paceline"]["drafter_groups"]] == [("ngram", True)]
