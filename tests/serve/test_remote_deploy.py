import json

import httpx
import pytest

from paceline.config.schema import DeploymentConfig
from paceline.errors import ConfigError, SetupError
from paceline_serve import remote_deploy
from paceline_serve.deploy_schema import render
from paceline_serve.start_failure import failure_of

_SCHEMA = render(DeploymentConfig()).model_dump(mode="json", exclude_unset=True)
_OTHER = {"name": "other", "import_path": "other.app:app", "route_prefix": "/other"}


def _running(http_port=8000, grpc_port=9000, **applications) -> dict:
    return {
        "http_options": {"port": http_port},
        "grpc_options": {"port": grpc_port},
        "applications": applications,
    }


def test_other_applications_are_kept():
    """Ray Serve deletes what a new schema leaves out, so what runs there goes into it."""
    merged = remote_deploy.merge(_running(other={"deployed_app_config": _OTHER}), _SCHEMA)

    assert [application["name"] for application in merged["applications"]] == ["other", "paceline"]


def test_our_own_old_application_is_replaced():
    """A second deployment updates the first."""
    old = {"deployed_app_config": {"name": "paceline", "import_path": "old"}}

    merged = remote_deploy.merge(_running(paceline=old), _SCHEMA)

    assert [application["import_path"] for application in merged["applications"]] == ["paceline_serve.app:build"]


@pytest.mark.parametrize(
    ("ports", "flag"), [({"http_port": 80}, "--http-port 80"), ({"grpc_port": 90}, "--grpc-port 90")]
)
def test_other_ports_are_refused_with_the_flag_to_use(ports, flag):
    """Ray Serve would silently keep the old ports."""
    with pytest.raises(ConfigError, match=flag):
        remote_deploy.merge(_running(other={"deployed_app_config": _OTHER}, **ports), _SCHEMA)


def test_an_empty_cluster_takes_any_port():
    """Where nothing runs yet, the ports are ours to choose."""
    assert remote_deploy.merge({"applications": {}}, _SCHEMA)["applications"][0]["name"] == "paceline"


class _Cluster:
    """A Ray cluster's REST API: starts, then runs or fails."""

    def __init__(self, *statuses: str) -> None:
        self.statuses = list(statuses)
        self.put = None

    def __call__(self, request: httpx.Request) -> httpx.Response:
        if request.method == "PUT":
            self.put = json.loads(request.content)
            return httpx.Response(200)
        if self.put is None:
            return httpx.Response(200, json={"applications": {}})
        status = self.statuses.pop(0) if len(self.statuses) > 1 else self.statuses[0]
        return httpx.Response(200, json=_running(paceline={"status": status, "message": "no such model"}))


@pytest.fixture
def connect(monkeypatch):
    def connect_to(cluster) -> None:
        client = httpx.Client
        monkeypatch.setattr(remote_deploy, "_POLL_S", 0.0)
        monkeypatch.setattr(
            httpx, "Client", lambda **options: client(transport=httpx.MockTransport(cluster), **options)
        )

    return connect_to


def test_a_deployment_is_sent_and_waited_for(connect, capsys):
    """The command ends when the application runs, and says where."""
    cluster = _Cluster("DEPLOYING", "DEPLOYING", "RUNNING")
    connect(cluster)

    remote_deploy.deploy_remote(DeploymentConfig(), "http://head:8265/", as_json=True)

    assert cluster.put["proxy_location"] == "EveryNode"
    assert json.loads(capsys.readouterr().out)["model"] == "smollm2-135m"


def test_a_failed_deployment_is_told(connect):
    """The cluster's own message reaches the user."""
    connect(_Cluster("DEPLOY_FAILED"))

    with pytest.raises(SetupError, match="no such model"):
        remote_deploy.deploy_remote(DeploymentConfig(), "http://head:8265", as_json=False)


def test_a_cluster_that_is_not_there_is_one_sentence(connect):
    """No stack trace for a wrong address."""

    def refuse(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("refused", request=request)

    connect(refuse)

    with pytest.raises(SetupError, match="does not answer"):
        remote_deploy.deploy_remote(DeploymentConfig(), "http://head:8265", as_json=False)


def test_our_own_error_counts_before_ray_serve_gives_up():
    """A model that is refused is refused again at each try, so the first refusal ends the start."""
    message = (
        "failed to start\nTraceback ...\npaceline.errors.ModelRefusedError: The model is refused: pickles.\n\nRetrying"
    )

    assert failure_of({"status": "DEPLOYING", "deployments": {"Target": {"message": message}}}) == (
        "The model is refused: pickles."
    )


@pytest.mark.parametrize("status", ["DEPLOYING", "RUNNING"])
def test_other_messages_are_no_failure_yet(status):
    """Ray Serve retries what is not ours to judge."""
    application = {"status": status, "deployments": {"Target": {"message": "RuntimeError: port taken"}}}

    assert failure_of(application) is None


def test_a_given_up_deployment_is_a_failure():
    """What Ray Serve gave up is told by the last line of its trace."""
    application = {"status": "DEPLOY_FAILED", "deployments": {"Target": {"message": "trace\nValueError: seven\n"}}}

    assert failure_of(application) == "ValueError: seven"
