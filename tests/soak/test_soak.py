"""Short soaks of a real fleet; `make soak` runs long ones."""

import os

import pytest

from soak.report import faults_found, make_result
from soak.run import Settings, soak
from soak.verdict import Kind

pytestmark = [pytest.mark.serve]


def _say(text: str) -> None:
    if "SOAK_VERBOSE" in os.environ:
        os.write(2, f"{text}\n".encode())


def _check(settings: Settings, folder) -> None:
    outcome = soak(settings, folder, _say)

    assert faults_found(outcome) == []
    assert len(outcome.fates) == settings.num_requests
    assert sum(fate.verdict.kind is Kind.RIGHT for fate in outcome.fates) > settings.num_requests / 2
    assert {incident.fault for incident in outcome.incidents}
    assert len(make_result(outcome, None).tables) > 3


@pytest.mark.timeout(900)
def test_a_hundred_and_fifty_requests_survive_four_faults(tmp_path):
    """A killed target, a killed and a halted drafter and slow links: nothing lost, truncated, wrong or leaked."""
    _check(Settings(150, seed=1), tmp_path)


@pytest.mark.full
@pytest.mark.timeout(3000)
def test_two_thousand_requests_survive_every_kind_of_fault(tmp_path):
    """Drains, stalls and changed settings too."""
    _check(Settings(2000, seed=2), tmp_path)
