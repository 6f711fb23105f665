from pathlib import Path

import pytest

from paceline.config.load import config_from_mapping, load_config
from paceline.errors import ConfigError


def _load(tmp_path: Path, text: str):
    path = tmp_path / "c.yaml"
    path.write_text(text, encoding="utf-8")
    return load_config(path)


def test_empty_file_gives_the_defaults(tmp_path):
    """Every key has a default, so an empty file is a valid configuration."""
    assert _load(tmp_path, "") == config_from_mapping({})


def test_values_of_the_file_are_used(tmp_path):
    """Nested values and drafter groups reach the record."""
    config = _load(
        tmp_path,
        "verifier: block\nengine: {max_running: 3}\ndrafters:\n  ngram: {method: ngram, place: in_process}\n",
    )

    assert config.verifier == "block"
    assert config.engine.max_running == 3
    assert config.drafters["ngram"].place == "in_process"


def test_every_mistake_is_listed_with_its_path(tmp_path):
    """All mistakes come in one message: path of the field, what is wrong, and the value."""
    with pytest.raises(ConfigError) as caught:
        _load(
            tmp_path,
            "engine: {page_size: 0, max_runing: 3}\ngateway: {http_port: http}\n"
            "drafters: {x: {method: ngram, model: y}}",
        )

    message = str(caught.value)
    assert "has 4 mistakes" in message
    assert "  engine.page_size: Input should be greater than or equal to 1, got 0" in message
    assert "  engine.max_runing: unknown key; did you mean 'max_running'?" in message
    assert "  gateway.http_port: Input should be a valid integer" in message
    assert "  drafters.x: a group of method ngram has no model" in message


@pytest.mark.parametrize(
    ("mapping", "path", "hint"),
    [
        ({"verifer": "block"}, "verifer", "did you mean 'verifier'?"),
        ({"drafters": {"a": {"method": "ngram", "replica": 2}}}, "drafters.a.replica", "did you mean 'replicas'?"),
        ({"drafters": {"a": {"method": "n-gram"}}}, "drafters.a.method", "did you mean 'ngram'?"),
        ({"model": {"dtype": "bf16"}}, "model.dtype", "did you mean 'bfloat16'?"),
        ({"peer": {"zzz": 1}}, "peer.zzz", "known keys: port_min, port_max"),
        ({"engine": None}, "engine", "remove the key"),
        ({"drafters": {"a": {}}}, "drafters.a.method", "required"),
        ({"drafters": {"A b": {"method": "ngram"}}}, "configuration", "lower-case"),
        ({"peer": {"port_min": 3000, "port_max": 2000}}, "peer", "port_min must not exceed port_max"),
    ],
)
def test_a_mistake_comes_with_a_hint(mapping, path, hint):
    """A near miss names the key or value that was meant; other mistakes name what is possible."""
    with pytest.raises(ConfigError) as caught:
        config_from_mapping(mapping)

    line = str(caught.value).splitlines()[1]
    assert line.startswith(f"  {path}: ")
    assert hint in line


def test_a_repeated_key_is_refused(tmp_path):
    """YAML keeps the last of two equal keys without a word; here the line is named."""
    with pytest.raises(ConfigError, match=r"'engine' stands twice, again in line 3"):
        _load(tmp_path, "engine: {page_size: 4}\nverifier: block\nengine: {page_size: 8}\n")


@pytest.mark.parametrize(
    ("content", "match"),
    [
        (b"a: [1, 2", "line 1"),
        (b"- a\n- b\n", "key: value"),
        (b"just text", "key: value"),
        (b"\xff\xfe\x00", "UTF-8"),
        (b"model: !!python/object/apply:os.getcwd []", "not valid YAML"),
        (b"? [a, b]\n: 1\n", "not valid YAML"),
    ],
)
def test_files_that_are_no_configuration_are_refused(tmp_path, content, match):
    """Broken YAML, lists, plain text, other encodings and object tags end in a ConfigError."""
    path = tmp_path / "bad.yaml"
    path.write_bytes(content)

    with pytest.raises(ConfigError, match=match):
        load_config(path)


def test_a_missing_file_and_a_folder_are_named(tmp_path):
    """A path that cannot be read is named in the error."""
    with pytest.raises(ConfigError, match="no file"):
        load_config(tmp_path / "absent.yaml")
    with pytest.raises(ConfigError, match="cannot be read"):
        load_config(tmp_path)


def test_model_folders_beside_the_file_are_found_from_anywhere(tmp_path, monkeypatch):
    """A relative folder that lies beside the file means that one; names, ids and other folders stay as written."""
    for name in ("models/target", "draft"):
        (tmp_path / "deploy" / name).mkdir(parents=True)
        (tmp_path / "deploy" / name / "config.json").write_text("{}")
    (tmp_path / "deploy" / "org" / "empty").mkdir(parents=True)
    file = tmp_path / "deploy" / "mine.yaml"
    file.write_text(
        "model: {source: models/target}\n"
        "drafters:\n"
        "  near: {method: draft_model, model: ./draft}\n"
        "  hub: {method: draft_model, model: org/empty}\n"
        "  known: {method: draft_model, model: smollm2-135m}\n"
        "  words: {method: ngram}\n"
    )
    monkeypatch.chdir(tmp_path)

    config = load_config(Path("deploy/mine.yaml"))

    assert Path(config.model.source) == tmp_path / "deploy" / "models" / "target"
    assert config.model.served_name == "target"
    assert Path(config.drafters["near"].model) == tmp_path / "deploy" / "draft"
    assert [config.drafters[name].model for name in ("hub", "known", "words")] == ["org/empty", "smollm2-135m", None]
