import re
from collections import Counter as Tally

import prometheus_client.parser

from paceline.cli.reference import raised_errors
from paceline.errors import ClientError, ServerError
from paceline.telemetry import catalogue
from paceline.telemetry.instruments import Instrument
from paceline.telemetry.metrics import Metrics
from repository import PACKAGES, source_files


def test_names_are_unique_and_documented():
    """No two metrics share a name; each has a unit, a sentence, and documented labels."""
    tally = Tally(instrument.prometheus_name for instrument in catalogue.ALL)

    assert [name for name, count in tally.items() if count > 1] == []
    for instrument in catalogue.ALL:
        assert re.fullmatch(r"(gateway|engine|spec|link|drafter)(\.[a-z_]+)+", instrument.name), instrument.name
        assert instrument.unit, instrument.name
        assert instrument.doc.endswith("."), instrument.name
        assert all(label.doc.endswith(".") for label in instrument.labels), instrument.name


def test_queries_in_the_docs_name_existing_series():
    """Every series that a doc text mentions is exported."""
    exported = {instrument.prometheus_name for instrument in catalogue.ALL}
    mentioned = {name for instrument in catalogue.ALL for name in re.findall(r"paceline_\w+", instrument.doc)}

    assert mentioned
    assert mentioned <= exported


def test_every_metric_is_recorded_somewhere():
    """No metric of the catalogue is dead: code outside it records each one."""
    sources = [path.read_text() for path in source_files() if path.parent != PACKAGES[0] / "telemetry"]
    names = [name for name, value in vars(catalogue).items() if isinstance(value, Instrument)]

    assert [name for name in names if not any(re.search(rf"\b{name}\b", source) for source in sources)] == []


def test_errors_are_counted_by_their_own_reason():
    """Each reason that a client can be given is a value of the label, so that none counts as `other`."""
    (label,) = [label for label in catalogue.FAILED_REQUESTS.labels if label.name == "reason"]
    never_counted = {"DRAFTER_UNAVAILABLE", "LINK_REFUSED", "SERVICE_UNREACHABLE", "ANSWER_FAILED"}  # not in a gateway
    reasons = {error.reason for error in raised_errors() if issubclass(error, ClientError | ServerError)}

    assert reasons - never_counted <= set(label.values)


def test_the_exposition_parses():
    """A scraper can read what is rendered."""
    metrics = Metrics(strict=True)
    metrics.count(catalogue.ROUNDS, 2, group="ngram")
    families = list(prometheus_client.parser.text_string_to_metric_families(metrics.render()))

    assert len(families) >= len(catalogue.ALL)
