import re

from paceline.cli import reference
from paceline.errors import ClientError, InvalidRequestError


def test_config_page_shows_bounds_defaults_and_nested_sections():
    """Fields appear with their values, bounds and defaults, groups under a placeholder name."""
    page = reference.render_config()

    assert "| `page_size` | whole number, at least 1, at most 256 | `16` | Tokens per KV page." in page
    assert "| `verifier` | `coupled`, `rejection`, `block` | `coupled` |" in page
    assert "## `drafters.NAME`" in page
    assert "| `method` | text | required | `ngram`, `draft_model`, `medusa`, " in page
    assert "## `target.autoscaling`" in page
    assert "| `resources` | for each name: number, at least 0.0001, at most 1000 |  | Custom Ray resources" in page
    assert "| `disabled_groups` | list, each: text |  |" in page
    assert not re.search("<class|typing|Pydantic", page)


def test_metrics_page_shows_names_and_label_values():
    """Each metric appears under its exported name with its labels; long lists of values are cut."""
    page = reference.render_metrics()

    assert "### `paceline_spec_accepted_tokens_total`" in page
    assert "Values: `free`, `cached`, `held`." in page
    assert "Values: `0`, `1`, ..., `63`." in page


def test_errors_page_lists_raised_errors_only():
    """Groups of the tree are left out; classes below them are in."""
    raised = list(reference.raised_errors())

    assert InvalidRequestError in raised
    assert ClientError not in raised
    assert len(set(raised)) == len(raised)


def test_rest_page_shows_every_field_with_its_treatment():
    """Fields of both endpoints appear; a refused one shows the values that turn it off."""
    page = reference.render_rest()

    assert "| `temperature` | honoured |" in page
    assert "| `best_of` | refused | use 'n' and choose among the answers yourself; allowed: `1` |" in page
    assert "| `store` | refused | answers are not stored; allowed: `false` |" in page


def test_all_pages_are_written(tmp_path):
    """`main` writes every page into a folder that it makes."""
    reference.main(tmp_path / "new")

    assert {path.name for path in (tmp_path / "new").iterdir()} == {"config.md", "errors.md", "metrics.md", "rest.md"}
