import pytest

from paceline.telemetry.instruments import Counter, Gauge, Histogram


@pytest.mark.parametrize(
    ("instrument", "name"),
    [
        (Counter("spec.accepted_tokens", "{token}", "Tokens."), "paceline_spec_accepted_tokens_total"),
        (Gauge("engine.running", "{choice}", "Choices."), "paceline_engine_running"),
        (Histogram("engine.step_time", "s", "Time."), "paceline_engine_step_time_seconds"),
        (Gauge("engine.memory", "By", "Bytes."), "paceline_engine_memory_bytes"),
    ],
)
def test_prometheus_names_follow_its_rules(instrument, name):
    """Dots become underscores, units are spelled out, counters end in _total."""
    assert instrument.prometheus_name == name
