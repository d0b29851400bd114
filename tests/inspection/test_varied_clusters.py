"""The commands on varied clusters: plans have the fewest moves, suggestions work, and as many pods fit as is said."""

from __future__ import annotations

import os

from msgspec.structs import replace

from gas.inspection.cluster import Cluster
from gas.inspection.defrag import plan_moves
from gas.inspection.fit import more_of
from gas.inspection.objects import InspectedPod
from gas.inspection.why import Suggestion, explain
from gas.vocabularies.protocol import BadNeed
from tests.inspection.brute import Brute
from tests.inspection.example_cluster import cluster_of, decoded_pod
from tests.inspection.steps import follow_moves, passing
from tests.inspection.varied_clusters import TELEMETRY, VariedCluster

CLUSTERS = int(os.environ.get("VARIED_CLUSTERS", "8"))
"""Clusters that each test looks at; see docs/development.md."""

NUMBERS = range(CLUSTERS)
FEW_PODS = 5
"""Running pods up to which all sequences of moves are tried."""


def reads(cluster: Cluster, pod: InspectedPod) -> bool:
    options = cluster.settings.options
    try:
        options.vocabularies.need(pod, options.need)
    except BadNeed:
        return False
    return True


def test_plans_have_the_fewest_moves() -> None:
    for number in NUMBERS:
        varied = VariedCluster(number, prefers_cards=False)
        cluster, pod = varied.cluster(), decoded_pod(varied.asked)
        if len(varied.pods) > FEW_PODS + 1 or not reads(cluster, pod):
            continue
        most = 2 if len(varied.pods) > FEW_PODS - 1 else 3
        fewest = Brute(cluster, pod).fewest(most)
        plan = plan_moves(cluster, pod, most_moves=most)
        assert (plan.node != "", len(plan.moves)) == (fewest is not None, fewest or 0), number
        if plan.node:
            follow_moves(cluster, plan.moves)
            assert plan.node in passing(cluster, pod), number
            assert cluster.book(pod, plan.node) == plan.cards, number


def test_suggestions_let_the_pod_run_on_the_cards_that_they_name() -> None:
    for number in NUMBERS:
        varied = VariedCluster(number, prefers_cards=True)
        cluster, pod = varied.cluster(), decoded_pod(varied.asked)
        found = explain(cluster, pod)
        assert found.is_complete, number
        assert not (found.suggestions and passing(cluster, pod)), number
        for suggestion in found.suggestions:
            changed = suggestion.pod or pod
            after = followed(varied, suggestion)
            assert suggestion.node in passing(after, changed), (number, suggestion.text)
            assert after.book(changed, suggestion.node) == suggestion.cards, (number, suggestion.text)


def followed(varied: VariedCluster, suggestion: Suggestion) -> Cluster:
    """Return the cluster after a suggestion was followed."""
    nodes = []
    for node in varied.nodes:
        labels = node["metadata"]["labels"]
        if suggestion.text.startswith("remove the telemetry labels") and node["metadata"]["name"] == suggestion.node:
            closing = (f"{TELEMETRY}disable", f"{TELEMETRY}tile-disable")
            labels = {name: text for name, text in labels.items() if not name.startswith(closing)}
        nodes.append({**node, "metadata": {**node["metadata"], "labels": labels}})
    cluster = cluster_of(nodes, [pod for pod in varied.pods if pod["metadata"]["uid"] not in suggestion.gone])
    follow_moves(cluster, suggestion.moves)
    return cluster


def test_as_many_more_fit_as_are_counted() -> None:
    for number in NUMBERS:
        varied = VariedCluster(number, prefers_cards=True)
        cluster, pod = cluster_of(varied.nodes, varied.pods), decoded_pod(varied.asked)
        counted, placed = more_of(cluster, pod), 0
        while reads(cluster, pod) and (names := passing(cluster, pod)):
            cluster.book(pod, names[0])
            placed += 1
            pod = replace(pod, metadata=replace(pod.metadata, uid=f"more-{placed}"))
        assert placed == counted, number
