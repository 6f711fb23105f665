"""Drafters from outside: found, made and refused, each with a sentence."""

import pytest

from draft_dialogue import ask, opening, row
from guide_drafter import NAME, guide_code, guide_package, package
from paceline.config.schema import DrafterConfig
from paceline.core.drafts import DraftProposal
from paceline.core.hashed_tokens import HashedTokens
from paceline.drafting.matching import DrafterFacts
from paceline.drafting.outside import facts_of, make_outside
from paceline.drafting.registry import build_drafter
from paceline.errors import ConfigError

BROKEN = """
raise_on_import = True

def function():
    pass

class Half:
    method = "half"
    def open(self, openings): pass
    def request(self, rows): pass

class Nameless:
    method, live, detail, num_pending = None, True, "", 0
    def open(self, openings): pass
    request = collect = close = open

class Shy(Nameless):
    @property
    def live(self):
        raise OSError("no device")

class Picky:
    def __init__(self, *, size):
        if size < 1:
            raise ValueError("size must be positive")
"""
HOSTED = """

class Hosted(LastSeen):
    context_length = 77
    weights_version = "w1"

    def __init__(self, *, host):
        super().__init__()
        self.host = host
"""


def test_the_guides_drafter_is_forty_lines_and_drafts(tmp_path):
    """It is built by its name in the configuration, with its options, and proposes what stood there before."""
    lines = [line for line in guide_code().splitlines() if line.strip()]
    with guide_package(tmp_path):
        built = build_drafter("mine", DrafterConfig(method=NAME, options={"reach": 2}))
        built.drafter.open([opening()])
        reply = ask(built.drafter, row(HashedTokens([5, 6, 7, 8, 5]), 0, depth=5))

    assert len(lines) <= 40
    assert built.facts == DrafterFacts("last-seen", "mine")
    assert isinstance(reply, DraftProposal)
    assert reply.tree.token_ids == (6, 7)


@pytest.mark.parametrize(
    ("name", "options", "sentence"),
    [
        ("nowhere.drafter:Drafter", {}, "cannot be imported: No module named 'nowhere'"),
        ("broken.missing:Drafter", {}, "No module named 'broken.missing'"),
        ("raising.drafter:Drafter", {}, "cannot be imported: RuntimeError: no licence"),
        ("broken.drafter:Missing", {}, "module 'broken.drafter' has no 'Missing'"),
        ("broken.drafter:function", {}, "is no class"),
        ("broken.drafter:Half", {}, r"lacks collect\(\), close\(\), live, detail, num_pending"),
        ("broken.drafter:Nameless", {}, "lacks a name in method"),
        ("broken.drafter:Shy", {}, "OSError: no device"),
        ("broken.drafter:Half", {"size": 1}, r"could not be made \(options: size\): TypeError"),
        ("broken.drafter:Picky", {"size": 0}, "ValueError: size must be positive"),
        ("broken.drafter:Picky", {}, r"could not be made \(options: none\): TypeError"),
    ],
)
def test_what_is_no_drafter_is_refused_with_a_sentence(tmp_path, name, options, sentence):
    """Not importable, no class, not to be made, or without a part that every drafter has."""
    with (
        package(tmp_path / "a", "broken", BROKEN),
        package(tmp_path / "b", "raising", "raise RuntimeError('no licence')"),
        pytest.raises(ConfigError, match=sentence),
    ):
        make_outside(name, options, None)


def test_a_constructor_that_asks_for_its_host_gets_it(tmp_path):
    """A parameter named host is filled by the library, never by the options; facts are attributes."""
    with package(tmp_path, "hosted", guide_code() + HOSTED):
        drafter = make_outside("hosted.drafter:Hosted", {}, "the host")
        with pytest.raises(ConfigError, match="given 'host' by the library"):
            make_outside("hosted.drafter:Hosted", {"host": 1}, "the host")

    assert drafter.host == "the host"
    assert facts_of(drafter, "g") == DrafterFacts("last-seen", "g", None, 77, "w1")
