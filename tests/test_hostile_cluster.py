"""A hostile API server, and hostile objects in it: the doctor, `kubectl gas` and the page show them, or say why not."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any, TypeVar
from unittest.mock import AsyncMock

import pytest
from hypothesis import given, reject
from hypothesis import strategies as st

from gas.cluster.errors import ApiRefused
from gas.doctor.all_parts import all_findings
from gas.doctor.checks import clocks
from gas.doctor.gather.everything import look_at_everything
from gas.doctor.report import as_json, as_text
from gas.inspection.cluster import Cluster
from gas.inspection.defrag import plan_moves, plan_report
from gas.inspection.fit import fit_all, fit_report
from gas.inspection.gather import read_cluster, read_decisions, read_use
from gas.inspection.manifests import WantedPods
from gas.inspection.node_view import node_lines
from gas.inspection.output import FORMATS, Look, as_data
from gas.inspection.output import written as report_text
from gas.inspection.page.board import Board
from gas.inspection.rows import card_report, node_report, pod_report, waste_of
from gas.inspection.why import explain, explanation_data, explanation_lines
from gas.values.errors import GasError
from gas.values.quoted import escaped
from tests.builders import pod_json
from tests.doctor.snapshots import entry
from tests.hostile import assert_no_bug, bodies, hostile, written
from tests.hostile_documents import ALL_VOCABULARIES, BOUND, CARD_USE, DECISION, NODE, PODS
from tests.inspection.example_cluster import page_of
from tests.lines import at_most

T = TypeVar("T")

PROGRAM = {"name": "e", "image": "gas:1", "command": ["gas-extender", "--admission-port=1", ALL_VOCABULARIES]}
PLUGIN = {
    "name": "p",
    "image": "gas:1",
    "command": ["gas-plugin", "--usage", "--memory-limits=pod"],
    "env": [{"name": "A"}],
}
SCHEDULER = {
    "name": "s",
    "command": ["kube-scheduler", "--config=/c/a"],
    "volumeMounts": [{"name": "c", "mountPath": "/c"}],
}
SERVING = pod_json(PROGRAM, PLUGIN, SCHEDULER, name="gas", node="bad", phase="Running")
SERVING["spec"] |= {"volumes": [{"name": "c", "configMap": {"name": "gas"}}], "serviceAccountName": "gas"}
SERVING["metadata"] |= {"namespace": "default"}
WEBHOOK = {
    "name": "bind.pods.gas",
    "clientConfig": {"service": {"namespace": "default", "name": "gas", "path": "/bind"}, "caBundle": "QQ=="},
    "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods/binding"]}],
    "namespaceSelector": {"matchLabels": {"a": "b"}},
    "matchConditions": [{"name": "a", "expression": "true"}],
    "timeoutSeconds": 2,
}
CONFIGURATION = {"kind": "KubeSchedulerConfiguration", "extenders": [entry(urlPrefix="https://gas.default.svc:9001")]}
OBJECTS: dict[str, Any] = {
    "/version": {"gitVersion": "v1.34.1"},
    "/api/v1/nodes": {"items": [NODE]},
    "/api/v1/pods": {"items": [SERVING, *BOUND, *PODS]},
    "/api/v1/namespaces/default/configmaps/gas": {"data": {"a": json.dumps(CONFIGURATION)}},
    "/api/v1/namespaces/default/services/gas": {"spec": {"clusterIP": "10.0.0.1", "ports": [{"port": 1}]}},
    "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices": {
        "items": [{"endpoints": [{"addresses": ["10.0.0.2"], "conditions": {"ready": True}}], "ports": [{"port": 1}]}]
    },
    "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases": {
        "items": [{"metadata": {"name": "bad"}, "spec": {"renewTime": "2027-01-15T07:59:55.000000Z"}}]
    },
    "/apis/authorization.k8s.io/v1/subjectaccessreviews": {"status": {"allowed": True}},
    "/apis/nfd.k8s-sigs.io/v1alpha1/nodefeatures": {"items": [{"metadata": {"name": "a"}}]},
    "/api/v1/nodes/bad/proxy/configz": {"kubeletconfig": {"topologyManagerPolicy": "none"}},
    **{
        f"/apis/admissionregistration.k8s.io/v1/{kind}webhookconfigurations": {
            "items": [{"metadata": {"name": "gas"}, "webhooks": [WEBHOOK]}]
        }
        for kind in ("validating", "mutating")
    },
}
for each in OBJECTS.values():
    if "items" in each:
        each["metadata"] = {"resourceVersion": "5"}


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the doctor reach nothing but the API server."""
    monkeypatch.setattr(asyncio, "open_connection", AsyncMock(side_effect=OSError(111, "refused")))
    monkeypatch.setattr(asyncio.BaseEventLoop, "getaddrinfo", AsyncMock(side_effect=OSError(111, "refused")))
    monkeypatch.setattr(clocks, "_server_clock", AsyncMock(return_value=clocks.Clock(before=1, server=1, after=1)))


USE = {"trouble": None, "pods": [{"uid": "bound-intel", "cards": {"card0": CARD_USE}}]}
PROXIED = "/api/v1/namespaces/default/pods/gas:900{}/proxy/{}"
SHOWN = {
    "/api/v1/nodes": OBJECTS["/api/v1/nodes"],
    "/api/v1/pods": OBJECTS["/api/v1/pods"],
    PROXIED.format(3, "usage"): USE,
    PROXIED.format(2, "debug/decisions"): [DECISION],
}


class Server:
    """An API server with objects by path, one or two of which are broken."""

    url = "https://k"

    def __init__(self, data: st.DataObject, objects: Mapping[str, Any]) -> None:
        self.broken = data.draw(st.sets(st.sampled_from(sorted(objects)), min_size=1, max_size=2))
        self._objects = {
            path: data.draw(bodies(each)) if path in self.broken else written(each) for path, each in objects.items()
        }

    async def request(self, method: str, path: str, **_: object) -> bytes:
        if path not in self._objects:
            raise ApiRefused(404, "NotFound", "no", request=f"{method} {path}")
        return self._objects[path]


def understood(work: Coroutine[Any, Any, T]) -> T:
    """Return the result. If it is an error with a sentence, drop the example."""
    try:
        return asyncio.run(work)
    except GasError as error:
        found = str(error)
    assert 0 < len(found) < 2000
    return reject()


@hostile(20)
@given(data=st.data())
def test_the_doctor_reports_on_an_api_server(
    data: st.DataObject, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    server: Any = Server(data, OBJECTS)
    snapshot = understood(look_at_everything(AsyncMock(), server, control_plane=tmp_path))
    findings = all_findings(snapshot)
    for show_all in (False, True):
        assert_printable(as_text(snapshot, findings, show_all=show_all, colours=False))
    assert json.loads(as_json(snapshot, findings))
    assert_no_bug(caplog)


def assert_printable(text: str) -> None:
    assert all(letter.isprintable() or letter == "\n" for letter in text)


def assert_json(data: object) -> None:
    assert json.loads(as_data(data, "json"))


def after(calls: int) -> Callable[[], bool]:
    """Return the end of a search, which comes when it was asked for so often."""
    left = iter(range(calls))
    return lambda: next(left, None) is None


@hostile(10)
@given(data=st.data())
def test_kubectl_and_the_page_show_a_cluster(data: st.DataObject, caplog: pytest.LogCaptureFixture) -> None:
    server: Any = Server(data, SHOWN)

    async def read() -> Cluster:
        cluster = await read_cluster(server, counts_hosts=True)
        notes = (*await read_use(server, cluster), *await read_decisions(server, cluster))
        assert all(len(each) < 3000 for each in notes)
        return cluster

    async def show() -> None:
        assert json.loads(page.whole())
        for name in cluster.node_names:
            assert_json(page.node(name))
        for document in (page.pods("", ""), page.pods("", "", "cards"), page.namespaces(), page.decisions()):
            assert_json(await document)
        for pod in cluster.gpu_pods:
            assert_json(await page.pod(pod.metadata.namespace or "default", pod.metadata.name))

    cluster = understood(read())
    board = Board("e")
    list(board.update(cluster, cluster.node_names))
    page = page_of(cluster, board)
    asyncio.run(show())
    reports = [card_report(cluster), node_report(cluster), pod_report(cluster), waste_of(cluster).report]
    for pod in cluster.gpu_pods:
        with at_most(2_000_000):
            explanation = explain(cluster, pod, after(100))
        assert_json(explanation_data(explanation))
        assert_printable("\n".join(map(escaped, explanation_lines(pod.key, explanation))))
        if not pod.node_name:
            reports.append(plan_report(plan_moves(cluster, pod, after(100)), pod.key))
    reports.append(fit_report(fit_all(cluster, [WantedPods("a", pod, 2) for pod in cluster.gpu_pods])))
    shown = [report_text(report, form, Look(width=80)) for report in reports for form in FORMATS]
    shown += ["\n".join(node_lines(cluster, name, Look(width=80))) for name in cluster.node_names]
    for text in shown:
        assert_printable(text)
    assert_no_bug(caplog)
