import json

import httpx
import pytest
from ray.serve.schema import ServeDeploySchema

from paceline.config.schema import DeploymentConfig, DrafterConfig, ModelConfig
from paceline.errors import ConfigError, SetupError
from paceline_serve import remote_deploy, remote_health
from paceline_serve.deploy_schema import render
from paceline_serve.start_failure import failure_of

_SCHEMA = render(DeploymentConfig()).model_dump(mode="json", exclude_unset=True)
_SERVICERS = _SCHEMA["grpc_options"]["grpc_servicer_functions"]
_OTHER = {"name": "other", "import_path": "other.app:app", "route_prefix": "/other"}


def _running(http_port=8000, grpc_port=9000, host="127.0.0.1", servicers=_SERVICERS, **applications) -> dict:
    return {
        "http_options": {"host": host, "port": http_port},
        "grpc_options": {"port": grpc_port, "grpc_servicer_functions": list(servicers)},
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


def test_a_drafter_group_that_the_configuration_leaves_out_is_deleted():
    """Its application is ours; one whose name only resembles ours is kept."""
    running = {name: {"deployed_app_config": {"name": name}} for name in ("paceline-drafter-old", "paceline-tools")}

    merged = remote_deploy.merge(_running(**running), _SCHEMA)

    assert [application["name"] for application in merged["applications"]] == ["paceline-tools", "paceline"]


@pytest.mark.parametrize(
    ("options", "advice"),
    [
        ({"http_port": 80}, "--http-port 80"),
        ({"grpc_port": 90}, "--grpc-port 90"),
        ({"host": "0.0.0.0"}, "gateway.host to 0.0.0.0"),  # noqa: S104
    ],
)
@pytest.mark.parametrize("applications", [{}, {"other": {"deployed_app_config": _OTHER}}])
def test_other_doors_are_refused_with_what_to_do(options, advice, applications):
    """Ray Serve would silently keep the doors that its proxies have, also where no application runs any more."""
    with pytest.raises(ConfigError, match=advice):
        remote_deploy.merge(_running(**options, **applications), _SCHEMA)


@pytest.mark.parametrize("options", [{}, _running(servicers=["other.add_service"])["grpc_options"]])
def test_proxies_without_our_grpc_service_are_refused(options):
    """Ray Serve would silently go on without it, or without a gRPC port at all."""
    with pytest.raises(ConfigError, match="started without Paceline's gRPC service"):
        remote_deploy.merge(_running() | {"grpc_options": options}, _SCHEMA)


def test_proxies_with_more_grpc_services_than_ours_are_fine():
    """Another application's service does not stand in the way of ours."""
    running = _running(servicers=["other.add_service", *_SERVICERS])

    assert remote_deploy.merge(running, _SCHEMA)["applications"][0]["name"] == "paceline"


def test_settings_of_the_whole_cluster_are_left_alone():
    """How we log is our application's business, not that of the others."""
    merged = remote_deploy.merge(_running(other={"deployed_app_config": _OTHER}), _SCHEMA)

    assert "logging_config" not in merged
    assert "logging_config" not in merged["applications"][0]
    assert merged["applications"][1]["logging_config"] == _SCHEMA["logging_config"]


def test_an_empty_cluster_takes_any_port():
    """Where nothing runs yet, the ports are ours to choose."""
    assert remote_deploy.merge({"applications": {}}, _SCHEMA)["applications"][0]["name"] == "paceline"


class _Cluster:
    """A Ray cluster's REST API: starts, then runs or fails."""

    def __init__(self, *statuses: str) -> None:
        self.statuses = list(statuses)
        self.put = None
        self.before: dict | None = None  # our application, before anything is sent
        self.deployments: dict[str, dict] = {}
        self.health = [200]
        self.asked: list[httpx.Request] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.asked.append(request)
        if request.url.path == "/health":
            status = self.health.pop(0) if len(self.health) > 1 else self.health[0]
            if status is None:
                raise httpx.ConnectError("refused", request=request)
            return httpx.Response(status)
        if request.method == "PUT":
            self.put = json.loads(request.content)
            return httpx.Response(200)
        if self.put is None:
            return httpx.Response(200, json={"applications": {"paceline": self.before} if self.before else {}})
        status = self.statuses.pop(0) if len(self.statuses) > 1 else self.statuses[0]
        application = {"status": status, "message": "no such model", "deployments": self.deployments}
        return httpx.Response(200, json=_running(paceline=application))


@pytest.fixture
def connect(monkeypatch):
    def connect_to(cluster) -> None:
        client = httpx.Client
        monkeypatch.setattr(remote_deploy, "_POLL_S", 0.0)
        monkeypatch.setattr(remote_health, "_POLL_S", 0.0)
        monkeypatch.setattr(remote_health, "_REACHED_WITHIN_S", 0.05)
        monkeypatch.setattr(
            httpx, "Client", lambda **options: client(transport=httpx.MockTransport(cluster), **options)
        )
        monkeypatch.setattr(httpx, "get", lambda url, **_: client(transport=httpx.MockTransport(cluster)).get(url))

    return connect_to


def test_a_deployment_is_sent_and_waited_for(connect, capsys):
    """The command ends when the application runs, and says where."""
    cluster = _Cluster("DEPLOYING", "DEPLOYING", "RUNNING")
    connect(cluster)

    remote_deploy.deploy_remote(DeploymentConfig(), "http://head:8265/", as_json=True)

    assert cluster.put["proxy_location"] == "EveryNode"
    assert ServeDeploySchema.model_validate(cluster.put).applications[0].name == "paceline"
    assert json.loads(capsys.readouterr().out) == {
        "model": "smollm2-135m",
        "http": "http://head:8000",
        "grpc": "head:9000",
        "health": "ready",
    }


def test_a_deployment_that_runs_is_waited_for_until_it_answers(connect, capsys):
    """RUNNING says that the replicas run; ready is who answers."""
    cluster = _Cluster("RUNNING")
    cluster.health = [None, 503, 503, 200]
    connect(cluster)

    remote_deploy.deploy_remote(DeploymentConfig(), "http://head:8265", as_json=False)

    assert "smollm2-135m is ready" in capsys.readouterr().out
    assert cluster.health == [200]


@pytest.mark.parametrize(("status", "said"), [(None, "cannot be reached"), (401, "allow_remote_clients")])
def test_what_cannot_be_checked_from_here_is_told(connect, capsys, status, said):
    """Nobody is told that all is well where nobody has looked."""
    cluster = _Cluster("RUNNING")
    cluster.health = [status]
    connect(cluster)

    remote_deploy.deploy_remote(DeploymentConfig(), "http://head:8265", as_json=False)

    shown = capsys.readouterr().out
    assert said in shown
    assert "is ready" not in shown


@pytest.mark.parametrize("missing", ["drafter-still-starts", "former-group-still-there"])
def test_every_application_of_ours_is_waited_for(connect, capsys, missing):
    """A group that starts, and one that is being deleted, are part of the change; other applications are not."""
    group = DrafterConfig(method="ngram")
    config = DeploymentConfig(drafters={"ngram": group} if missing == "drafter-still-starts" else {})
    other = "paceline-drafter-ngram" if missing == "drafter-still-starts" else "paceline-drafter-old"
    looks = []

    def cluster(request: httpx.Request) -> httpx.Response:
        if request.method == "PUT" or request.url.path == "/health":
            return httpx.Response(200)
        looks.append(1)
        is_done = len(looks) > 3
        applications = {"paceline": {"status": "RUNNING"}, "someone-elses": {"status": "DEPLOYING"}}
        if missing == "drafter-still-starts" or not is_done:
            applications[other] = {"status": "RUNNING" if is_done else "DEPLOYING"}
        return httpx.Response(200, json=_running(**applications))

    connect(cluster)
    remote_deploy.deploy_remote(config, "http://head:8265", as_json=True)

    assert len(looks) == 4
    assert json.loads(capsys.readouterr().out)["health"] == "ready"


def test_a_failed_drafter_group_is_told_by_name(connect):
    """Targets would run without it; whoever deploys should know."""
    applications = {
        "paceline": {"status": "RUNNING"},
        "paceline-drafter-ngram": {"status": "DEPLOY_FAILED", "message": "no such model"},
    }
    connect(lambda _request: httpx.Response(200, json=_running(**applications)))

    with pytest.raises(SetupError, match="paceline-drafter-ngram failed to deploy: no such model"):
        remote_deploy.deploy_remote(
            DeploymentConfig(drafters={"ngram": DrafterConfig(method="ngram")}), "http://head:8265", as_json=True
        )


def test_rays_token_is_sent(connect, monkeypatch):
    """A cluster that wants a token gets the one that Ray finds for this user."""
    monkeypatch.setattr(
        "ray._private.authentication.http_token_authentication.get_auth_headers_if_auth_enabled",
        lambda headers: {"Authorization": "Bearer of-the-test"},
    )
    cluster = _Cluster("RUNNING")
    connect(cluster)

    remote_deploy.deploy_remote(DeploymentConfig(), "http://head:8265", as_json=True)

    told = {request.headers.get("authorization") for request in cluster.asked if request.url.port == 8265}
    assert told == {"Bearer of-the-test"}


def test_a_missing_token_is_told(connect):
    """A cluster that wants a token is no cluster that is down."""
    connect(lambda request: httpx.Response(401))

    with pytest.raises(SetupError, match="RAY_AUTH_TOKEN"):
        remote_deploy.deploy_remote(DeploymentConfig(), "http://head:8265", as_json=True)


def test_folders_are_pointed_out(connect, capsys):
    """A model folder of this machine is not on the cluster's by itself."""
    connect(_Cluster("RUNNING"))
    config = DeploymentConfig(model=ModelConfig(source="/models/mine"))

    remote_deploy.deploy_remote(config, "http://head:8265", as_json=True)

    assert "/models/mine must exist on every machine" in capsys.readouterr().err


def _with_head(target: str, head: str) -> DeploymentConfig:
    drafters = {"far": DrafterConfig(method="eagle", model=head, place="in_process")}
    return DeploymentConfig(model=ModelConfig(source=target), drafters=drafters)


def test_a_head_for_another_model_is_refused_before_anything_is_sent(connect, tmp_path):
    """Where the files are on this machine too."""
    cluster = _Cluster("RUNNING")
    connect(cluster)
    for name, size in (("target", 576), ("head", 64)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text(json.dumps({"hidden_size": size}))

    with pytest.raises(ConfigError, match="another model"):
        remote_deploy.deploy_remote(
            _with_head(str(tmp_path / "target"), str(tmp_path / "head")), "http://head:8265", as_json=True
        )

    assert not cluster.asked


def test_a_head_that_is_on_the_cluster_only_needs_its_feature_named(connect):
    """Without its config nobody here knows what the targets have to keep; the sentence says where to write it."""
    connect(_Cluster("RUNNING"))
    config = _with_head("/models/mine", "/models/head")

    with pytest.raises(ConfigError, match=r"engine\.features: \[last\]"):
        remote_deploy.deploy_remote(config, "http://head:8265", as_json=True)

    engine = config.engine.model_copy(update={"features": ("last",)})
    remote_deploy.deploy_remote(config.model_copy(update={"engine": engine}), "http://head:8265", as_json=True)


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


@pytest.mark.parametrize("address", ["head:8265", "ray://head:10001", "http://", "http://head:port", "10.0.0.1:8265"])
def test_what_is_no_address_of_a_dashboard_is_refused(address):
    """Nothing is sent anywhere, and the sentence shows what an address looks like."""
    with pytest.raises(ConfigError, match="http://HEAD:8265"):
        remote_deploy.deploy_remote(DeploymentConfig(), address, as_json=False)


def test_what_a_deployment_waits_for_is_told_once(connect, capsys):
    """A replica that no machine has room for would otherwise be waited for without a word."""
    message = (
        "Deployment 'Target' has 1 replicas that have taken more than 30s to initialize.\nIts __init__ may be slow."
    )
    cluster = _Cluster("DEPLOYING", "DEPLOYING", "DEPLOYING", "RUNNING")
    cluster.deployments = {"Target": {"status": "UPDATING", "message": message}}
    connect(cluster)

    remote_deploy.deploy_remote(DeploymentConfig(), "http://head:8265", as_json=True)

    assert capsys.readouterr().err.count(message.replace("\n", " ")) == 1


def test_a_door_that_each_machine_has_for_itself_is_told(connect, capsys):
    """The default host of the gateway is the loopback address: right on one machine, no use on a cluster."""
    cluster = _Cluster("RUNNING")
    cluster.health = [None]
    connect(cluster)

    remote_deploy.deploy_remote(DeploymentConfig(), "http://head:8265", as_json=False)

    assert "gateway.host" in capsys.readouterr().out


def test_our_own_error_counts_before_ray_serve_gives_up():
    """A model that is refused is refused again at each try, so the first refusal ends the start."""
    message = (
        "failed to start\nTraceback ...\npaceline.errors.ModelRefusedError: The model is refused: pickles.\n\nRetrying"
    )

    assert failure_of({"status": "DEPLOYING", "deployments": {"Target": {"message": message}}}) == (
        "The model is refused: pickles."
    )


def test_a_failure_says_on_which_machine():
    """A model folder may be missing on one machine of many; a Ray of one machine needs no address."""
    trace = "{}\npaceline.errors.ModelUnavailableError: There is no folder /models/mine."
    calls = [
        f"ray::ServeReplica:paceline:Target.init() (pid=7, ip={ip}, actor_id=1)" for ip in ("10.0.0.7", "127.0.0.1")
    ]

    told = [failure_of({"deployments": {"Target": {"message": trace.format(call)}}}) for call in calls]

    assert told == ["On 10.0.0.7: There is no folder /models/mine.", "There is no folder /models/mine."]


def test_what_an_earlier_try_said_is_no_failure_of_this_one(connect, capsys):
    """Ray Serve shows the old messages until the new replicas start; a mended file must not fail by them."""
    cluster = _Cluster("DEPLOYING", "RUNNING")
    message = "paceline.errors.ModelUnavailableError: There is no folder /models/mine."
    cluster.deployments = {"Target": {"status": "DEPLOY_FAILED", "message": message}}
    cluster.before = {"status": "DEPLOY_FAILED", "deployments": cluster.deployments}
    connect(cluster)

    remote_deploy.deploy_remote(DeploymentConfig(), "http://head:8265", as_json=True)

    assert "There is no folder" not in capsys.readouterr().err


@pytest.mark.parametrize("status", ["DEPLOYING", "RUNNING"])
def test_other_messages_are_no_failure_yet(status):
    """Ray Serve retries what is not ours to judge."""
    application = {"status": status, "deployments": {"Target": {"message": "RuntimeError: port taken"}}}

    assert failure_of(application) is None


def test_a_given_up_deployment_is_a_failure():
    """What Ray Serve gave up is told by the last line of its trace."""
    application = {"status": "DEPLOY_FAILED", "deployments": {"Target": {"message": "trace\nValueError: seven\n"}}}

    assert failure_of(application) == "ValueError: seven"
