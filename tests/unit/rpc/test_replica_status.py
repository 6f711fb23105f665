import pytest

from paceline.core.load import DrafterGroupStatus, DrafterLoad, TargetLoad
from paceline.rpc.codec_target import LoadReport
from paceline.rpc.protocol import Versions
from paceline.rpc.replica_status import (
    DrafterStatus,
    GatewayStatus,
    GroupExperience,
    ReplicaStatus,
    SpeculationSwitch,
    TargetStatus,
    decode_status,
    encode_status,
)
from paceline.v1 import replica_pb2

GROUPS = (DrafterGroupStatus("a", "ngram", True), DrafterGroupStatus("b", "draft_model", False, "no replica"))
REPORT = LoadReport(TargetLoad(3, 1, 64, 16, 41.5, GROUPS), 4, "fp", 12.5, True, 0.25)


@pytest.mark.parametrize(
    "status",
    [
        ReplicaStatus(
            TargetStatus("m", REPORT, (GroupExperience("a", 2.5, 10, 7), GroupExperience("b"))),
            release="blue",
            uptime_s=12.5,
            draining=True,
            speculation=SpeculationSwitch(enabled=False, disabled_groups=frozenset({"a", "b"})),
            protocol=Versions(1, 3),
        ),
        ReplicaStatus(DrafterStatus("g", "ngram", "w1", "abc", 2, DrafterLoad(5, 1, 0.5)), uptime_s=0.001),
        ReplicaStatus(GatewayStatus(7, 3), speculation=SpeculationSwitch(enabled=True)),
    ],
    ids=["target", "drafter", "gateway"],
)
def test_a_status_arrives_as_it_was_sent(status):
    """Every kind of replica; a reply time that is not known stays unknown, and so does a switch."""
    message = replica_pb2.StatusResponse.FromString(encode_status(status).SerializeToString())

    assert decode_status(message) == status


def test_a_role_of_a_later_release_is_no_error():
    """What it is cannot be said, so there is no status."""
    assert decode_status(replica_pb2.StatusResponse(release="later")) is None
