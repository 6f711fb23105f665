"""Draft heads made from folders, as a replica makes them."""

import json
from pathlib import Path

import pytest

from apt_heads import save_apt_heads, save_apt_target
from draft_dialogue import ask, opening, row
from head_drafters import Remote
from paceline.config.schema import DrafterConfig
from paceline.core.drafts import DraftProposal
from paceline.core.hashed_tokens import HashedTokens
from paceline.drafting.build_heads import build_head
from paceline.drafting.host import DrafterHost
from paceline.drafting.static_tree import FILE
from paceline.errors import ConfigError, ModelRefusedError

PATHS = [[0], [1], [0, 0], [2], [1, 0]]


@pytest.fixture(name="folders", scope="module")
def _folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("heads")
    heads = save_apt_heads(root, save_apt_target(root / "target"))
    for name in ("eagle", "mtp", "medusa"):
        (heads[name] / FILE).write_text(json.dumps({"paths": PATHS}))
    return {"target": root / "target", **heads}


@pytest.mark.parametrize("method", ["eagle", "mtp", "medusa"])
def test_a_static_tree_in_the_folder_is_what_is_drafted(folders: dict[str, Path], method: str) -> None:
    """Beside Medusa's heads, and beside heads that grow dynamic trees otherwise."""
    config = DrafterConfig(method=method, model=str(folders[method]))
    drafter = Remote(build_head("g", config, DrafterHost(target_folder=folders["target"])).drafter)
    drafter.open([opening()])
    drafted = ask(drafter, row(HashedTokens(range(5, 45)), 0, depth=2, nodes=4, top_k=3))

    assert isinstance(drafted, DraftProposal)
    assert drafted.tree.parents == (-1, -1, -1, 0)


def test_a_static_tree_that_is_none_is_refused(folders: dict[str, Path], tmp_path: Path) -> None:
    """By the file's name, before anything drafts."""
    for file in folders["eagle"].iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    (tmp_path / FILE).write_text('{"paths": [[1]]}')
    with pytest.raises(ModelRefusedError, match=FILE):
        build_head(
            "g", DrafterConfig(method="eagle", model=str(tmp_path)), DrafterHost(target_folder=folders["target"])
        )


def test_a_head_of_another_method_is_refused(folders: dict[str, Path]) -> None:
    """With both methods in the sentence."""
    config = DrafterConfig(method="mtp", model=str(folders["eagle"]))
    with pytest.raises(ConfigError, match=r"method mtp, but .* holds a head for eagle"):
        build_head("g", config, DrafterHost(target_folder=folders["target"]))
