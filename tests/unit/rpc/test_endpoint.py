from paceline.rpc.endpoint import Endpoint


def test_token_is_not_shown():
    """An endpoint in a log line does not give its token away."""
    assert "secret" not in repr(Endpoint("r", "127.0.0.1:1", "secret"))
