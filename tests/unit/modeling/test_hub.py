import httpx
import pytest
from huggingface_hub.errors import (
    GatedRepoError,
    HFValidationError,
    LocalEntryNotFoundError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)

from paceline.errors import ModelUnavailableError
from paceline.modeling import hub

RESPONSE = httpx.Response(404, request=httpx.Request("GET", "http://hub.invalid"))


@pytest.mark.parametrize(
    ("error", "hint"),
    [
        (GatedRepoError("gated", response=RESPONSE), "HF_TOKEN"),
        (RepositoryNotFoundError("none", response=RESPONSE), "Check the id"),
        (RevisionNotFoundError("none", response=RESPONSE), "no revision 'v9'"),
        (HFValidationError("bad"), "form org/name"),
        (LocalEntryNotFoundError("offline"), "pass a folder"),
        (httpx.ConnectError("no route"), "pass a folder"),
    ],
)
def test_each_failure_says_what_to_do(monkeypatch, error, hint):
    """Gated, unknown, mistyped and offline are told apart."""

    def fail(*_, **__):
        raise error

    monkeypatch.setattr(hub, "snapshot_download", fail)
    with pytest.raises(ModelUnavailableError, match=hint):
        hub.fetch_from_hub("org/name", "v9")


def test_no_pickle_and_no_code_is_downloaded(monkeypatch, tmp_path):
    """The hub is asked for safetensors, JSON and text at the pinned revision, for nothing else."""
    asked = {}

    def download(hub_id, **options):
        asked.update(options, id=hub_id)
        return str(tmp_path)

    monkeypatch.setattr(hub, "snapshot_download", download)

    assert hub.fetch_from_hub("org/name", "abc") == tmp_path
    assert (asked["id"], asked["revision"]) == ("org/name", "abc")
    assert "*.safetensors" in asked["allow_patterns"]
    assert not {"*.bin", "*.pt", "*.py", "*"} & set(asked["allow_patterns"])


def test_the_hubs_own_cache_is_looked_at_without_the_network(monkeypatch, tmp_path):
    """A folder that is there is found by id and revision; nothing else is, and no id of another form raises."""
    kept = {("org/name", "v1"): str(tmp_path / "config.json")}
    monkeypatch.setattr(
        hub, "try_to_load_from_cache", lambda hub_id, _, *, revision: kept.get((hub_id, revision), object())
    )

    assert hub.cached_from_hub("org/name", "v1") == tmp_path
    assert hub.cached_from_hub("org/name", "v2") is None
    monkeypatch.undo()
    assert hub.cached_from_hub("a--b/../c") is None
