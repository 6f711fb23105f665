import pytest

from paceline.telemetry.trace_context import continue_trace, new_trace, parse_traceparent

_HEADER = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


def test_a_valid_header_round_trips():
    """A header is read into its parts and written back unchanged."""
    context = parse_traceparent(_HEADER)

    assert context is not None
    assert context.sampled
    assert context.traceparent == _HEADER


def test_a_child_stays_in_the_trace_with_a_span_of_its_own():
    """A child keeps trace id and sampling and has a new span id."""
    child = continue_trace(_HEADER)

    assert child.trace_id == "4bf92f3577b34da6a3ce929d0e0e4736"
    assert child.span_id != "00f067aa0ba902b7"
    assert child.sampled


@pytest.mark.parametrize(
    "header",
    [
        "",
        "x",
        _HEADER.upper(),
        f"{_HEADER}-more",
        f"{_HEADER}\n",
        _HEADER.replace("00-4", "ff-4"),
        f"00-{'0' * 32}-00f067aa0ba902b7-01",
        f"00-4bf92f3577b34da6a3ce929d0e0e4736-{'0' * 16}-01",
        "00-4bf92f3577b34da6a3ce929d0e0e473-00f067aa0ba902b7-01",
    ],
)
def test_a_header_that_breaks_the_rules_starts_a_new_trace(header):
    """Invalid headers count as absent: the request gets a trace of its own."""
    assert parse_traceparent(header) is None
    assert continue_trace(header).trace_id != "4bf92f3577b34da6a3ce929d0e0e4736"


def test_later_versions_may_carry_more_fields():
    """A header of a later version is read by its first four fields."""
    context = parse_traceparent(f"01{_HEADER[2:]}-extra")

    assert context is not None
    assert context.traceparent == _HEADER


def test_new_traces_are_valid_and_differ():
    """Fresh ids are valid headers, unsampled unless asked, and do not repeat."""
    traces = [new_trace() for _ in range(50)]

    assert len({trace.trace_id for trace in traces}) == 50
    assert all(parse_traceparent(trace.traceparent) == trace for trace in traces)
    assert new_trace(sampled=True).traceparent.endswith("-01")
