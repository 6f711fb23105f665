from paceline.core.load import TargetLoad
from paceline.rpc.codec_target import LoadReport
from paceline.rpc.endpoint import Endpoint
from paceline_serve import target_peer
from paceline_serve.target_peer import TargetPeer
from peers import PEER, until


async def test_watching_survives_whatever_fails(monkeypatch):
    """After an error that nobody planned the reports of a replica are still read."""
    failures = [ZeroDivisionError("unplanned")]

    async def watch_load():
        if failures:
            raise failures.pop()
        yield LoadReport(TargetLoad(2, 1, 8, 8, 0.0), 0, "fingerprint")

    monkeypatch.setattr(target_peer, "_RETRY_S", 0.01)
    peer = TargetPeer(Endpoint("a", "127.0.0.1:1", "secret"), peer=PEER)
    monkeypatch.setattr(peer._connection, "watch_load", watch_load)
    try:
        await until(lambda: peer.load is not None)
    finally:
        await peer.close()

    assert peer.load.running == 2
