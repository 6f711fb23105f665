import httpx
import pytest

import stub_pool
from paceline.gateway.http_app import build_app


@pytest.mark.parametrize("echo", [True, False])
async def test_the_header_is_left_to_the_server_in_front_where_it_sets_one(echo, caplog):
    """Without the echo no response has the header, and the label still reaches the log."""
    service = stub_pool.make_service(stub_pool.StubPool())
    transport = httpx.ASGITransport(build_app(lambda: service, echo_request_id=echo))
    async with httpx.AsyncClient(transport=transport, base_url="http://gateway") as client:
        with caplog.at_level("INFO", "paceline.gateway.service"):
            good = await client.post("/v1/completions", json={"prompt": "x"}, headers={"x-request-id": "mine"})
        bad = await client.post("/v1/completions", json={}, headers={"x-request-id": "mine"})

    assert [response.headers.get_list("x-request-id") for response in (good, bad)] == [["mine"] if echo else []] * 2
    assert "label 'mine'" in caplog.text
