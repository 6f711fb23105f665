from paceline.cli.answer_text import round_line
from paceline.client.conversation import ShownRound, ShownToken


def test_a_round_of_a_tree_names_the_accepted_path():
    """The accepted drafts of a tree stand wherever they stand; all others were rejected."""
    drafted = tuple(ShownToken(number, text) for number, text in enumerate("abcd"))
    line = round_line(1, ShownRound(drafted, 2, None, 0.0, 0.0, 0.0, path=(1, 3)))

    assert 'accepted 2 "b" "d", rejected 2 "a" "c"' in line
