"""The default prompts."""

from collections import Counter

from paceline.bench.prompts import BenchPrompt, load_prompts


def test_the_default_prompts_cover_eight_kinds_of_work():
    """They ship with the package, and no kind is left out."""
    prompts = load_prompts()
    kinds = Counter(prompt.category for prompt in prompts)

    assert len(prompts) == 34
    assert set(kinds) == {"chat", "code", "math", "summary", "translate", "copy", "creative", "structured"}
    assert min(kinds.values()) >= 3


def test_another_file_can_be_named(tmp_path):
    """Blank lines are no prompts."""
    path = tmp_path / "own.jsonl"
    path.write_text('{"category": "chat", "prompt": "Hi"}\n\n')

    assert load_prompts(path) == (BenchPrompt("chat", "Hi"),)
