"""Which Rays run on this machine, from what their node processes were called with."""

from paceline_serve.nodes_here import RayNode, node_for, parse

ONE = RayNode("127.0.0.1:6000", "127.0.0.1")
OTHER = RayNode("10.0.0.5:6379", "10.0.0.7")


def test_a_node_process_says_its_cluster_and_its_own_address():
    """Both stand in its command line; without one of them it is no node that can be attached to."""
    command = ["/ray/raylet", "--node_ip_address=10.0.0.7", "--x", "--gcs-address=10.0.0.5:6379", "--y=a=b"]

    assert parse(command) == OTHER
    assert parse(command[:3]) is None


def test_a_loopback_address_names_the_cluster_with_that_port():
    """KubeRay's RAY_ADDRESS is 127.0.0.1:6379 where the GCS listens on the pod's own address."""
    assert node_for("127.0.0.1:6379", [ONE, OTHER]) == OTHER
    assert node_for("127.0.0.1:6000", [OTHER, ONE]) == ONE
    assert node_for("10.0.0.5:6379", [ONE, OTHER]) == OTHER
    assert node_for("10.0.0.9:6379", [ONE, OTHER]) is None
    assert node_for("127.0.0.1:1", [ONE, OTHER]) is None
