import re

import pytest

from paceline.cli.reference import PAGES
from paceline.config.schema import DeploymentConfig, Section
from repository import ROOT


@pytest.mark.parametrize("name", sorted(PAGES))
def test_reference_is_current(name):
    """The committed page is what `make docs` writes."""
    assert (ROOT / "docs" / "reference" / name).read_text(encoding="utf-8") == PAGES[name]()


def test_every_config_field_has_a_sentence():
    """Each field of each section says what it does."""
    sections = [Section, *Section.__subclasses__()]
    bare = [
        f"{section.__name__}.{name}"
        for section in sections
        for name, field in section.model_fields.items()
        if not (field.description or "").endswith(".")
    ]

    assert DeploymentConfig in sections
    assert bare == []


def test_links_between_pages_lead_somewhere():
    """Every relative link in the docs points at a file of the repository."""
    broken = [
        f"{page.relative_to(ROOT)} -> {target}"
        for page in (*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"))
        for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text(encoding="utf-8"))
        if "://" not in target and not (page.parent / target).exists()
    ]

    assert broken == []
