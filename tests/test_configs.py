"""The samples in configs/ are valid, agree with one another, and with what they deploy."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
import yaml
from click.testing import CliRunner
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from paths import ROOT
from promql import RULES, alerts, panels, selectors

from interpool.handler.cli import main
from interpool.handler.torchserve import installed_ts

CONFIGS = ROOT / "configs"
DOCKERFILE = (CONFIGS / "Dockerfile").read_text(encoding="utf-8")
PROPERTIES = sorted(CONFIGS.glob("*.properties"))
BASE = CONFIGS / "kubernetes"
KSERVE = BASE / "kserve.yaml"
MANIFESTS = sorted(
    path for path in BASE.rglob("*.yaml") if path != KSERVE and path.name != "kustomization.yaml"
)
KUBECTL = shutil.which("kubectl")
KUBERNETES = "1.37"


def properties(path: Path) -> dict[str, str]:
    lines = [line.strip() for line in path.read_text(encoding="utf-8").splitlines()]
    return dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))


def documents(path: Path) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(path.read_text(encoding="utf-8")))


def of_kind(kind: str) -> dict[str, Any]:
    (found,) = [one for path in (*MANIFESTS, KSERVE) for one in documents(path) if one["kind"] == kind]
    return found


def containers() -> list[dict[str, Any]]:
    deployment = of_kind("Deployment")["spec"]["template"]["spec"]["containers"]
    return [*deployment, *of_kind("ServingRuntime")["spec"]["containers"]]


def adapter_rules() -> list[dict[str, Any]]:
    return list(yaml.safe_load(of_kind("ConfigMap")["data"]["config.yaml"])["rules"])


def adapter_query(rule: dict[str, Any]) -> str:
    """As the Prometheus adapter asks it."""
    return (
        str(rule["metricsQuery"]).replace("<<.GroupBy>>", "pod").replace("<<.LabelMatchers>>", 'pod=~"a|b"')
    )


def test_the_security_page_describes_the_installed_torchserve() -> None:
    page = (ROOT / "docs" / "security.md").read_text(encoding="utf-8").partition("## TorchServe itself")[2]
    with zipfile.ZipFile(installed_ts() / "frontend" / "model-server.jar") as jar:
        netty = jar.read("META-INF/io.netty.versions.properties").decode()
        manager = jar.read("org/pytorch/serve/util/ConfigManager.class").decode("latin-1")
        tokens = "".join(
            jar.read(name).decode("latin-1") for name in jar.namelist() if "TokenAuthorization" in name
        )
        assert any("grpc/netty/shaded" in name for name in jar.namelist())
    version = re.search(r"^netty-transport\.version=(.*)$", netty, re.MULTILINE)
    assert version is not None
    assert f"netty {version[1]}, made on 13 October 2020" in page
    assert "buildDate=2020-10-13" in netty
    assert "`file://.*\\|http(s)?://.*` unless set" in page
    for word in ("file://.*|http(s)?://.*", "token_expiration_min", "grpc_management_address"):
        assert word in manager
    assert "key_file.json" in tokens


# ---- config.properties ---------------------------------------------------------------------------


@pytest.mark.parametrize("path", PROPERTIES, ids=lambda path: path.name)
def test_every_key_is_one_that_torchserve_reads(path: Path) -> None:
    with zipfile.ZipFile(installed_ts() / "frontend" / "model-server.jar") as jar:
        known = jar.read("org/pytorch/serve/util/ConfigManager.class").decode("latin-1")
    assert [key for key in properties(path) if key not in known] == []


@pytest.mark.parametrize("path", PROPERTIES, ids=lambda path: path.name)
def test_no_other_machine_reaches_the_management_address(path: Path) -> None:
    sample = properties(path)
    assert sample["management_address"].startswith("http://127.0.0.1:")
    assert sample["grpc_management_address"] == "127.0.0.1"


def test_production_has_tokens_on_the_model_api_off_and_limits() -> None:
    sample = properties(CONFIGS / "production.properties")
    assert sample["disable_token_authorization"] == "false"
    assert sample["enable_model_api"] == "false"
    assert {"max_request_size", "max_response_size", "job_queue_size", "default_response_timeout"} <= set(
        sample
    )


@pytest.mark.parametrize("name", ["production", "container"])
def test_no_workflow_brings_a_model_from_elsewhere_if_the_model_api_is_off(name: str) -> None:
    sample = properties(CONFIGS / f"{name}.properties")
    assert sample["enable_model_api"] == "false"
    for url in ("file:///srv/m.mar", "https://example.org/m.mar", "s3://bucket/m.mar"):
        assert not re.fullmatch(sample["allowed_urls"], url)


# ---- the image -----------------------------------------------------------------------------------


def test_the_dockerfile_has_no_findings() -> None:
    found = subprocess.run(
        [Path(sys.executable).with_name("hadolint"), CONFIGS / "Dockerfile"], capture_output=True, text=True
    )
    assert (found.returncode, found.stdout) == (0, ""), found.stdout + found.stderr


def test_the_image_is_built_with_what_the_project_asks_for() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    (python,) = re.findall(r"^FROM python:([0-9.]+)-\S+ AS", DOCKERFILE, re.MULTILINE)
    assert f"{python}.0" in SpecifierSet(project["project"]["requires-python"])
    (torch,) = re.findall(r" torch==(\S+)", DOCKERFILE)
    (asked,) = [one for one in project["project"]["dependencies"] if Requirement(one).name == "torch"]
    assert torch in Requirement(asked).specifier
    for requirement in project["build-system"]["requires"]:
        assert f'"{requirement}"' in DOCKERFILE
    assert f"interpool:{project['project']['version']}" in DOCKERFILE


def test_the_sources_of_the_image_exist_and_reach_the_build() -> None:
    ignored = (CONFIGS / "Dockerfile.dockerignore").read_text(encoding="utf-8").split("\n")
    sent = [line.removeprefix("!") for line in ignored if line.startswith("!")]
    for line in re.findall(r"^COPY (?!--from)(.*)$", DOCKERFILE, re.MULTILINE):
        for source in line.split()[:-1]:
            assert (ROOT / source).exists(), source
            assert any(fnmatch(source, pattern) for pattern in sent), f"{source} is ignored"


def test_the_commands_in_the_image_are_commands_of_ours() -> None:
    for words in re.findall(r'"interpool", ((?:"[^"]*"(?:, )?)+)', DOCKERFILE):
        command, *options = json.loads(f"[{words}]")
        assert command in main.commands
        if command == "status":
            _parses(command, options)
    for command in re.findall(r"\binterpool (home|prepare)\b", DOCKERFILE):
        assert command in main.commands


def test_the_image_exposes_what_its_configuration_listens_on_for_others() -> None:
    sample = properties(CONFIGS / "container.properties")
    ports = {value.rpartition(":")[2] for value in sample.values() if value.startswith("http://0.0.0.0:")}
    ports.add(sample["grpc_inference_port"])
    ports |= set(re.findall(r"INTERPOOL_METRICS_ADDRESS=0.0.0.0:(\d+)", DOCKERFILE))
    (exposed,) = re.findall(r"^EXPOSE (.*)$", DOCKERFILE, re.MULTILINE)
    assert set(exposed.split()) == ports
    (deployed,) = of_kind("Deployment")["spec"]["template"]["spec"]["containers"]
    assert {str(port["containerPort"]) for port in deployed["ports"]} == ports


# ---- Kubernetes and KServe -----------------------------------------------------------------------


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.name)
def test_manifests_are_what_kubernetes_takes(path: Path) -> None:
    for document in documents(path):
        kubernetes_validate.validate(document, KUBERNETES, strict=True)


def test_the_serving_runtime_is_what_kserve_takes() -> None:
    schema = json.loads((ROOT / "tests/schemas/kserve.json").read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator.check_schema(schema)
    for document in documents(KSERVE):
        jsonschema.validate(document, schema)
    runtime = of_kind("ServingRuntime")
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": runtime["metadata"]}
    spec = {"containers": runtime["spec"]["containers"]}
    kubernetes_validate.validate({**pod, "spec": spec}, KUBERNETES, strict=True)
    service = of_kind("InferenceService")["spec"]["predictor"]["model"]
    assert service["runtime"] == runtime["metadata"]["name"]
    assert service["protocolVersion"] in runtime["spec"]["protocolVersions"]
    formats = [one["name"] for one in runtime["spec"]["supportedModelFormats"]]
    assert service["modelFormat"]["name"] in formats


def rendered(folder: Path) -> list[dict[str, Any]]:
    done = subprocess.run([str(KUBECTL), "kustomize", str(folder)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return list(yaml.safe_load_all(done.stdout))


def by_kind(objects: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    assert len({one["kind"] for one in objects}) == len(objects)
    return {one["kind"]: one for one in objects}


@pytest.mark.skipif(KUBECTL is None, reason="kubectl is not installed")
@pytest.mark.parametrize("folder", [BASE, BASE / "autoscaling"], ids=lambda folder: folder.name)
def test_kustomize_renders_the_objects_of_the_plain_files(folder: Path) -> None:
    listed = yaml.safe_load((folder / "kustomization.yaml").read_text(encoding="utf-8"))["resources"]
    plain = [document for name in listed for document in documents(folder / name)]
    assert by_kind(rendered(folder)) == by_kind(plain)


@pytest.mark.skipif(KUBECTL is None, reason="kubectl is not installed")
def test_the_overlay_of_the_page_gives_the_base_its_own_namespace_and_image(tmp_path: Path) -> None:
    page = (ROOT / "docs/containers.md").read_text(encoding="utf-8")
    (overlay,) = re.findall(r"^```yaml\n(# overlay/.*?)^```$", page, re.MULTILINE | re.DOTALL)
    shutil.copytree(BASE, tmp_path / "configs/kubernetes")
    (tmp_path / "overlay").mkdir()
    (tmp_path / "overlay/kustomization.yaml").write_text(overlay, encoding="utf-8")
    objects = rendered(tmp_path / "overlay")
    for one in objects:
        kubernetes_validate.validate(one, KUBERNETES, strict=True)
        assert one["metadata"]["namespace"] == "models"
    kinds = by_kind(objects)
    assert "HorizontalPodAutoscaler" in kinds
    (container,) = kinds["Deployment"]["spec"]["template"]["spec"]["containers"]
    assert container["image"] == "registry.example/interpool:0.1.0"


def test_all_containers_run_the_image_that_the_dockerfile_names() -> None:
    (image,) = set(re.findall(r"docker build .* -t (\S+) ", DOCKERFILE))
    assert {container["image"] for container in containers()} == {image}


def test_readiness_is_asked_where_the_image_answers_it() -> None:
    (port,) = re.findall(r"INTERPOOL_METRICS_ADDRESS=0\.0\.0\.0:(\d+)", DOCKERFILE)
    found = [container for container in containers() if "readinessProbe" in container]
    assert len(found) == 2
    for container in found:
        ports = {each.get("name"): each["containerPort"] for each in container["ports"]}
        probe = container["readinessProbe"]["httpGet"]
        assert probe["path"] == "/ready"
        assert str(ports.get(probe["port"], probe["port"])) == port


def test_services_policies_and_budgets_choose_the_pods_that_are_deployed() -> None:
    pods = of_kind("Deployment")["spec"]["template"]
    names = {port["name"] for port in pods["spec"]["containers"][0]["ports"]}
    assert of_kind("Deployment")["spec"]["selector"]["matchLabels"] == pods["metadata"]["labels"]
    service = of_kind("Service")["spec"]
    assert service["selector"] == pods["metadata"]["labels"]
    assert {port["targetPort"] for port in service["ports"]} <= names
    assert of_kind("PodDisruptionBudget")["spec"]["selector"]["matchLabels"] == pods["metadata"]["labels"]
    policy = of_kind("NetworkPolicy")["spec"]
    assert policy["podSelector"]["matchLabels"] == pods["metadata"]["labels"]
    assert {port["port"] for rule in policy["ingress"] for port in rule["ports"]} == names
    scraped = (CONFIGS / "kubernetes/prometheus-scrape.yml").read_text(encoding="utf-8")
    assert set(re.findall(r"port_name\], regex: (\w+)", scraped)) <= names


def test_replicas_follow_metrics_that_the_adapter_makes() -> None:
    scaler = of_kind("HorizontalPodAutoscaler")["spec"]
    assert scaler["scaleTargetRef"]["name"] == of_kind("Deployment")["metadata"]["name"]
    made = {rule["name"]["as"] for rule in adapter_rules()}
    assert {metric["pods"]["metric"]["name"] for metric in scaler["metrics"]} == made
    for rule in adapter_rules():
        assert list(selectors(adapter_query(rule)))
        assert list(selectors(rule["seriesQuery"]))


# ---- Prometheus and Grafana: names are held to a running server in tests/system ------------------


def test_every_expression_is_valid_promql() -> None:
    for title, expression in (*panels(), *alerts()):
        assert list(selectors(expression)), title


def test_alerts_say_what_and_what_to_do() -> None:
    rules = [rule for group in documents(RULES)[0]["groups"] for rule in group["rules"]]
    assert len({rule["alert"] for rule in rules}) == len(rules)
    for rule in rules:
        assert rule["labels"]["severity"] in {"warning", "critical"}
        assert set(rule["annotations"]) == {"summary", "description"}
    page = (ROOT / "docs/monitoring.md").read_text(encoding="utf-8")
    assert [rule["alert"] for rule in rules if f"`{rule['alert']}`" not in page] == []


PROMTOOL = shutil.which("promtool")


@pytest.mark.skipif(PROMTOOL is None, reason="Prometheus is not installed (Debian: prometheus)")
@pytest.mark.parametrize(
    "arguments",
    [
        ["check", "config", "configs/prometheus/prometheus.yml"],
        ["check", "rules", "configs/prometheus/alerts.yml"],
        ["test", "rules", "tests/alerts_test.yml"],
    ],
    ids=lambda arguments: " ".join(arguments[:2]),
)
def test_prometheus_accepts_the_configurations(arguments: list[str]) -> None:
    said = subprocess.run([str(PROMTOOL), *arguments], cwd=ROOT, capture_output=True, text=True)
    assert said.returncode == 0, said.stdout + said.stderr


def _parses(command: str, options: list[str]) -> None:
    """Whether the command takes these options; runs nothing."""
    found = CliRunner().invoke(main, [command, *options, "--help"])
    assert found.exit_code == 0, found.output
    main.commands[command].make_context(command, list(options))
