import httpx
import pytest

import stub_pool
from paceline.errors import UnauthenticatedError
from paceline.gateway.http_app import build_app
from paceline.gateway.peer_rule import check_peer


def _client(host, **options):
    service = stub_pool.make_service(stub_pool.StubPool())
    transport = httpx.ASGITransport(build_app(lambda: service, **options), client=(host, 1))
    return httpx.AsyncClient(transport=transport, base_url="http://gateway")


@pytest.mark.parametrize(("host", "allowed"), [("127.0.0.1", True), ("::1", True), ("10.0.0.1", False), ("", False)])
def test_the_refusal_names_the_setting(host, allowed):
    """Callers of the machine itself pass; for others the error says what would let them in."""
    if allowed:
        check_peer(host)
    else:
        with pytest.raises(UnauthenticatedError, match="allow_remote_clients"):
            check_peer(host)


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/models", "/health", "/nothing"])
async def test_callers_from_elsewhere_get_401(path):
    """In OpenAI's shape, with a request id, saying which setting would let them in."""
    async with _client("10.0.0.1") as client:
        response = await client.post(path, json={}) if "chat" in path else await client.get(path)

    assert response.status_code == 401
    error = response.json()["error"]
    assert (error["type"], error["code"]) == ("authentication_error", "unauthenticated")
    assert "gateway.allow_remote_clients" in error["message"]
    assert response.headers["x-request-id"]


async def test_a_connection_without_an_address_is_not_local():
    """Who cannot be told apart from a stranger is one."""
    sent = []

    async def send(message):
        sent.append(message)

    scope = {"type": "http", "method": "GET", "path": "/livez", "headers": [], "query_string": b"", "client": None}
    await build_app(lambda: None)(scope, None, send)

    assert sent[0]["status"] == 401


async def test_the_rule_can_be_lifted_and_lets_loopback_through():
    """A deployment that allows remote clients answers them; the default answers its own machine."""
    async with _client("10.0.0.1", loopback_only=False) as client:
        assert (await client.get("/v1/models")).status_code == 200
    async with _client("::1") as client:
        assert (await client.get("/v1/models")).status_code == 200
