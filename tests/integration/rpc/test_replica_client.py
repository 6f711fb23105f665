"""Operators' questions to replicas over gRPC."""

import asyncio
import socket
import time

import pytest

from paceline.drafting.matching import DrafterFacts
from paceline.drafting.ngram import NgramDrafter
from paceline.errors import ServiceUnreachableError
from paceline.rpc.endpoint import Endpoint
from paceline.rpc.link_server import DrafterServicer
from paceline.rpc.remote_drafter import RemoteDrafter
from paceline.rpc.replica_client import drain_replica, read_statuses
from paceline.rpc.replica_server import ReplicaServicer
from paceline.rpc.replica_status import DrafterStatus, GatewayStatus, ReplicaStatus
from peers import PEER, TARGET, TOKEN, loop_thread, serving, wait_until

STATUS = ReplicaStatus(GatewayStatus(2, 1), release="blue")


class _OldServicer:
    """A replica of a release that knows none of these questions."""

    def add_to(self, server) -> None:
        return


async def test_all_replicas_are_asked_at_once_and_the_silent_ones_named():
    """One of an older release, one that hangs, one that is gone: each has its own words, none holds up the rest."""
    with socket.socket() as deaf, socket.socket() as closed:
        deaf.bind(("127.0.0.1", 0))
        deaf.listen()
        closed.bind(("127.0.0.1", 0))
        async with serving(ReplicaServicer(str, lambda: STATUS)) as good, serving(_OldServicer()) as old:
            addresses = {
                "good": good.address,
                "old": old.address,
                "deaf": f"127.0.0.1:{deaf.getsockname()[1]}",
                "gone": f"127.0.0.1:{closed.getsockname()[1]}",
            }
            endpoints = [Endpoint(name, address, TOKEN) for name, address in addresses.items()]
            found = await asyncio.to_thread(read_statuses, endpoints, within_s=2.0)

    assert found["good"] == STATUS
    assert found["old"] == "it is of an older release"
    assert found["deaf"] in {"it does not answer in time", "it cannot be reached from here"}
    assert found["gone"] == "it cannot be reached from here"


async def test_a_replica_that_does_not_drain_says_so():
    """Gateways give no order to drain to anybody."""
    async with serving(ReplicaServicer(str, lambda: STATUS)) as server:
        with pytest.raises(ServiceUnreachableError, match="INVALID_ARGUMENT"):
            await asyncio.to_thread(drain_replica, Endpoint("r", server.address, TOKEN))


def test_a_drained_drafter_ends_its_links_and_its_targets_go_elsewhere():
    """The link moves to the other replica; once nobody is linked the replica asks to be replaced by being unhealthy."""
    facts = DrafterFacts("ngram", "g")
    with loop_thread() as thread:
        servicers = [DrafterServicer(NgramDrafter(), facts) for _ in range(2)]
        statuses = [
            lambda s=s: ReplicaStatus(DrafterStatus("g", "ngram", "", "", s.num_links, s.load)) for s in servicers
        ]
        contexts = [
            serving(servicer, ReplicaServicer(str, status, drain=servicer.drain))
            for servicer, status in zip(servicers, statuses, strict=True)
        ]
        servers = [thread.run(context.__aenter__()) for context in contexts]
        endpoints = [Endpoint(str(i), server.address, TOKEN) for i, server in enumerate(servers)]
        link = RemoteDrafter("g", hello=TARGET, loop=thread.loop, peer=PEER)
        link.set_endpoints(endpoints)
        try:
            wait_until(lambda: link.live)
            first = next(i for i, servicer in enumerate(servicers) if servicer.num_links)
            servicers[first].check_health()
            drain_replica(endpoints[first])
            wait_until(lambda: servicers[1 - first].num_links == 1)

            assert link.live
            assert servicers[first].num_links == 0
            with pytest.raises(Exception, match="drained"):
                servicers[first].check_health()
            servicers[1 - first].check_health()
            for _ in range(3):  # it is not taken for a replica that is worth another try
                time.sleep(0.1)
                assert servicers[first].num_links == 0
        finally:
            link.shutdown()
            for context, servicer in zip(contexts, servicers, strict=True):
                thread.run(context.__aexit__(None, None, None))
                servicer.close()
