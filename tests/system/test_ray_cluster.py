"""Replicas of Ray Serve on a cluster of three nodes: real raylets on this machine, one replica on each."""

from __future__ import annotations

import json
import os
import re
import signal
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from clients import Load
from local_server import free_ports
from prometheus_client.parser import text_string_to_metric_families
from ray_serving import deploy, make_archive, over_http, own_numbers, replicas
from waiting import wait_for

ray = pytest.importorskip("ray")
pytestmark = [pytest.mark.long, pytest.mark.filterwarnings("ignore")]  # warnings of Ray's own
X = [1.0, -2.0, 0.5]
STORE_BYTES = 80 << 20
NODES = 3
ONE_CPU = {"num_cpus": 1}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("ray")
    make_archive(folder, "old", 1)
    make_archive(folder, "new", 2)
    return folder


@pytest.fixture(scope="module")
def cluster(store: Path) -> Iterator[Any]:
    from ray.cluster_utils import Cluster

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_AUTH_MODE", "disabled")
        patch.setenv("RAY_raylet_start_wait_time_s", "300")
        patch.setenv("RAY_worker_niceness", "0")  # as urgent as the test that waits for them
        # The proxy is on one node, and is to ask the replicas of others, too.
        patch.setenv("RAY_SERVE_PROXY_PREFER_LOCAL_NODE_ROUTING", "0")
        patch.setenv("INTERPOOL_ORDINARY_ARCHIVES", "pool")
        patch.setenv("INTERPOOL_RUNTIME_DIR", str(store / "run"))
        running = Cluster()
        try:
            for number in range(NODES):
                add_node(running, is_head=number == 0)
            ray.init(address=running.address, log_to_driver=False)
            yield running
        finally:
            ray.shutdown()
            running.shutdown()


@pytest.fixture(scope="module")
def port(cluster: Any) -> Iterator[int]:
    from ray import serve

    (free,) = free_ports(1)
    serve.start(proxy_location="HeadOnly", http_options={"port": free})  # all nodes have one address
    yield free
    serve.shutdown()


def add_node(cluster: Any, is_head: bool = False) -> None:
    head = {"include_dashboard": False} if is_head else {}
    cluster.add_node(num_cpus=1, object_store_memory=STORE_BYTES, **head)


def by_handle(handle: Any, **asked: Any) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(
        handle.predict.remote("model", {"x": X, **asked}).result(timeout_s=120)
    )
    return answer


def by_proxy(port: int, **asked: Any) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(over_http(port, "model", json.dumps({"x": X, **asked}).encode()))
    return answer


def wait_for_replicas(count: int) -> None:
    wait_for(lambda: len(replicas()) == count, lambda: f"{count} replicas, not {replicas()}", 300, 0.2)


def test_replicas_on_all_nodes_give_the_models_own_numbers(port: int, store: Path) -> None:
    archive = store / "old.mar"
    handle = deploy({"model": str(archive)}, num_replicas=NODES, ray_actor_options=ONE_CPU)
    wait_for_replicas(NODES)
    assert len({each["node_id"] for each in replicas()}) == NODES
    expected, pids = own_numbers(archive, X), {each["pid"] for each in replicas()}

    def check(ask: Callable[[], dict[str, Any]]) -> None:
        asked: set[int] = set()

        def all_have_answered() -> bool:
            answer = ask()
            assert answer["y"] == expected
            asked.add(answer["pid"])
            return asked == pids

        wait_for(all_have_answered, "an answer of each replica")

    check(lambda: by_handle(handle))
    check(lambda: by_proxy(port))


def test_models_are_replaced_on_all_nodes_under_load_without_a_failed_request(port: int, store: Path) -> None:
    old, new = (own_numbers(store / f"{name}.mar", X) for name in ("old", "new"))
    settings = {"num_replicas": NODES, "ray_actor_options": ONE_CPU}
    handle = deploy({"model": str(store / "old.mar")}, **settings)
    wait_for_replicas(NODES)
    pids = {each["pid"] for each in replicas()}
    with Load(lambda: by_handle(handle)["y"]) as by_handles, Load(lambda: by_proxy(port)["y"]) as by_proxies:
        wait_for(lambda: by_handles.answers and by_proxies.answers, "first answers")
        deploy({"model": str(store / "new.mar")}, **settings)
        seen: dict[int, Any] = {}

        def all_have_it() -> bool:
            answer = by_handle(handle)
            seen[answer["pid"]] = answer["y"]
            return seen == dict.fromkeys(pids, new)

        wait_for(all_have_it, lambda: f"the new model everywhere: {seen}")
    assert {each["pid"] for each in replicas()} == pids
    for load in (by_handles, by_proxies):
        assert load.failures == []
        assert load.answers.keys() == {repr(old), repr(new)}


def test_replicas_are_replaced_under_load_without_a_failed_request(port: int, store: Path) -> None:
    expected = own_numbers(store / "old.mar", X)
    models = {"model": str(store / "old.mar")}
    handle = deploy(models, num_replicas=NODES, ray_actor_options=ONE_CPU)
    wait_for_replicas(NODES)
    before = {each["pid"] for each in replicas()}
    with Load(lambda: by_handle(handle)["y"]) as by_handles, Load(lambda: by_proxy(port)["y"]) as by_proxies:
        wait_for(lambda: by_handles.answers and by_proxies.answers, "first answers")
        changed = {**ONE_CPU, "runtime_env": {"env_vars": {"INTERPOOL_LOG_LEVEL": "warning"}}}
        deploy(models, num_replicas=NODES, ray_actor_options=changed)
        wait_for(
            lambda: len(replicas()) == NODES and not before & {each["pid"] for each in replicas()},
            lambda: f"new replicas, not {replicas()} after {before}",
            300,
            0.2,
        )
    for load in (by_handles, by_proxies):
        assert load.failures == []
        assert load.answers.keys() == {repr(expected)}


def test_a_node_that_is_lost_under_load_costs_its_requests_alone_and_its_replica_comes_back(
    cluster: Any, port: int, store: Path
) -> None:
    expected = own_numbers(store / "old.mar", X)
    handle = deploy({"model": str(store / "old.mar")}, num_replicas=NODES, ray_actor_options=ONE_CPU)
    wait_for_replicas(NODES)
    lost = next(iter(cluster.worker_nodes))
    (replica,) = [each for each in replicas() if each["node_id"] == lost.node_id]
    clients = 4
    with (
        Load(lambda: by_handle(handle, sleep=0.1)["y"], clients) as by_handles,
        Load(lambda: by_proxy(port, sleep=0.1)["y"], clients) as by_proxies,
    ):
        loads = by_handles, by_proxies

        def wait_for_answers(count: int) -> None:
            """Of so many further ones to each kind of client."""
            before = [load.answers.total() for load in loads]
            wait_for(
                lambda: all(
                    load.answers.total() >= had + count for load, had in zip(loads, before, strict=True)
                ),
                "answers",
            )

        wait_for_answers(20)
        os.kill(replica["pid"], signal.SIGKILL)  # as power that fails does, all at once
        cluster.remove_node(lost, allow_graceful=False)
        wait_for(lambda: replica["pid"] not in {each["pid"] for each in replicas()}, "Ray to see it")
        failures = [list(load.failures) for load in loads]
        wait_for_answers(20)
        add_node(cluster)
        wait_for_replicas(NODES)
        wait_for_answers(20)
    for load, at_once in zip(loads, failures, strict=True):
        assert load.answers.keys() == {repr(expected)}
        assert load.failures == at_once
        assert len(at_once) <= clients  # one each at most: what it had asked that replica
    assert all(re.match("Actor(Died|Unavailable)Error", each) for each in by_handles.failures)
    assert all(each.startswith("HTTPError: HTTP Error 500") for each in by_proxies.failures)
    assert by_handles.failures or by_proxies.failures
    alive = {node["NodeID"] for node in ray.nodes() if node["Alive"]}
    assert {each["node_id"] for each in replicas()} == alive


def test_replicas_grow_with_the_load_from_one_to_three_and_back(port: int, store: Path) -> None:
    expected = own_numbers(store / "old.mar", X)
    scaling = {
        "min_replicas": 1,
        "max_replicas": NODES,
        "target_ongoing_requests": 2,
        "upscale_delay_s": 1,
        "downscale_delay_s": 3,
        "metrics_interval_s": 0.5,
        "look_back_period_s": 2,
    }
    handle = deploy(
        {"model": str(store / "old.mar")},
        num_replicas=None,
        autoscaling_config=scaling,
        ray_actor_options=ONE_CPU,
    )
    wait_for_replicas(1)
    with Load(lambda: by_handle(handle)["y"]) as always:
        with Load(lambda: by_proxy(port, sleep=0.3)["y"], 8) as busy:
            wait_for_replicas(NODES)
        wait_for_replicas(1)
    for load in (always, busy):
        assert load.failures == []
        assert load.answers.keys() == {repr(expected)}


def test_each_nodes_metrics_and_logs_have_those_of_its_replica(port: int, store: Path) -> None:
    handle = deploy({"model": str(store / "old.mar")}, num_replicas=NODES, ray_actor_options=ONE_CPU)
    wait_for_replicas(NODES)
    asked = Counter(by_handle(handle)["pid"] for _ in range(40))
    with pytest.raises(ray.exceptions.RayTaskError, match="answered 503"):
        handle.predict.remote("model", {"x": "no numbers"}).result(timeout_s=60)
    labels = {"application": "interpool", "deployment": "interpool", "model": "model", "version": "1.0"}
    ours = {each["replica_id"]: each for each in replicas()}

    def counted(name: str, **more: str) -> dict[str, float]:
        """Of each replica, as the agent of its node says it."""
        found = {}
        for node in ray.nodes():
            for sample in samples(node) if node["Alive"] else ():
                if sample.name == name and sample.labels.items() >= {**labels, **more}.items():
                    replica = sample.labels["replica"]
                    if replica in ours:
                        assert ours[replica]["node_id"] == node["NodeID"]
                        found[replica] = sample.value
        return found

    def answered() -> dict[int, float]:
        found = counted("ray_interpool_direct_requests_total", status="200")
        return {ours[replica]["pid"]: count for replica, count in found.items()}

    wait_for(lambda: answered() == asked, lambda: f"{asked} in the metrics, not {answered()}", pause=1)
    assert sum(counted("ray_interpool_direct_requests_total", status="503").values()) == 1
    assert sum(counted("ray_interpool_direct_request_seconds_count").values()) == 41
    assert 0 < sum(counted("ray_interpool_direct_request_seconds_sum").values()) < 41

    def waiting() -> dict[str, float]:
        return counted("ray_interpool_direct_requests_waiting")

    wait_for(lambda: waiting() == dict.fromkeys(ours, 0), lambda: f"empty queues, not {waiting()}", pause=1)
    for replica in ours:
        (log,) = Path(ray._private.worker._global_node.get_logs_dir_path(), "serve").glob(f"*{replica}.log")
        assert "model 'model' is served from " in log.read_text()


def samples(node: dict[str, Any]) -> list[Any]:
    url = f"http://{node['NodeManagerAddress']}:{node['MetricsExportPort']}/metrics"
    with urllib.request.urlopen(url, timeout=60) as answer:
        said = answer.read().decode()
    return [each for family in text_string_to_metric_families(said) for each in family.samples]
