import pytest

from paceline.config import locate
from paceline.errors import ModelUnavailableError
from paceline.modeling import resolve


@pytest.fixture(autouse=True)
def _fakes(monkeypatch, tmp_path):
    monkeypatch.setattr(resolve, "fetch_model", lambda entry, progress: f"fetched {entry.name}")
    monkeypatch.setattr(resolve, "fetch_from_hub", lambda hub_id, revision: f"hub {hub_id}@{revision}")
    monkeypatch.chdir(tmp_path)


def test_names_folders_and_hub_ids_are_told_apart(tmp_path):
    """A known name is fetched, a folder is used as it is, org/name is asked from the hub."""
    folder = tmp_path / "org" / "local"
    folder.mkdir(parents=True)
    (folder / "config.json").touch()

    assert resolve.resolve_model("smollm2-135m") == "fetched smollm2-135m"
    assert resolve.resolve_model(str(folder)) == folder
    assert resolve.resolve_model("org/local") == folder
    assert resolve.resolve_model("org/name", "abc") == "hub org/name@abc"


def test_a_drafter_that_ships_goes_before_the_hub(tmp_path, monkeypatch):
    """`smollm2-135m/eagle` is no hub id where a folder of that name ships; a folder of one's own goes first."""
    shipped = tmp_path / "shipped"
    for name in ("demo/eagle", "demo/data"):
        (shipped / name).mkdir(parents=True)
    (shipped / "demo/eagle/config.json").touch()
    monkeypatch.setattr(locate, "_shipped_folder", lambda _: shipped)

    assert resolve.resolve_model("demo/eagle") == shipped / "demo/eagle"
    assert resolve.resolve_model("demo/data") == "hub demo/data@None"
    own = tmp_path / "demo" / "eagle"
    own.mkdir(parents=True)
    (own / "config.json").touch()
    assert resolve.resolve_model("demo/eagle") == own


def test_what_is_here_is_found_without_a_download(tmp_path, monkeypatch):
    """Each kind of name, and None for what would have to be fetched."""
    monkeypatch.setattr(resolve, "cached_model", lambda entry: f"cached {entry.name}")
    monkeypatch.setattr(resolve, "cached_from_hub", lambda hub_id, revision: f"cached {hub_id}@{revision}")
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "config.json").touch()

    assert resolve.find_model("smollm2-135m") == "cached smollm2-135m"
    assert resolve.find_model("own") == tmp_path / "own"
    assert resolve.find_model("org/name", "abc") == "cached org/name@abc"
    assert resolve.find_model("/nothing/here") is None


@pytest.mark.parametrize(
    ("source", "revision", "hint"),
    [
        ("nothing", None, "smollm2-135m"),
        ("./nothing", None, "no folder"),
        ("/nothing/here", None, "no folder"),
        ("a/b/c", None, "hub id such as org/name"),
        ("smollm2-135m", "main", "fixed revision"),
        (".", None, r"config\.json"),
    ],
)
def test_what_cannot_be_a_model_is_refused_with_a_hint(source, revision, hint):
    """Typing errors do not end in a network call."""
    with pytest.raises(ModelUnavailableError, match=hint):
        resolve.resolve_model(source, revision)
