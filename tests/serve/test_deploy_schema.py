"""The rendered schema against Ray Serve's own classes; no Ray is started."""

import inspect

import pytest
from ray.serve._private.client import ServeControllerClient
from ray.serve._private.grpc_util import gRPCGenericServer
from ray.serve.handle import DeploymentHandle
from ray.serve.request_router import RequestRouter
from ray.serve.schema import ServeDeploySchema

from paceline.config.load import config_from_mapping, load_config
from paceline.config.locate import find_config
from paceline_serve.app import build
from paceline_serve.deploy_schema import deployment_names, render

_DISAGGREGATED = load_config(find_config("disaggregated"))


@pytest.mark.parametrize("name", ["local-cpu", "disaggregated"])
def test_shipped_configs_render(name):
    """Every shipped config becomes a valid schema that survives the journey as JSON."""
    schema = render(load_config(find_config(name)))

    assert ServeDeploySchema.model_validate(schema.model_dump(mode="json", exclude_unset=True)) == schema


def test_identity_is_in_the_arguments_and_tunables_are_not():
    """A changed tunable must not change the arguments: that would restart every replica."""
    faster = _DISAGGREGATED.tunables.model_copy(update={"max_draft_tokens": 9})
    before = render(_DISAGGREGATED).applications[0]
    after = render(_DISAGGREGATED.model_copy(update={"tunables": faster})).applications[0]

    assert before.args == after.args
    assert "tunables" not in before.args["config"]
    assert [d.user_config["max_draft_tokens"] for d in after.deployments] == [9] * 4


def test_the_arguments_hold_the_whole_configuration():
    """From its arguments the application knows everything except the tunables."""
    arguments = render(_DISAGGREGATED).applications[0].args

    known = config_from_mapping(arguments["config"])

    assert known.model_copy(update={"tunables": _DISAGGREGATED.tunables}) == _DISAGGREGATED


def test_every_named_deployment_is_built():
    """The names that get tunables are the names that `build` gives to the deployments."""
    application = build(render(_DISAGGREGATED).applications[0].args)
    found, queue = set(), [application]
    while queue:
        node = queue.pop()
        found.add(node._bound_deployment.name)
        queue += [item for item in node._bound_deployment.init_args if hasattr(item, "_bound_deployment")]
        for item in node._bound_deployment.init_args:
            if isinstance(item, dict):
                queue += [value for value in item.values() if hasattr(value, "_bound_deployment")]

    assert found == set(deployment_names(_DISAGGREGATED))


def test_groups_without_replicas_are_not_deployed():
    """A group held at zero, and one inside the targets, has no deployment."""
    ngram = _DISAGGREGATED.drafters["ngram"]
    config = _DISAGGREGATED.model_copy(
        update={
            "drafters": {
                "none": ngram.model_copy(update={"replicas": 0}),
                "inside": ngram.model_copy(update={"place": "in_process"}),
            }
        }
    )

    assert deployment_names(config) == ["Gateway", "Target"]


def test_private_parts_of_ray_are_still_there():
    """What is used of Ray Serve beyond its public API has the shape that is relied on."""
    assert list(inspect.signature(ServeControllerClient.deploy_apps).parameters)[:2] == ["self", "config"]
    assert "get_serve_details" in dir(ServeControllerClient)
    assert "service_handler_factory" in inspect.signature(gRPCGenericServer.__init__).parameters
    assert {"update_replicas", "on_replica_actor_died", "choose_replicas"} <= set(dir(RequestRouter))
    assert {"choose_replica", "dispatch"} <= set(dir(DeploymentHandle))
