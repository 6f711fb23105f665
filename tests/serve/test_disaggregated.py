"""Several targets, gateways and drafter groups, as shipped, and one group that does not fit."""

import json
import signal
import subprocess
import sys
import time

import httpx
import pytest
import yaml

from paceline.config.load import load_config
from paceline.config.locate import find_config
from paceline_serve.ports import free_port
from tiny_models import save_tiny_model
from tiny_tokenizers import byte_level

pytestmark = [pytest.mark.serve, pytest.mark.model, pytest.mark.full, pytest.mark.timeout(500)]

_PACELINE = [sys.executable, "-c", "from paceline.cli.main import main; main()"]


@pytest.fixture(scope="module")
def url(tmp_path_factory):
    """REST address of the shipped deployment with a group "foreign" whose model has another vocabulary."""
    folder = tmp_path_factory.mktemp("foreign")
    save_tiny_model(folder, vocab_size=320, max_position_embeddings=8192)
    byte_level().save_pretrained(folder)
    config = load_config(find_config("disaggregated")).model_dump(exclude_unset=True)
    config["drafters"]["foreign"] = {"method": "draft_model", "place": "remote", "model": str(folder)}
    file = folder / "deployment.yaml"
    file.write_text(yaml.safe_dump(config))
    ports = ["--http-port", str(free_port("127.0.0.1")), "--grpc-port", str(free_port("127.0.0.1"))]
    with subprocess.Popen([*_PACELINE, "serve", str(file), "--json", *ports], stdout=subprocess.PIPE) as serving:
        found = json.loads(serving.stdout.readline())["http"]
        try:
            yield found
        finally:
            serving.send_signal(signal.SIGINT)
            serving.communicate(timeout=90)
    assert serving.returncode == 0


def _groups(url: str) -> dict[str, dict]:
    (model,) = httpx.get(f"{url}/v1/models", timeout=10).json()["data"]
    return {group["name"]: group for group in model["paceline"]["drafter_groups"]}


def _ask(url: str, **speculation) -> dict:
    body = {"prompt": "One, two, three, four,", "max_tokens": 16, "temperature": 0, "speculation": speculation}
    response = httpx.post(f"{url}/v1/completions", json=body, timeout=60)
    response.raise_for_status()
    return response.json()


def test_every_group_is_listed_and_the_one_that_does_not_fit_says_why(url):
    """Groups that fit become live; the refusal of the other names the field in which it differs."""
    give_up_at = time.monotonic() + 60
    while not all(_groups(url).get(name, {}).get("live") for name in ("ngram", "draft-model")):
        assert time.monotonic() < give_up_at, _groups(url)
        time.sleep(0.5)
    groups = _groups(url)

    assert set(groups) == {"ngram", "draft-model", "foreign"}
    assert not groups["foreign"]["live"]
    assert "vocabulary.size" in groups["foreign"]["detail"]


def test_a_remote_draft_model_drafts(url):
    """A request that names the group is drafted by it, and has the text that plain decoding has.

    Where other work keeps the cores, drafts of a short answer may all come too late, so it is asked for again.
    """
    plain = _ask(url, mode="off")
    give_up_at = time.monotonic() + 120
    accepted = 0
    while not accepted:
        assert time.monotonic() < give_up_at, "no draft has been accepted"
        drafted = _ask(url, mode="on", drafter="draft-model")
        accepted = drafted["usage"]["completion_tokens_details"]["accepted_prediction_tokens"]

        assert drafted["choices"][0]["text"] == plain["choices"][0]["text"]
        assert drafted["paceline"]["drafter"] == "draft-model"


def test_a_group_that_does_not_fit_costs_its_requests_the_speed_only(url):
    """Whoever asks for it gets the same text, decoded plainly."""
    answer = _ask(url, mode="on", drafter="foreign")

    assert answer["paceline"]["route"] == "plain"
    assert answer["choices"][0]["text"] == _ask(url, mode="off")["choices"][0]["text"]
