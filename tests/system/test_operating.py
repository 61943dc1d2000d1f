"""What an operator sees of a running server: metrics, dashboard, alerts, readiness, reasons."""

from __future__ import annotations

import json
import os
import re
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import guarded
import pytest
from local_server import INTERPOOL, JSON, Answer, TorchServe, command_of, free_ports
from paths import ROOT
from prometheus_client.parser import text_string_to_metric_families
from promql import alerts, panels, selectors, variables
from system.conftest import Mar, Pack, wait_for_log
from test_configs import adapter_query, adapter_rules, properties
from waiting import wait_for

from interpool.handler.host.model_status import ModelView, models_of, why_not_ready

pytestmark = pytest.mark.long

PRODUCTION = ROOT / "configs/production.properties"


def scrape(url: str) -> str:
    with urllib.request.urlopen(url) as answer:
        return str(answer.read().decode())


def labels_of(text: str) -> dict[str, set[str]]:
    """The labels that there are, by names as Prometheus keeps them; none yet of what has no samples."""
    found: dict[str, set[str]] = {name: set() for name in re.findall(r"^# TYPE (\w+)", text, re.MULTILINE)}
    for name, labels in re.findall(r"^(\w+)(?:\{(.*)\})? \S+$", text, re.MULTILINE):
        found.setdefault(name, set()).update(re.findall(r'(\w+)="', labels))
    return found


class Operated(TorchServe):
    """A server with a direct address, whose pools' metrics are served beside it."""

    def __init__(self) -> None:
        port, direct = free_ports(2)
        self.exporter = f"http://127.0.0.1:{port}/metrics"
        self.direct = f"http://127.0.0.1:{direct}"
        addresses = {
            "INTERPOOL_METRICS_ADDRESS": f"127.0.0.1:{port}",
            "INTERPOOL_DIRECT_ADDRESS": f"127.0.0.1:{direct}",
        }
        super().__init__(environment=addresses)

    def value(self, name: str, **labels: str) -> float | None:
        """The one sample of that name with these labels, or None."""
        families = text_string_to_metric_families(scrape(self.exporter))
        samples = [sample for family in families for sample in family.samples]
        found = [s.value for s in samples if s.name == name and labels.items() <= s.labels.items()]
        assert len(found) < 2, (name, labels)
        return found[0] if found else None

    def views(self, name: str) -> list[tuple[ModelView, list[str]]]:
        """What `interpool status --check` looks at: the model in each pool, and why it is not ready there."""
        return [
            (view, why_not_ready(pool, view))
            for pool in self.pools().values()
            for view in models_of(pool)
            if view.is_called(name)
        ]

    def interpool(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*INTERPOOL, *arguments],
            env={**os.environ, **self.own_environment},
            capture_output=True,
            text=True,
        )

    def ts_log(self) -> str:
        return (self.logs / "ts_log.log").read_text()


@pytest.fixture(scope="module")
def server(mar: Mar) -> Iterator[Operated]:
    """With a model that is served, one that cannot be loaded, and one whose call ended its worker."""
    with Operated() as running:
        for name in ("inside", "exits"):
            assert running.register(mar(running, name, "inside"), initial_workers=2).status == 200
        assert running.register(mar(running, "broken", "raises")).status == 500
        assert running.predict("inside", {}).status == 200
        wait_for(lambda: any(pool["beside"] for pool in running.pools().values()), "the direct address")
        assert running.request("POST", f"{running.direct}/predictions/inside", b"{}", JSON).status == 200
        assert running.predict("exits", {"exit": 3}).status == 500
        wait_for(lambda: running.value("interpool_worker_restarts_total", model="exits"), "a restart")
        wait_for(lambda: [reasons for _, reasons in running.views("exits")] == [[]], "its worker to be ready")
        yield running


def test_dashboard_and_alerts_ask_for_what_is_exported_and_for_nothing_else(server: Operated) -> None:
    wait_for(lambda: server.value("interpool_model_load_failures_total", model="broken"), "a failed load")
    exported = labels_of(scrape(server.exporter)) | labels_of(scrape(f"{server.metrics}/metrics"))
    exported["up"] = {"job", "instance"}  # Prometheus's own
    for title, expression in (*panels(), *alerts()):
        for name, labels in selectors(expression):
            assert name in exported, f"{title}: nothing exports {name}"
            assert labels <= exported[name], f"{title}: {name} has no {labels - exported[name]}"
    for rule in adapter_rules():
        for name, labels in (*selectors(adapter_query(rule)), *selectors(rule["seriesQuery"])):
            # Kubernetes's labels are added where the pods are scraped.
            assert name in exported
            assert labels <= {*exported[name], "namespace", "pod"}
    for title, query in variables():
        found = re.fullmatch(r"label_values\((.*), (\w+)\)", query)
        assert found, query
        ((name, labels),) = selectors(found[1])
        assert {*labels, found[2]} <= exported[name], f"{title}: {query}"


def test_every_metric_of_the_pools_is_in_a_panel_or_an_alert(server: Operated) -> None:
    used = {name for _, text in (*panels(), *alerts()) for name, _ in selectors(text)}
    exported = set(labels_of(scrape(server.exporter)))
    assert exported - used == {
        "interpool_direct_request_seconds",  # their parts are
        "interpool_interpreters_min",
        "interpool_lease_seconds",
        "interpool_lease_wait_seconds",
        "interpool_pools",
        "interpool_worker_starts_total",
    }


def test_counts_are_those_of_what_happened(server: Operated) -> None:
    workers = server.value("interpool_workers", model="inside", state="connected")
    loads = server.value("interpool_model_loads_total", model="inside")
    leases = server.value("interpool_lease_wait_seconds_count", model="inside")
    assert workers == 2
    assert loads in (1, 2)  # interpreters
    assert leases is not None
    assert leases >= 3  # two workers' loads, and a request
    assert server.value("interpool_worker_ends_total", model="exits", reason="model_exit") == 1
    assert server.value("interpool_worker_starts_total", model="exits") == 3
    for kind, least in {"anonymous": 1e6, "file": 1e6, "shims": 1e4}.items():
        assert (server.value("interpool_memory_bytes", kind=kind) or 0) > least


def test_a_call_that_waits_is_seen_and_ends_the_readiness_of_its_model_only(server: Operated) -> None:
    gate = server.root / "gate"
    with ThreadPoolExecutor(3) as threads:
        # One of each: a model that has an interpreter is not given another one after a while.
        busy = [threads.submit(server.predict, name, {"until": str(gate)}) for name in ("inside", "exits")]
        wait_for(lambda: server.value("interpool_interpreters", state="leased") == 2, "two leases")
        late = threads.submit(server.predict, "exits", {})
        wait_for(lambda: server.value("interpool_calls_waiting", model="exits") == 1, "a call that waits")
        wait_for(
            lambda: (server.value("interpool_longest_wait_seconds", model="exits") or 0) > 0.1, "a while"
        )
        waiting = server.interpool("status", "--check", "exits", "--patience", "0.1")
        other = server.interpool("status", "--check", "inside/1.0", "--patience", "0.1")
        shown = server.interpool("status", "--watch", "--times", "1")
        gate.touch()
        assert [one.result().status for one in (*busy, late)] == [200, 200, 200]
    assert waiting.returncode == 1
    assert "exits/1.0 in pool 'default': not ready: a call has waited" in waiting.stdout
    assert other.returncode == 0, other.stdout
    assert "model exits/1.0: workers 2 connected" in shown.stdout
    assert (server.value("interpool_lease_wait_seconds_sum", model="exits") or 0) > 0.1
    assert (server.value("interpool_lease_seconds_sum", model="inside") or 0) > 0.1
    assert (server.value("interpool_requests_total", model="exits") or 0) >= 2
    assert server.value("interpool_failed_requests_total", model="exits") == 1  # that which ended its worker
    assert server.value("interpool_failed_requests_total", model="inside") == 0


def test_probes_answer_at_the_address_of_the_metrics(server: Operated) -> None:
    base = server.exporter.removesuffix("/metrics")
    assert json.loads(scrape(f"{base}/ready?model=inside"))["ready"]
    assert json.loads(scrape(f"{base}/health")) == {"pools": 1, "silent_hosts": []}
    with pytest.raises(urllib.error.HTTPError, match="503"):
        scrape(f"{base}/ready?model=nobody")


def test_a_model_that_could_not_be_loaded_is_not_ready_and_says_why(server: Operated) -> None:
    wait_for(lambda: server.value("interpool_model_load_failures_total", model="broken"), "a failed load")

    def is_gone() -> bool:
        # Not ready until the host sees that TorchServe has removed it.
        views = [view for view, _ in server.views("broken")]
        return any(view.reason for view in views) and not any(view.registered for view in views)

    wait_for(is_gone, "the model to go", pause=0.1)
    checked = server.interpool("status", "--check", "broken")
    assert checked.returncode == 5
    assert "no vocabulary here" in checked.stderr


def test_torchserves_own_log_has_the_reasons_in_one_line_each(server: Operated) -> None:
    words = (
        "interpool: Model 'broken' could not be loaded: FileNotFoundError: no vocabulary here",
        "interpool: a worker of 'exits' ended: SystemExit: 3",
    )
    wait_for(lambda: all(line in server.ts_log() for line in words), "two reasons in ts_log.log")
    assert re.search(r"'exits' ended: .* \[request [0-9a-f]{8}\]", server.ts_log())
    assert "METRICS" not in server.model_log()


class Guarded(TorchServe):
    """A server with the sample configuration for production, on ports of its own."""

    def __init__(self) -> None:
        super().__init__()
        config = self.root / "config.properties"
        own = properties(config)
        addresses = {key: value for key, value in own.items() if "address" in key or "port" in key}
        sample = {**properties(PRODUCTION), **addresses}
        config.write_text("".join(f"{key}={value}\n" for key, value in sample.items()))

    def get(self, path: str) -> Answer:
        """With TorchServe's token, which it asks for here as well."""
        try:
            return self.asked("inference", "GET", self.inference + path)
        except (OSError, ValueError) as error:  # no keys yet, or half of them
            return Answer(0, str(error).encode(), {})

    def asked(self, kind: str, method: str, url: str, body: bytes | None = None) -> Answer:
        return guarded.ask(method, url, token=guarded.token(self, kind), body=body)


def test_the_sample_for_production_serves_its_store_to_clients_with_the_token(mar: Mar) -> None:
    made = Guarded()
    mar(made, "inside", "inside")
    with made as server:
        url = f"{server.inference}/predictions/inside"
        wait_for(lambda: server.asked("inference", "POST", url, b"{}").status == 200, "the model")
        assert server.request("POST", url, b"{}").status == 400  # TorchServe's for "no token"
        assert server.request("GET", f"{server.inference}/ping").status == 400
        assert server.request("GET", f"{server.metrics}/metrics").status == 200
        workers = server.asked("management", "GET", f"{server.management}/models/inside").json[0]["workers"]
        assert len(workers) == int(properties(PRODUCTION)["default_workers_per_model"])
        more = f"{server.management}/models?url=inside.mar&model_name=other"
        assert server.asked("management", "POST", more).status == 405
        # TorchServe has no switch for these.
        brought = json.dumps({"url": "file:///tmp/flow.war"}).encode()
        workflow = server.asked("management", "POST", f"{server.management}/workflows", brought)
        assert (workflow.status, "does not match any allowed URL" in workflow.text) == (404, True)


def test_the_exporter_stays_while_hosts_go_and_leaves_with_torchserve(mar: Mar) -> None:
    with Operated() as server:
        assert server.register(mar(server, "inside", "inside")).status == 200
        before = server.value("interpool_host_start_time_seconds")
        server.kill_host()
        wait_for(
            lambda: server.value("interpool_host_start_time_seconds") not in (None, before), "another host"
        )
        (exporter,) = [
            process
            for process in server.processes()
            if "interpool.handler.host.prometheus" in command_of(process)
        ]
        server.stop()
        assert not exporter.is_running()


def test_an_address_that_is_taken_is_refused_before_anything_starts(server: Operated) -> None:
    address = server.exporter.removeprefix("http://").removesuffix("/metrics")
    other = server.interpool("exporter", "--listen", address)
    assert other.returncode == 5
    assert f"the metrics cannot be served at {address}: [Errno 98]" in other.stderr


def test_a_model_goes_by_the_name_that_it_is_registered_by(server: Operated) -> None:
    assert server.register("inside.mar", model_name="alias1").status == 200
    try:
        assert server.predict("alias1", {}).status == 200
        checked = server.interpool("status", "--check", "alias1")
        assert (checked.returncode, checked.stdout.strip()) == (0, "alias1/1.0 in pool 'default': ready")
        loads = "interpool_model_loads_total"
        wait_for(lambda: server.value(loads, model="alias1", version="1.0"), "its loads to be counted")
        assert "model alias1/1.0: workers 1 connected" in server.interpool("status").stdout
    finally:
        server.unregister("alias1")
    unserved = server.interpool("status", "--check", "nonesuch")
    assert unserved.returncode == 5
    assert "no pool serves a model 'nonesuch' (served: " in unserved.stderr
    assert f'curl -X POST "{server.management}/models?url=nonesuch.mar' in unserved.stderr


def test_a_package_that_is_registered_is_refused_by_torchserve_as_documented(
    server: Operated, packed: Pack
) -> None:
    (server.store / "bare.ptpkg").write_bytes(packed("inside").read_bytes())
    refused = server.register("bare.ptpkg")
    said = str(refused.json["message"]).replace("bare.ptpkg", "NAME.ptpkg")
    page = (ROOT / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
    assert f"| {refused.status}, `{said}`" in page


def test_a_configuration_out_of_the_models_directory_is_refused(server: Operated, mar: Mar) -> None:
    (server.root / "secret.yaml").write_text("interpool: {pool: stolen}\n")
    directory = server.store / mar(server, "leads_out", "inside", archive_format="no-archive")
    manifest = directory / "MAR-INF" / "MANIFEST.json"
    document = json.loads(manifest.read_text())
    document["model"]["configFile"] = "../../secret.yaml"
    manifest.write_text(json.dumps(document))
    assert server.register("leads_out").status == 400
    wait_for_log(server, "its configFile '../../secret.yaml' leads out of the model's directory")
    assert "stolen" not in server.pools()
