"""The extender's last decisions in `why`: read through the API server, or a sentence says why not."""

from __future__ import annotations

import pytest

from gas.extender.decisions import Decisions
from gas.inspection.gather import UnusableDocument, parse_decisions
from gas.inspection.why import explain, past_details
from sandbox.api.kinds import PODS
from tests.inspection.conftest import Kubectl
from tests.inspection.example_cluster import cluster_of, example_cluster, example_nodes, running

PATH = "/api/v1/namespaces/kube-system/pods/gas-extender-0:9002/proxy/debug/decisions"


def decisions(uid: str, *, error: str = "", scores: bool = True) -> Decisions:
    found = Decisions()
    found.filtered(uid, ["gpu-1", "gpu-2"], 0.0012)
    if scores:
        found.scored(uid, [("gpu-1", 20), ("gpu-2", 7)], 0.0004)
    found.made(uid, "default/x", "gpu-1", "card0", verb="bind", seconds=0.0061, now=1.0, error=error)
    return found


def test_the_last_decision_is_in_words() -> None:
    assert past_details(decisions("u1"), "u1") == (
        "the decision took filter 1.2 ms, prioritize 0.4 ms, bind 6.1 ms",
        "2 nodes had room then; the score of gpu-1 was 20",
        "it could have had gpu-2 (score 7) instead",
    )
    assert past_details(decisions("u1", scores=False), "u1")[1:] == (
        "2 nodes had room then",
        "it could have had gpu-2 instead",
    )
    assert past_details(decisions("u1", error="no room"), "u1") == (
        "the last attempt to bind it, to gpu-1, failed (filter 1.2 ms, prioritize 0.4 ms, bind 6.1 ms): no room",
    )
    assert past_details(decisions("u1"), "u2") == ()


def test_a_waiting_pod_shows_why_its_last_bind_failed() -> None:
    cluster = example_cluster()
    cluster.decisions = list(decisions("uid-default-big", error="the object has been modified"))
    (detail,) = explain(cluster, cluster.pod("default", "big")).details
    assert detail.endswith("the object has been modified")


@pytest.mark.parametrize("document", [b"", b"{}", b"[1]", b"<html>", b"[" * 100_000])
def test_another_document_is_refused_with_a_sentence(document: bytes) -> None:
    with pytest.raises(UnusableDocument, match="expected the document /debug/decisions of gas-extender"):
        parse_decisions(document)


@pytest.mark.parametrize(
    ("text", "shown"),
    [("1767225600000000000", "2026-01-01 00:00:00 UTC"), ("x", "gas-ts=x"), ("9" * 40, f"gas-ts={'9' * 40}")],
)
def test_the_time_of_a_decision_is_one_that_people_read(text: str, shown: str) -> None:
    pod = running("train", "gpu-1", "card0", i915=1)
    pod["metadata"]["annotations"]["gas-ts"] = text
    cluster = cluster_of(example_nodes(), [pod])
    assert f"its cards were decided at {shown}" in explain(cluster, cluster.pod("default", "train")).details


async def test_why_asks_the_extender_through_the_api_server(kubectl: Kubectl) -> None:
    rows = await kubectl("why", "train-0")
    assert "the last decisions are not shown: " in rows.err
    uid = kubectl.server.api.get(PODS, "default", "train-0").value["metadata"]["uid"]
    kubectl.beside.objects[PATH] = [
        {
            "time": 5.0,
            "uid": uid,
            "pod": "default/train-0",
            "node": "gpu-1",
            "cards": "card0",
            "verb": "bind",
            "passing": 1,
            "milliseconds": {"bind": 5.0},
        }
    ]
    result = await kubectl("why", "train-0")
    assert "  the decision took bind 5.0 ms\n  1 node had room then\n" in result.out
    assert "decisions" not in result.err
