"""Where a replica's own gRPC server is, and what opens it."""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One replica as its peers see it; comes from the replica's published metadata."""

    replica_id: str
    address: str  # host:port
    token: str = field(repr=False)  # bearer token that the replica made at start
