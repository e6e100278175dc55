"""containers/kubernetes*.yaml and kserve.yaml: the parts fit together and have the schema of their kinds.

A server answers the probes.
"""

from __future__ import annotations

import copy
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from serving_process import ServerProcess
from synthetic import make_bundle, save_graph
from xbench_fast.runtime.cli.serve_command import serve
from xbench_fast.runtime.serving.inference.decoder_process import MEMORY
from xbench_fast.runtime.serving.settings import HEALTH_PATHS

yaml = pytest.importorskip("yaml")
PROBES = ("startupProbe", "readinessProbe", "livenessProbe")
FILES = ("kubernetes.yaml", "kubernetes-cluster.yaml")
VERSION = "1.34"
"""Version of Kubernetes whose schemas the files are checked against."""


def documents(root: Path, name: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((root / "containers" / name).read_text()))


@pytest.fixture(scope="module")
def objects(root: Path) -> dict[str, Any]:
    return {item["kind"]: item for item in documents(root, "kubernetes.yaml")}


@pytest.fixture
def pod(objects: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = objects["Deployment"]["spec"]["template"]["spec"]
    return found


def values(container: dict[str, Any]) -> dict[str, str]:
    """The options of the command: each has a value."""
    command = container["args"]
    assert command[0] == "serve" and len(command) % 2 == 1 and all(isinstance(word, str) for word in command)
    return dict(zip(command[1::2], command[2::2], strict=True))


def test_the_objects_name_each_other(root: Path, objects: dict[str, Any], pod: dict[str, Any]) -> None:
    assert set(objects) == {"Deployment", "Service"}
    deployment, service = objects["Deployment"], objects["Service"]
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    assert deployment["spec"]["selector"]["matchLabels"] == labels == service["spec"]["selector"]
    (container,) = pod["containers"]
    ports = {item["name"]: item["containerPort"] for item in container["ports"]}
    assert ports == {name: int(values(container)[f"--{name}-port".replace("--http-", "--")]) for name in ports}
    for item in service["spec"]["ports"]:
        assert item["targetPort"] in ports and item["port"] == ports[item["targetPort"]]
    assert "health" not in {item["name"] for item in service["spec"]["ports"]}
    mounts = {item["mountPath"]: item for item in container["volumeMounts"]}
    assert {item["name"] for item in mounts.values()} == {item["name"] for item in pod["volumes"]}
    assert values(container)["--bundles"] in mounts
    assert str(Path(values(container)["--token-file"]).parent) in mounts
    assert all(mount.get("readOnly") for path, mount in mounts.items() if path != "/tmp")
    text = (root / "containers" / "kubernetes.yaml").read_text()
    (secret,) = re.findall(r"create secret generic (\S+) --from-file=token=", text)
    assert {"secretName": secret} in [item.get("secret") for item in pod["volumes"]]


@pytest.mark.parametrize("name", FILES)
def test_core_kinds_have_their_schema(root: Path, name: str) -> None:
    """PodMonitor belongs to an operator, so its schema is not among those of Kubernetes."""
    validate = pytest.importorskip("kubernetes_validate")
    for item in documents(root, name):
        if item["kind"] != "PodMonitor":
            validate.validate(item, VERSION, strict=True)
            broken = copy.deepcopy(item)
            broken["spec"]["repliccas"] = 1
            with pytest.raises(validate.ValidationError):
                validate.validate(broken, VERSION, strict=True)


def test_the_additions_of_a_cluster_fit_the_deployment(root: Path, pod: dict[str, Any]) -> None:
    added = {item["kind"]: item for item in documents(root, "kubernetes-cluster.yaml")}
    assert set(added) == {"PersistentVolumeClaim", "Service", "PodMonitor", "NetworkPolicy"}
    (container,) = pod["containers"]
    ports = {item["name"]: item["containerPort"] for item in container["ports"]}
    claims = [item["persistentVolumeClaim"]["claimName"] for item in pod["volumes"] if "persistentVolumeClaim" in item]
    assert claims == [added["PersistentVolumeClaim"]["metadata"]["name"]]
    (metrics,) = added["Service"]["spec"]["ports"]
    assert metrics["targetPort"] == "health" and metrics["port"] == ports["health"]
    (endpoint,) = added["PodMonitor"]["spec"]["podMetricsEndpoints"]
    secrets = [item["secret"]["secretName"] for item in pod["volumes"] if "secret" in item]
    credentials = endpoint["authorization"]["credentials"]
    assert endpoint["port"] in ports and endpoint["path"] == "/metrics" and [credentials["name"]] == secrets
    assert credentials["key"] == Path(values(container)["--token-file"]).name
    policy = added["NetworkPolicy"]["spec"]
    allowed = {item["port"] for rule in policy["ingress"] for item in rule["ports"]}
    assert allowed == set(ports) and policy["policyTypes"] == ["Ingress", "Egress"] and policy["egress"] == []
    labels = {"app": "xbench-fast"}
    selectors = [added["Service"]["spec"]["selector"], added["PodMonitor"]["spec"]["selector"]["matchLabels"]]
    assert [*selectors, policy["podSelector"]["matchLabels"]] == [labels] * 3


def test_it_runs_as_nobody_and_writes_to_tmp_alone(root: Path, pod: dict[str, Any]) -> None:
    (container,) = pod["containers"]
    dockerfile = (root / "containers" / "Dockerfile.cpu").read_text()
    assert pod["securityContext"]["runAsNonRoot"] is True and pod["automountServiceAccountToken"] is False
    assert f"\nUSER {pod['securityContext']['runAsUser']}\n" in dockerfile
    own = container["securityContext"]
    assert own["readOnlyRootFilesystem"] is True and own["allowPrivilegeEscalation"] is False
    assert own["capabilities"] == {"drop": ["ALL"]}
    written = set(re.findall(r"^ +\w+(?:_CACHE_DIR|CONFIGDIR)=(/\w+)", dockerfile, re.MULTILINE))
    assert written == {"/tmp"} and {"name": "tmp", "emptyDir": {"sizeLimit": "1Gi"}} in pod["volumes"]


def test_limits_fit_the_command(pod: dict[str, Any]) -> None:
    (container,) = pod["containers"]
    command, resources = values(container), container["resources"]
    known = {flag for option in serve.params for flag in option.opts}
    assert set(command) <= known
    assert resources["limits"]["cpu"] == command["--threads"] == resources["requests"]["cpu"]
    assert int(resources["limits"]["memory"].removesuffix("Gi")) << 30 > int(command["--threads"]) * MEMORY
    pause = int(container["lifecycle"]["preStop"]["exec"]["command"][1])
    assert pod["terminationGracePeriodSeconds"] >= pause + float(command["--timeout"]) + 5
    for name in PROBES:
        asked = container[name]["httpGet"]
        assert asked["port"] == "health" and asked["path"] in HEALTH_PATHS
    assert container["livenessProbe"]["httpGet"]["path"] != container["readinessProbe"]["httpGet"]["path"]


def test_the_probes_are_answered_by_this_command(pod: dict[str, Any], tmp_path: Path) -> None:
    """Without a token, as the kubelet asks; paths and ports are those of this machine."""
    for package in ("onnx", "onnxruntime", "starlette", "uvicorn", "prometheus_client", "grpc"):
        pytest.importorskip(package)
    httpx = pytest.importorskip("httpx")
    make_bundle(tmp_path / "models" / "blocks-32", graph=save_graph(tmp_path / "blocks.onnx"))
    (tmp_path / "token").write_text("a-token")
    (container,) = pod["containers"]
    own = {"--token-file": tmp_path / "token", "--host": "127.0.0.1", "--threads": 1}
    own |= {name: 0 for name in values(container) if name.endswith("port")}
    options = {**values(container), **own}
    del options["--bundles"]
    with ServerProcess(tmp_path / "models", tmp_path, *(word for pair in options.items() for word in pair)) as process:
        assert process.process.stdout is not None
        lines = [process.process.stdout.readline() for _ in range(2)]
        (health,) = (line.strip() for line in lines if line.startswith("http://"))
        base = health.removesuffix("/v2/health/ready")
        for name in PROBES:
            assert httpx.get(base + container[name]["httpGet"]["path"], timeout=30).status_code == 200
        assert httpx.get(f"{process.url}/v2/models", timeout=30).status_code == 401
        assert httpx.get(f"{base}/metrics", timeout=30).status_code == 401
        bearer = {"Authorization": "Bearer a-token"}
        assert "xbench_requests_total" in httpx.get(f"{base}/metrics", timeout=30, headers=bearer).text
        assert process.stop() == 0


def test_kserve_runs_the_same_pod(root: Path, pod: dict[str, Any]) -> None:
    """So what the other tests say of the Deployment's command, mounts and limits is true of it too."""
    (service,) = documents(root, "kserve.yaml")
    assert (service["apiVersion"], service["kind"]) == ("serving.kserve.io/v1beta1", "InferenceService")
    assert set(service) == {"apiVersion", "kind", "metadata", "spec"} and set(service["spec"]) == {"predictor"}
    assert service["metadata"]["annotations"] == {"serving.kserve.io/deploymentMode": "Standard"}
    predictor, expected = service["spec"]["predictor"], copy.deepcopy(pod)
    assert (predictor.pop("minReplicas"), predictor.pop("maxReplicas")) == (1, 1)
    (container,), (deployed,) = predictor.pop("containers"), expected.pop("containers")
    assert predictor == expected
    assert container.pop("name") == "kserve-container" and deployed.pop("name") == "serve"
    assert container.pop("env") == [{"name": "PROTOCOL", "value": "v2"}]
    for name in PROBES:  # by number: a name would need a port that KServe's Service publishes
        assert container[name]["httpGet"]["port"] == int(values(container)["--health-port"])
        container[name]["httpGet"]["port"] = "health"
    ports = {"http": "--port", "grpc": "--grpc-port"}
    assert container.pop("ports") == [
        {"name": name, "containerPort": int(values(container)[option]), "protocol": "TCP"}
        for name, option in ports.items()
    ]
    del deployed["ports"]
    assert container == deployed
    secret = "create secret generic xbench-fast --from-file=token="
    assert all(secret in (root / page).read_text() for page in ("containers/kserve.yaml", "docs/recipes/kserve.md"))


def test_the_pod_of_kserve_has_the_schema_of_a_pod(root: Path) -> None:
    """KServe's v1beta1 mixes the fields of a pod with further fields in the predictor."""
    validate = pytest.importorskip("kubernetes_validate")
    (service,) = documents(root, "kserve.yaml")
    spec = {name: part for name, part in service["spec"]["predictor"].items() if not name.endswith("Replicas")}
    whole: dict[str, Any] = {"apiVersion": "v1", "kind": "Pod", "metadata": service["metadata"], "spec": spec}
    validate.validate(whole, VERSION, strict=True)
    for part in (whole["spec"], whole["spec"]["containers"][0]):
        part["protocolVersion"] = "v2"
        with pytest.raises(validate.ValidationError):
            validate.validate(whole, VERSION, strict=True)
        del part["protocolVersion"]


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")
def test_kubectl_reads_it(root: Path) -> None:
    line = ["kubectl", "label", "--local", "-f", str(root / "containers" / "kubernetes.yaml"), "a=b", "-o", "name"]
    done = subprocess.run(line, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.split() == ["deployment.apps/xbench-fast", "service/xbench-fast"]
