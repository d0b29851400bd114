"""The nodes for which volumes of waiting pods were made, read before the first decision."""

from __future__ import annotations

import json
from typing import Any, cast

import msgspec
import pytest

from gas.cluster.connection import ApiServer
from gas.cluster.errors import ApiRefused, ApiUnavailable, Forbidden
from gas.extender.selected_nodes import ClaimingPod, selected_nodes
from tests.builders import pod_json


class Claims:
    """An API server with one claim, whose volume was made for node n1."""

    def __init__(self, failure: Exception) -> None:
        self.failure = failure
        self.asked: list[str] = []

    async def request(self, _method: str, path: str, **_rest: Any) -> bytes:
        self.asked.append(name := path.rsplit("/", 1)[1])
        if name != "made":
            raise self.failure
        annotations = {"volume.kubernetes.io/selected-node": "n1"}
        return json.dumps({"metadata": {"name": name, "annotations": annotations}}).encode()


def claiming(name: str, *claims: str, nominated: str = "", gates: bool = False, **fields: Any) -> ClaimingPod:
    sent = pod_json(name=name, **fields)
    sent["spec"]["volumes"] = [{"name": each, "persistentVolumeClaim": {"claimName": each}} for each in claims]
    sent["spec"]["schedulingGates"] = [{"name": "queue"}] * gates
    sent["status"]["nominatedNodeName"] = nominated
    return msgspec.convert(sent, ClaimingPod)


async def test_only_claims_of_pods_that_kube_scheduler_looks_at_without_a_nomination_are_read() -> None:
    others = (
        claiming("nominated", "a", nominated="n2"),
        claiming("gated", "b", gates=True),
        claiming("leaving", "c", deleting=True),
        claiming("bound", "d", node="n2"),
        claiming("ended", "e", phase="Failed"),
        claiming("plain"),
    )
    claims = Claims(ApiUnavailable("away"))
    found = await selected_nodes(cast(ApiServer, claims), [*others, claiming("tied", "made", "never-asked")])
    assert [(pod.metadata.name, node) for pod, node in found] == [("tied", "n1")]
    assert claims.asked == ["made"]


@pytest.mark.parametrize(
    ("failure", "tied"),
    [(ApiRefused(404, "NotFound", ""), True), (Forbidden("", ""), True), (ApiUnavailable("away"), False)],
    ids=["missing", "refused", "away"],
)
async def test_a_claim_that_cannot_be_read_keeps_no_other_pod_from_its_node(failure: Exception, *, tied: bool) -> None:
    pods = [claiming("first", "other", ".."), claiming("tied", "..", "made")]
    assert bool(await selected_nodes(cast(ApiServer, Claims(failure)), pods)) == tied
