from paceline.core.model_identity import ModelIdentity, VocabularyIdentity
from paceline_serve.membership import Membership, ReplicaInfo
from paceline_serve.peer_metadata import decode_identity, encode_identity, endpoints_of, peer_metadata


def _replica(name: str, **metadata) -> ReplicaInfo:
    return ReplicaInfo(name, metadata)


def test_watchers_hear_the_present_and_every_change():
    """A watcher is called with the members of the moment, then whenever they differ, never for a repeat."""
    membership = Membership()
    heard = []
    membership.record("Target", [_replica("a")])
    membership.watch("Target", heard.append)

    membership.record("Target", [_replica("b"), _replica("a")])
    membership.record("Target", [_replica("a"), _replica("b")])
    membership.record("Other", [_replica("c")])
    membership.record("Target", [])

    assert [[replica.replica_id for replica in members] for members in heard] == [["a"], ["a", "b"], []]


def test_changed_metadata_is_a_change():
    """A replica that comes back under its id with another address is announced again."""
    membership = Membership()
    heard = []
    membership.watch("Target", heard.append)

    membership.record("Target", [_replica("a", address="x:1")])
    membership.record("Target", [_replica("a", address="x:2")])

    assert [members[0].metadata["address"] for members in heard[1:]] == ["x:1", "x:2"]


def test_members_without_an_address_are_no_endpoints():
    """A replica that has published nothing cannot be dialled."""
    published = ReplicaInfo("a", peer_metadata("10.0.0.1:20000", "secret"))

    (endpoint,) = endpoints_of([published, _replica("b")])

    assert (endpoint.replica_id, endpoint.address, endpoint.token) == ("a", "10.0.0.1:20000", "secret")
    assert "secret" not in repr(endpoint)
    assert "secret" not in repr(published)


def test_an_identity_survives_the_journey():
    """What a target publishes as builtins is the same identity at the gateway, also after tuples became lists."""
    identity = ModelIdentity("m", "fp_1", 2048, VocabularyIdentity("abc", 49152, (("bos", 1), ("eos", 2))), (2, 7))
    fields = encode_identity(identity)
    fields["vocabulary"]["special_ids"] = [list(pair) for pair in fields["vocabulary"]["special_ids"]]
    fields["eos_token_ids"] = list(fields["eos_token_ids"])

    assert decode_identity(fields) == identity
