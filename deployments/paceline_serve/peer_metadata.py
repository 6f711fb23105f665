"""What a replica publishes about itself: builtins only, because it travels through Ray Serve."""

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

from paceline.core.model_identity import ModelIdentity, VocabularyIdentity
from paceline.rpc.endpoint import Endpoint
from paceline.rpc.protocol import OURS, Versions
from paceline_serve.membership import ReplicaInfo

_BEFORE_IT_WAS_PUBLISHED = (1, 1)


def peer_metadata(address: str, token: str, *, versions: Versions = OURS, **facts: Any) -> dict[str, Any]:
    """Metadata of a replica whose own gRPC server listens on ``address`` and speaks ``versions`` of the protocol."""
    return {"address": address, "token": token, "protocol": list(versions), **facts}


def versions_of(replica: ReplicaInfo) -> Versions:
    """Versions of the peer protocol that the replica speaks."""
    return Versions(*replica.metadata.get("protocol", _BEFORE_IT_WAS_PUBLISHED))


def endpoint_of(replica: ReplicaInfo) -> Endpoint:
    """Where the replica's own gRPC server is, and what opens it."""
    return Endpoint(replica.replica_id, replica.metadata["address"], replica.metadata["token"])


def endpoints_of(replicas: Iterable[ReplicaInfo]) -> list[Endpoint]:
    """Endpoints of all replicas that have published one."""
    return [endpoint_of(replica) for replica in replicas if "address" in replica.metadata]


def encode_identity(identity: ModelIdentity) -> dict[str, Any]:
    """A model's identity as builtins."""
    return dataclasses.asdict(identity)


def decode_identity(fields: Mapping[str, Any]) -> ModelIdentity:
    """A model's identity from what another replica published."""
    vocabulary = fields["vocabulary"]
    special_ids = tuple((str(role), int(token_id)) for role, token_id in vocabulary["special_ids"])
    return ModelIdentity(
        name=fields["name"],
        system_fingerprint=fields["system_fingerprint"],
        context_length=fields["context_length"],
        vocabulary=VocabularyIdentity(vocabulary["fingerprint"], vocabulary["size"], special_ids),
        eos_token_ids=tuple(fields["eos_token_ids"]),
    )
