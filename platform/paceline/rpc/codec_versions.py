"""Protocol versions as records and as messages."""

from paceline.rpc.protocol import Versions
from paceline.v1 import common_pb2


def encode_versions(versions: Versions) -> common_pb2.ProtocolRange:
    """A range of versions as a message."""
    return common_pb2.ProtocolRange(min=versions.lowest, max=versions.highest)


def decode_versions(message: common_pb2.ProtocolRange) -> Versions:
    """A range of versions from a message."""
    return Versions(message.min, message.max)
