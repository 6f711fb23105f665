import contextlib

from paceline.core.load import TargetLoad
from paceline.rpc.codec_target import LoadReport
from paceline_serve import target_peer
from paceline_serve.membership import ReplicaInfo
from paceline_serve.peer_metadata import encode_identity, peer_metadata
from paceline_serve.target_peer import PROGRESS_TIMEOUT_S, TargetPeer
from peers import IDENTITY, PEER, until

_REPORT = LoadReport(TargetLoad(2, 1, 8, 8, 0.0), 0, "fingerprint")


@contextlib.asynccontextmanager
async def _peer(**metadata):
    facts = peer_metadata("127.0.0.1:1", "secret", identity=encode_identity(IDENTITY)) | metadata
    peer = TargetPeer(ReplicaInfo("a", facts), peer=PEER, on_report=lambda _peer, _report: None)
    try:
        yield peer
    finally:
        await peer.close()


async def test_watching_survives_whatever_fails(monkeypatch):
    """After an error that nobody planned the reports of a replica are still read."""
    failures = [ZeroDivisionError("unplanned")]

    async def watch_load():
        if failures:
            raise failures.pop()
        yield _REPORT

    monkeypatch.setattr(target_peer, "_RETRY_S", 0.01)
    async with _peer() as peer:
        monkeypatch.setattr(peer._connection, "watch_load", watch_load)
        await until(lambda: peer.load is not None)

        assert peer.load.running == 2


async def test_a_watch_that_has_fallen_silent_is_opened_again(monkeypatch):
    """A replica whose reports stop while its connection stays is not lost for good."""
    opened = []

    async def watch_load():
        opened.append(len(opened))
        if len(opened) == 1:
            await until(lambda: False, timeout_s=60)
        yield _REPORT

    monkeypatch.setattr(target_peer, "_RETRY_S", 0.01)
    monkeypatch.setattr(target_peer, "_REPORT_LATE_S", 0.05)
    async with _peer() as peer:
        monkeypatch.setattr(peer._connection, "watch_load", watch_load)
        await until(lambda: peer.load is not None)

    assert len(opened) >= 2


async def test_a_report_says_that_a_replica_drains(monkeypatch):
    """It is about to go from that report on, and stays so."""

    async def watch_load():
        yield _REPORT._replace(draining=True)
        yield _REPORT

    monkeypatch.setattr(target_peer, "_RETRY_S", 0.01)
    async with _peer() as peer:
        assert not peer.is_leaving
        monkeypatch.setattr(peer._connection, "watch_load", watch_load)
        await until(lambda: peer.load is not None)

        assert peer.is_leaving
        assert not peer.has_left


async def test_only_replicas_that_send_signs_of_life_are_given_up_for_silence():
    """An older release is silent during a long prefill without being dead; one too new is not used at all."""
    async with _peer() as new, _peer(protocol=[1, 1]) as old, _peer(protocol=[98, 99]) as other:
        assert new._connection._silence_s == PROGRESS_TIMEOUT_S
        assert old._connection._silence_s is None
        assert (new.speaks_our_protocol, old.speaks_our_protocol, other.speaks_our_protocol) == (True, True, False)
