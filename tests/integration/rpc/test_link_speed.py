"""Speed over a real link object whose messages are late or lost, in real time."""

import time

import pytest

from drafters import CoinDrafter
from fault_transport import Faults
from linked_engine import VOCAB, linked, plain_answers, references
from peers import wait_until

PASS_S = 0.03
LENGTH = 96

LINKS = {
    "5 ms": Faults(delay_s=0.005),
    "20 ms": Faults(delay_s=0.02),
    "100 ms": Faults(delay_s=0.1),
    "dead": Faults(drop=1.0),
}


def tokens_per_s(faults: Faults, *, drafting: bool) -> float:
    """Three requests at a time; the tokens are the plain ones whatever the link does."""
    drafter = CoinDrafter(references(length=LENGTH), vocab_size=VOCAB, share=0.7)
    with linked(drafter, faults=Faults()) as made:
        made.harness.runner.pass_s = PASS_S
        wait_until(lambda: made.link.live)
        made.transport.faults = faults
        made.submit(length=LENGTH, drafting=drafting)
        started = time.monotonic()
        made.run()
        assert made.answers() == plain_answers(length=LENGTH)
        return 3 * LENGTH / (time.monotonic() - started)


@pytest.mark.full
@pytest.mark.parametrize("link", LINKS)
def test_no_link_makes_the_target_slower_than_plain(link):
    """Plain and speculative runs in turn; at least 0.97 of the plain speed is left."""
    speeds = [(tokens_per_s(LINKS[link], drafting=True), tokens_per_s(LINKS[link], drafting=False)) for _ in range(3)]
    ratio = sum(with_drafts for with_drafts, _ in speeds) / sum(plain for _, plain in speeds)

    assert ratio >= 0.97
