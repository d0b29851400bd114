"""Hostile input at every door: it is understood, or refused in one sentence, and the next good input is served."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from configurator.scheduler_configuration import parse_scheduler_configuration
from configurator.yaml_document import YamlDocument
from gas.cluster.credentials import credentials_of
from gas.cluster.errors import ApiUnavailable, response_error
from gas.cluster.listing import Lister
from gas.cluster.objects import decode_object
from gas.cluster.watch_events import EventDecoder
from gas.extender.admission.review import decode_review, encode_result
from gas.extender.assembly import Extender
from gas.extender.command_line import parse_flags
from gas.extender.debug import books_json
from gas.extender.metrics import Metrics
from gas.inspection.gather import parse_decisions, parse_use
from gas.objects.stored import HostPod, Node, Pod
from gas.plugin.fences.fence import read_fence
from gas.values.cards import Card
from gas.values.errors import GasError
from gas.vocabularies.kubeshare.sharepod import MadePod, SharePod, merge_patch, pod_of, status_of
from tests.builders import container, node_json, pod_json
from tests.extender.admission.reviews import review_json
from tests.extender.binding_reviews.setting import binding
from tests.hostile import assert_no_bug, bodies, broken, decoded, hostile, written
from tests.hostile_documents import AFFINITY, ALL_VOCABULARIES, BOUND, CARD_USE, DECIDED, DECISION, NODE, PODS
from tests.kubeshare_words import share, with_card
from tests.lines import at_most

FLAGS = ["--admission-port=1", "--preemption", "--node-score=balance", ALL_VOCABULARIES]
GOOD = pod_json(container(i915=1, memory_max="1Gi"), name="good", uid="good")


def extender(*nodes: Any, pods: list[Any]) -> Extender:
    """Return an extender that decides, that no watch feeds, and that cannot reach the API server."""
    away = AsyncMock(**{"request.side_effect": ApiUnavailable("it is away")})
    running = Extender(away, parse_flags(FLAGS), Metrics("1"))
    for watch in running.watches.values():
        watch.synced.set()
    decides = SimpleNamespace(why_not=lambda: None, may_act=lambda: True, has_begun=lambda: True)
    running.readiness = decides  # type: ignore[assignment]
    for node in (seen for sent in (node_json("good"), *nodes) for seen in decoded(sent, Node)):
        running.decider.node_handlers.changed(node)
    for pod in (seen for sent in pods for seen in decoded(sent, HostPod)):
        running.decider.pod_handlers.changed(pod)
    return running


async def asked(running: Extender, path: str, body: bytes) -> bytes:
    """Call a verb, or a webhook if there is a slash. Return the response or the error's sentence, soon and not long."""
    try:
        with at_most(300_000):
            if not path.startswith("/"):
                response = await running.verbs[path].call(body)
            else:
                review = decode_review(body)
                response = encode_result(review, await running.webhooks[path[1:]](review))
    except GasError as error:
        response = str(error).encode()
    assert 0 < len(response) < 20_000 + len(body)
    return response


async def check_good_ones(running: Extender) -> None:
    """Check that good requests are served as before, and end what is in progress."""
    assert "good" in json.loads(await asked(running, "filter", written(names(GOOD))))["NodeNames"]
    assert json.loads(await asked(running, "/validate", written(review_json(GOOD))))["response"]["allowed"]
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        task.cancel()


def names(pod: Any) -> dict[str, Any]:
    return {"Pod": pod, "Nodes": None, "NodeNames": ["good", "bad"]}


META, WHOLE = {"Pods": [{"UID": "a"}], "NumPDBViolations": 1}, {"Pods": [BOUND[1]], "NumPDBViolations": 1}
DEPLOYMENT = {"spec": {"template": {"metadata": {}, "spec": PODS[0]["spec"]}}}
BINDING = binding(PODS[0], "good", annotations=DECIDED, labels={"a": "b"}, resourceVersion="7")
REQUESTS = [
    ("filter", {"Pod": PODS[0], "Nodes": {"items": [NODE]}, "NodeNames": None}),
    ("preempt", {"Pod": PODS[0], "NodeNameToMetaVictims": {"bad": META}}),
    ("preempt", {"Pod": PODS[0], "NodeNameToVictims": {"bad": WHOLE}}),
    ("bind", {"PodName": "intel", "PodNamespace": "default", "PodUID": "intel", "Node": "good"}),
    *((verb, names(each)) for each in PODS for verb in ("filter", "prioritize")),
    *((path, review_json(each)) for each in (*PODS, *BOUND) for path in ("/validate", "/complete")),
    *(("/validate", review_json(each, old=each, operation="UPDATE")) for each in BOUND),
    ("/validate", review_json(DEPLOYMENT, group="apps", resource="deployments")),
    ("/bind", review_json(BINDING, subresource="binding")),
]


@hostile(20)
@given(data=st.data())
def test_a_request_is_carried_out_or_refused(data: st.DataObject, caplog: pytest.LogCaptureFixture) -> None:
    path, document = data.draw(st.sampled_from(REQUESTS))
    body = data.draw(bodies(document))

    async def main() -> None:
        running = extender(NODE, pods=PODS)
        await asked(running, path, body)
        await check_good_ones(running)

    asyncio.run(main())
    assert_no_bug(caplog)


@hostile(5)
@given(node=broken(NODE), pods=st.lists(broken(*BOUND, *PODS), max_size=3))
def test_a_node_and_its_pods_spoil_nothing(node: Any, pods: list[Any], caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        running = extender(node, pods=pods)
        for sent in PODS:
            await asked(running, "filter", written(names(sent)))
        assert json.loads(books_json(running.decider))
        await check_good_ones(running)

    asyncio.run(main())
    assert_no_bug(caplog)


SHAREPOD = {
    "metadata": {"name": "s", "namespace": "default", "uid": "u1", "annotations": share(), "labels": {"a": "b"}},
    "spec": {"containers": [with_card()], "restartPolicy": "Never", "nodeName": "n1", "affinity": AFFINITY},
    "status": {"PodStatus": {"phase": "Running"}, "PodObjectMeta": {"name": "s"}, "BoundDeviceID": "card0"},
}
MADE = msgspec.convert({"metadata": {"annotations": DECIDED}, "spec": {"nodeName": "n1"}, "status": {}}, MadePod)
PAGE = {"metadata": {"resourceVersion": "5"}, "items": PODS[:2]}
STATUS = {"code": 403, "reason": "Forbidden", "message": 'User "a" cannot list resource "pods" in API group ""'}
FENCE = {
    "firstPort": 50000,
    "variables": {"A_{index}": "{uuid}={memory}"},
    "mounts": [{"hostPath": "/a/{uuid}", "containerPath": "/b/{index}", "readOnly": False}],
    "cdiDevices": ["v/c={index}"],
}
USER = {"token": "t", "as": "a", "as-groups": ["g"], "as-user-extra": {"k": ["v"]}}
KUBECONFIG = {
    "current-context": "c",
    "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u", "namespace": "n"}}],
    "clusters": [{"name": "k", "cluster": {"server": "https://127.0.0.1:1", "proxy-url": "http://p"}}],
    "users": [{"name": "u", "user": USER}],
}
MANIFEST = {"apiVersion": "v1", "kind": "Pod", "spec": {"containers": [{"command": ["kube-scheduler"]}]}}
ENTRY = {"urlPrefix": "https://x", "filterVerb": "filter", "managedResources": [{"name": "a/b"}]}


def _make(body: bytes) -> None:
    for seen in decoded(body, SharePod):
        status = status_of(seen, MADE, {"GPU-0": Card(0)})
        assert {type(seen.restarts_after(seen.phase)), type(seen.had_pod)} == {bool}
        msgspec.json.encode((merge_patch(seen.status or {}, status), pod_of(seen)))


def _edit(body: bytes) -> None:
    document = YamlDocument("m.yaml", body)
    document.set(("spec", "x"), "y")
    assert document.content


def _list(body: bytes) -> None:
    server = AsyncMock(**{"request.side_effect": [body, written(PAGE)]})
    asyncio.run(Lister(server, "/api/v1/pods", Pod).fetch())


READERS: list[tuple[Any, Callable[[bytes], object] | Callable[[str], object]]] = [
    (SHAREPOD, _make),
    (PAGE, _list),
    (PODS[0], lambda body: decode_object(body, Pod, request="GET x")),
    ({"type": "MODIFIED", "object": PODS[0]}, EventDecoder(Pod, "the watch").decode),
    ({"type": "ERROR", "object": STATUS}, EventDecoder(Pod, "the watch").decode),
    ({"trouble": None, "pods": [{"uid": "a", "cards": {"card0": CARD_USE}}]}, parse_use),
    ([DECISION], parse_decisions),
    (STATUS, lambda body: response_error(403, body, request="x", is_write=False)),
    (FENCE, read_fence),
    (KUBECONFIG, lambda file: asyncio.run(credentials_of(file, {}))),
    (MANIFEST, _edit),
    ({"kind": "KubeSchedulerConfiguration", "extenders": [ENTRY]}, parse_scheduler_configuration),
]
FILES = (FENCE, KUBECONFIG)  # whose readers are called with the name of a file


@hostile(40)
@given(data=st.data())
def test_what_is_read_is_understood_or_refused_in_a_sentence(
    data: st.DataObject, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    document, read = data.draw(st.sampled_from(READERS))
    body = data.draw(bodies(document))
    (file := tmp_path / "file").write_bytes(body)
    try:
        found: object = read(str(file) if document in FILES else body)
    except GasError as error:
        found = error
    assert not isinstance(found, GasError) or 0 < len(str(found)) < 3000
    assert_no_bug(caplog)
