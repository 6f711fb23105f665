import re

import pytest

from paceline.modeling.catalogue import CATALOGUE


@pytest.mark.parametrize("name", CATALOGUE)
def test_every_entry_pins_one_file(name):
    """A name always means the same bytes: exact version, full hash, known license."""
    entry = CATALOGUE[name]

    assert entry.name == name
    assert re.fullmatch(r"[0-9a-f]{64}", entry.wheel_sha256)
    assert re.fullmatch(r"\d+(\.\d+)+", entry.version)
    assert entry.license
    assert entry.gguf_member.endswith(".gguf")


def test_the_catalogue_cannot_be_changed():
    """Nobody adds a model behind the user's back."""
    with pytest.raises(TypeError):
        CATALOGUE["mine"] = CATALOGUE["smollm2-135m"]
