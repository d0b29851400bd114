"""The dashboard's queries and filters in a real Prometheus that scrapes the real extender and the real plugin."""

from __future__ import annotations

import json
import socket
import ssl
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml

from sandbox.hardware.fake_sysfs import FLEX_170, fake_gpus
from tests.e2e.deployed import DEPLOY
from tests.e2e.gpu_node import GpuNode
from tests.e2e.gpu_use import Overlay
from tests.e2e.pods import container, pod
from tests.e2e.ports import free_port
from tests.e2e.programs import Program
from tests.e2e.waiting import wait_for

DASHBOARD = json.loads((DEPLOY / "components/monitoring/dashboard.json").read_text())
QUERIES = {
    f"{panel['title']} {target['refId']}": target["expr"]
    for panel in DASHBOARD["panels"]
    for target in panel.get("targets", ())
}
MEASURES = ["--usage"] if any("memory_used_bytes" in expression for expression in QUERIES.values()) else []
"""The flags of a plugin that has all series of the dashboard, apart from limits of memory."""
VARIABLES = {each["name"]: each["definition"] for each in DASHBOARD["templating"]["list"] if each["type"] == "query"}
GB = 10**9
MIB = 2**20
CARD = 16 * 2**30
"""Bytes of memory of each of the two cards."""
OTHER_NAMESPACE = "measured"


class Prometheus:
    """A server that scrapes the programs every second, with the labels that the PodMonitors add."""

    def __init__(self, program: Path, directory: Path, gpu_node: GpuNode) -> None:
        self._port = free_port()
        self._directory = directory
        file = directory / "prometheus.yaml"
        scraped = {
            "extender": (gpu_node.extender.endpoint.readiness_port, {"namespace": "default", "pod": "gas-0"}),
            "plugin": (gpu_node.plugin.port, {"namespace": "default", "pod": "plugin-0", "node": gpu_node.node.name}),
        }
        jobs = [
            {
                "job_name": name,
                "honor_labels": True,
                "static_configs": [{"targets": [f"127.0.0.1:{port}"], "labels": labels}],
            }
            for name, (port, labels) in scraped.items()
        ]
        file.write_text(yaml.safe_dump({"global": {"scrape_interval": "1s"}, "scrape_configs": jobs}))
        command = [
            str(program),
            f"--config.file={file}",
            f"--storage.tsdb.path={directory / 'data'}",
            f"--web.listen-address=127.0.0.1:{self._port}",
        ]
        self.program = Program("prometheus", command, log=directory / "prometheus.log")

    def start(self) -> None:
        self.program.start()
        self.program.wait_until_healthy(self._port, self._is_ready, seconds=120)

    def _is_ready(self) -> bool:
        with suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{self._port}/-/ready", timeout=10) as reply:
            return bool(reply.status == 200)
        return False

    def get(self, path: str, **parameters: str) -> Any:
        """Return the data of a GET of the API. Raises HTTPError if the query is wrong."""
        url = f"http://127.0.0.1:{self._port}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        with urllib.request.urlopen(url, timeout=30) as reply:
            return json.load(reply)["data"]

    def query(self, expression: str, *, node: str = ".*", namespace: str = ".*") -> dict[tuple[str, ...], float]:
        """Return the values of an expression of the dashboard now, by the values of their labels."""
        filled = expression.replace("$__rate_interval", "1m").replace("$node", node).replace("$namespace", namespace)
        return {
            tuple(text for _, text in sorted(each["metric"].items())): float(each["value"][1])
            for each in self.get("query", query=filled)["result"]
        }


@pytest.fixture(scope="module")
def prometheus(gpu_node: GpuNode, binaries: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """Provide Prometheus, and a node with one pod on its two cards, while another pod asks for more than a card has.

    The pod that runs has 10 GB of the first card and uses 300 MiB of it. Both are of another namespace.
    """
    gpu_node.start(fake_gpus(FLEX_170, 2), "--shared-dev-num=4", *MEASURES, "--memory-limits=pod")
    api = gpu_node.api
    pods = f"/api/v1/namespaces/{OTHER_NAMESPACE}/pods"
    api.create("/api/v1/namespaces", {"metadata": {"name": OTHER_NAMESPACE}})
    api.create(f"/api/v1/namespaces/{OTHER_NAMESPACE}/serviceaccounts", {"metadata": {"name": "default"}})
    server = Prometheus(binaries / "prometheus", tmp_path_factory.mktemp("prometheus"), gpu_node)
    try:
        for name, memory in (("holder", 10 * GB), ("large", 18 * GB)):
            written = pod(name, container(i915=1, millicores=100, memory_max=memory))
            gpu_node.prepare(written)
            api.create(pods, written)
        holder = wait_for("the pod", lambda: _running(api.get(f"{pods}/holder")), seconds=300)
        overlay = Overlay(gpu_node)
        overlay.show(gpu_node.node.pid(holder, "main"), 300)
        overlay.cover()
        _call_without_a_certificate(gpu_node.extender.endpoint.port)
        server.start()
        with suppress(TimeoutError):  # a test says which are missing
            wait_for("all series", lambda: not _without_series(server), seconds=120, every=1)
        yield server
    finally:
        server.program.kill()


def _running(of: dict[str, Any]) -> dict[str, Any] | None:
    return of if of["status"].get("phase") == "Running" else None


def _call_without_a_certificate(port: int) -> None:
    """Be refused by the extender, which counts it."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with (
        suppress(ssl.SSLError, ConnectionError),
        socket.create_connection(("127.0.0.1", port), timeout=30) as raw,
        context.wrap_socket(raw) as tls,
    ):
        tls.recv(1)


def _without_series(prometheus: Prometheus) -> list[str]:
    return [title for title, expression in QUERIES.items() if not prometheus.query(expression)]


def test_every_query_has_series(prometheus: Prometheus) -> None:
    assert _without_series(prometheus) == []


@pytest.mark.skipif(not MEASURES, reason="no plugin measures use")
def test_panels_show_what_is_used(prometheus: Prometheus, gpu_node: GpuNode) -> None:
    node = gpu_node.node.name
    by_node = QUERIES["Memory booked and used by node B"]
    wait_for("the use", lambda: prometheus.query(by_node)[node,] >= 300 * MIB / (2 * CARD), seconds=60)
    used = prometheus.query(QUERIES["Booked and used by card B"])
    assert 300 * MIB / CARD <= used["card0", node] < 400 * MIB / CARD


def test_panels_show_what_is_booked_and_stranded_and_what_waits(prometheus: Prometheus, gpu_node: GpuNode) -> None:
    node = gpu_node.node.name
    by_node = "Memory booked and used by node"
    assert prometheus.query(QUERIES[f"{by_node} A"]) == {(node,): pytest.approx(10 * GB / (2 * CARD))}
    by_card = "Booked and used by card"
    booked = prometheus.query(QUERIES[f"{by_card} A"])
    assert booked.pop(("card0", node)) == pytest.approx(10 * GB / CARD)
    assert set(booked.values()) <= {0.0}
    stranded = prometheus.query(QUERIES["Stranded capacity A"])
    assert stranded["memory.max",] == pytest.approx((CARD - 10 * GB) / CARD)
    assert stranded["i915",] == 0.75
    assert prometheus.query(QUERIES["Waiting pods by reason A"]) == {("no-room",): 1}
    assert prometheus.query(QUERIES["Waiting pods by namespace A"]) == {(OTHER_NAMESPACE,): 1}
    (wait,) = prometheus.query(QUERIES["Longest wait by reason A"]).items()
    assert wait[0] == ("no-room",)
    assert 0 < wait[1] < 3600


def test_a_filter_leaves_what_it_names_and_nothing_else(prometheus: Prometheus, gpu_node: GpuNode) -> None:
    for variable, named in {"node": gpu_node.node.name, "namespace": OTHER_NAMESPACE}.items():
        metric, label = VARIABLES[variable].removeprefix("label_values(").removesuffix(")").rsplit(", ", 1)
        assert named in prometheus.get(f"label/{label}/values", **{"match[]": metric})
        filtered = {title: text for title, text in QUERIES.items() if f"${variable}" in text}
        assert filtered
        for title, text in filtered.items():
            assert prometheus.query(text, **{variable: named}).keys() == prometheus.query(text).keys(), title
            rest = prometheus.query(text, **{variable: "nothing|other"})
            assert set(rest.values()) <= ({0.0} if "or vector(0)" in text else set()), title
