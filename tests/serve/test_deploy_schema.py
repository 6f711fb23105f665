"""The rendered schema against Ray Serve's own classes; no Ray is started."""

import inspect

import pytest
from ray import serve
from ray.serve._private.autoscaling_state import DeploymentAutoscalingState
from ray.serve._private.client import ServeControllerClient
from ray.serve._private.common import DeploymentID
from ray.serve._private.config import DeploymentConfig, ReplicaConfig
from ray.serve._private.deployment_info import DeploymentInfo
from ray.serve._private.grpc_util import gRPCGenericServer
from ray.serve._private.utils import DEFAULT
from ray.serve.config import AutoscalingConfig as RayAutoscalingConfig
from ray.serve.handle import DeploymentHandle
from ray.serve.request_router import RequestRouter
from ray.serve.schema import DeploymentSchema, ServeDeploySchema

from paceline.config.load import config_from_mapping, load_config
from paceline.config.locate import find_config
from paceline.config.schema import AutoscalingConfig, DrafterConfig
from paceline_serve.app import build, build_drafter
from paceline_serve.deploy_schema import deployment_names, render, target_surge_percent
from paceline_serve.live_settings import split_target_settings, target_settings

# Ray Serve announces another way to set it, which has no effect in 2.60.
pytestmark = pytest.mark.filterwarnings("ignore:The `metrics_interval_s` field:DeprecationWarning")

_DISAGGREGATED = load_config(find_config("disaggregated"))


@pytest.mark.parametrize("name", ["local-cpu", "disaggregated"])
def test_shipped_configs_render(name):
    """Every shipped config becomes a valid schema that survives the journey as JSON."""
    schema = render(load_config(find_config(name)))

    assert ServeDeploySchema.model_validate(schema.model_dump(mode="json", exclude_unset=True)) == schema


def _applications(config):
    return {application.name: application for application in render(config).applications}


def _changed(section, **update):
    fields = getattr(_DISAGGREGATED, section).model_copy(update=update)
    return _DISAGGREGATED.model_copy(update={section: fields})


@pytest.mark.parametrize(
    "changed",
    [
        _changed("tunables", max_draft_tokens=9),
        _changed("target", replicas=3),
        _changed("target", autoscaling=AutoscalingConfig()),
        _changed("target", max_surge_percent=50),
        _changed("gateway", replicas=3),
    ],
    ids=["tunables", "target.replicas", "target.autoscaling", "target.max_surge_percent", "gateway.replicas"],
)
def test_what_may_change_while_replicas_run_is_not_in_the_arguments(changed):
    """Ray Serve restarts every replica of an application whose arguments change."""
    before, after = _applications(_DISAGGREGATED), _applications(changed)

    assert {name: application.args for name, application in before.items()} == {
        name: application.args for name, application in after.items()
    }
    assert before != after


def test_tunables_reach_every_deployment():
    """All replicas hear of a changed tunable."""
    applications = _applications(_changed("tunables", max_draft_tokens=9)).values()

    found = [deployment.user_config["max_draft_tokens"] for app in applications for deployment in app.deployments]

    assert found == [9] * 4


def test_a_changed_drafter_group_leaves_targets_and_other_groups_alone():
    """A group is an application of its own: what it is stands in its own arguments only."""
    group = _DISAGGREGATED.drafters["ngram"].model_copy(update={"max_match_tokens": 6})
    changed = _DISAGGREGATED.model_copy(update={"drafters": {**_DISAGGREGATED.drafters, "ngram": group}})

    before, after = _applications(_DISAGGREGATED), _applications(changed)

    assert [name for name in before if before[name] != after[name]] == ["paceline-drafter-ngram"]


def test_targets_hear_of_an_added_group_without_a_restart():
    """Which groups there are reaches running targets as user_config."""
    ngram = _DISAGGREGATED.drafters["ngram"]
    more = _DISAGGREGATED.model_copy(update={"drafters": {**_DISAGGREGATED.drafters, "more": ngram}})

    before, after = _applications(_DISAGGREGATED)["paceline"], _applications(more)["paceline"]

    assert before.args == after.args
    (target,) = [deployment for deployment in after.deployments if deployment.name == "Target"]
    tunables, groups = split_target_settings(target.user_config)
    assert (tunables, groups) == (
        _DISAGGREGATED.tunables,
        {"ngram": "ngram", "draft-model": "draft_model", "more": "ngram"},
    )


def test_a_changed_release_changes_every_application():
    """That is how an operator has every replica replaced."""
    before, after = _applications(_DISAGGREGATED), _applications(_DISAGGREGATED.model_copy(update={"release": "2"}))

    assert before.keys() == after.keys()
    assert all(before[name].args != after[name].args for name in before)


def test_the_arguments_hold_all_that_targets_and_gateways_are():
    """Read back, they are the configuration itself, but for what may change while replicas run."""
    config = _DISAGGREGATED.model_copy(update={"release": "7", "verifier": "block"})

    known = config_from_mapping(_applications(config)["paceline"].args["config"])

    live = {"replicas": 2}
    assert known.target.model_copy(update=live) == config.target
    assert known.gateway.model_copy(update=live) == config.gateway
    same = {
        "tunables": config.tunables,
        "target": config.target,
        "gateway": config.gateway,
        "drafters": config.drafters,
    }
    assert known.model_copy(update=same) == config


def test_drafters_of_the_targets_own_process_are_part_of_what_targets_are():
    """They are built when a target starts, so a change of them needs a restart."""
    inside = _DISAGGREGATED.drafters["ngram"].model_copy(update={"place": "in_process"})
    config = _DISAGGREGATED.model_copy(update={"drafters": {"inside": inside}})

    applications = _applications(config)

    assert config_from_mapping(applications["paceline"].args["config"]).drafters == {"inside": inside}
    assert list(applications) == ["paceline"]


def test_every_named_deployment_is_built():
    """The names with settings in the schema are those that the builders give to the deployments."""
    applications = _applications(_DISAGGREGATED)
    builders = {"paceline_serve.app:build": build, "paceline_serve.app:build_drafter": build_drafter}
    for application in applications.values():
        found, queue = set(), [builders[application.import_path](application.args)]
        while queue:
            node = queue.pop()
            found.add(node._bound_deployment.name)
            queue += [item for item in node._bound_deployment.init_args if hasattr(item, "_bound_deployment")]

        assert found == {deployment.name for deployment in application.deployments}


def test_groups_without_replicas_are_not_deployed():
    """A group held at zero, and one inside the targets, has no deployment, and targets do not look for it."""
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
    assert split_target_settings(target_settings(config))[1] == {}


def test_only_gateways_have_a_door():
    """With a second route the gRPC proxy would ask every client which application it means."""
    routes = {name: application.route_prefix for name, application in _applications(_DISAGGREGATED).items()}

    assert routes == {"paceline": "/", "paceline-drafter-ngram": None, "paceline-drafter-draft-model": None}


@pytest.mark.parametrize(
    ("update", "percent"), [({}, 100), ({"num_gpus": 1.0}, 0), ({"num_gpus": 1.0, "max_surge_percent": 50}, 50)]
)
def test_targets_surge_unless_each_needs_a_gpu(update, percent):
    """Old targets stop once new ones run, where there is a place for both."""
    assert target_surge_percent(_changed("target", **update)) == percent


def _ray_scaling(config):
    (target,) = [item for item in _applications(config)["paceline"].deployments if item.name == "Target"]
    return target, RayAutoscalingConfig.model_validate(target.autoscaling_config)


def test_autoscaling_keeps_its_bounds_and_looks_more_often_than_it_decides():
    """Ray Serve sees nothing if it looks less often than it averages."""
    target, scaling = _ray_scaling(
        _changed("target", replicas=5, autoscaling=AutoscalingConfig(min_replicas=1, max_replicas=3))
    )

    assert (scaling.min_replicas, scaling.max_replicas) == (1, 3)
    assert scaling.metrics_interval_s < scaling.look_back_period_s <= 10
    assert target.num_replicas in (None, DEFAULT.VALUE)


def test_new_settings_leave_an_autoscaled_number_of_targets_as_it_is():
    """Ray Serve starts with the fewest targets, and a switched setting later on does not bring it back to them."""
    _, scaling = _ray_scaling(_changed("target", autoscaling=AutoscalingConfig(min_replicas=1, max_replicas=4)))

    def deployed(enabled: bool) -> DeploymentInfo:
        settings = DeploymentConfig(autoscaling_config=scaling, user_config={"speculation_enabled": enabled})
        return DeploymentInfo(settings, ReplicaConfig.create(object), start_time_ms=0, deployer_job_id="", version="1")

    state = DeploymentAutoscalingState(DeploymentID("Target", "paceline"))

    assert state.register(deployed(True), 0) == 1
    assert state.register(deployed(False), 4) == 4


def test_custom_resources_reach_ray():
    """Replicas are placed where their resources are."""
    config = _changed("target", resources={"fast": 1.0})
    config = config.model_copy(update={"gateway": config.gateway.model_copy(update={"resources": {"door": 0.1}})})
    group = config.drafters["ngram"].model_copy(update={"resources": {"slow": 2.0}})
    applications = _applications(config.model_copy(update={"drafters": {"ngram": group}}))

    gateway = build(applications["paceline"].args)._bound_deployment
    (target,) = [item._bound_deployment for item in gateway.init_args if hasattr(item, "_bound_deployment")]
    drafter = build_drafter(applications["paceline-drafter-ngram"].args)._bound_deployment

    assert gateway.ray_actor_options["resources"] == {"door": 0.1}
    assert target.ray_actor_options["resources"] == {"fast": 1.0}
    assert drafter.ray_actor_options["resources"] == {"slow": 2.0}


def test_targets_keep_features_for_remote_heads_and_those_know_the_target():
    """A target is not told of remote groups, so what it keeps for them is resolved here."""
    config = load_config(find_config("local-cpu.yaml"))
    heads = {"heads": DrafterConfig(method="mtp"), "copy": DrafterConfig(method="ngram")}
    applications = _applications(config.model_copy(update={"drafters": heads}))

    assert applications["paceline"].args["config"]["engine"]["features"] == ["last"]
    target = applications["paceline-drafter-heads"].args["target"]
    assert target == {"source": config.model.source, "revision": None, "dtype": config.model.dtype}
    assert "target" not in applications["paceline-drafter-copy"].args


def test_private_parts_of_ray_are_still_there():
    """What is used of Ray Serve beyond its public API has the shape that is relied on."""
    assert list(inspect.signature(ServeControllerClient.deploy_apps).parameters)[:2] == ["self", "config"]
    assert "get_serve_details" in dir(ServeControllerClient)
    assert "_check_exists" in inspect.signature(serve.get_deployment_handle).parameters
    assert "max_surge_percent" in DeploymentSchema.model_fields
    assert "service_handler_factory" in inspect.signature(gRPCGenericServer.__init__).parameters
    assert {"update_replicas", "on_replica_actor_died", "choose_replicas"} <= set(dir(RequestRouter))
    assert {"choose_replica", "dispatch"} <= set(dir(DeploymentHandle))
