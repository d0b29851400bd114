"""The audit that other tests rely on finds wrong choices, in pods that no extender has placed."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from tests.e2e.audit import audit
from tests.e2e.cluster import Cluster
from tests.e2e.kube_api import Object
from tests.e2e.mixed_pods import add_mixed_nodes
from tests.e2e.pods import PODS, container, pod

SAME = {"gas-same-gpu": "a,b"}
NUMA = {"gas-allocate-single-numa": "yes"}
LINKED = {"gas-allocate-xelink": "yes"}


def put(cluster: Cluster, node: str, written: Object, given: Mapping[str, str]) -> None:
    """Create a pod and bind it with the given annotations."""
    name = cluster.api.create(PODS, written)["metadata"]["name"]
    annotations = {f"gas-container-{what}": text for what, text in given.items()}
    target = {"apiVersion": "v1", "kind": "Node", "name": node}
    metadata = {"name": name, "annotations": annotations}
    binding = {"apiVersion": "v1", "kind": "Binding", "metadata": metadata, "target": target}
    cluster.api.create(f"{PODS}/{name}/binding", binding)


@pytest.mark.parametrize(
    ("node", "pods", "sentence"),
    [
        pytest.param(
            "pair-1",
            [(pod("one", container(i915=1, millicores=600)), {"cards": "card0"}),
             (pod("two", container(i915=1, millicores=600)), {"cards": "card0"})],
            "pair-1 card0: 1200 of 1000 millicores are taken",
            id="a card over capacity",
        ),
        pytest.param(
            "tiled-1",
            [(pod("one", container(xe=1, tiles=1)), {"cards": "card3", "tiles": "card3:gt1"}),
             (pod("two", container(xe=1, tiles=1)), {"cards": "card3", "tiles": "card3:gt1"})],
            "tiled-1 card3 gt1 is given to one and to two",
            id="a tile given twice",
        ),
        pytest.param(
            "pair-1", [(pod("one", container(i915=1)), {})],
            "pod one: container main wants 1 of ['card0', 'card1'], has ()",
            id="a bound pod without cards",
        ),
        pytest.param(
            "pair-1", [(pod("one", container(i915=2)), {"cards": "card0,card7"})],
            "pod one: container main wants 2 of ['card0', 'card1'], has ('card0', 'card7')",
            id="a card that the node does not have",
        ),
        pytest.param(
            "pair-1", [(pod("one", container("a", i915=1), container("b", i915=1)), {"cards": "card0"})],
            "pod one: 'card0' has 1 places for 2 containers",
            id="fewer places than containers",
        ),
        pytest.param(
            "pair-1",
            [(pod("one", container("a", i915=1), container("b", i915=1), annotations=SAME), {"cards": "card0|card1"})],
            "pod one: the containers of gas-same-gpu have [('card0',), ('card1',)]",
            id="gas-same-gpu on two cards",
        ),
        pytest.param(
            "sockets-1", [(pod("one", container(i915=2), annotations=NUMA), {"cards": "card1,card2"})],
            "pod one: ['card1', 'card2'] are not of one NUMA group",
            id="gas-allocate-single-numa across the sockets",
        ),
        pytest.param(
            "tiled-1",
            [(pod("one", container(xe=2, tiles=2), annotations=LINKED),
              {"cards": "card6,card7", "tiles": "card6:gt0,card7:gt1"})],
            "pod one: main: (6, 0) and (7, 1) are not linked",
            id="gas-allocate-xelink without a link",
        ),
    ],
)  # fmt: skip
def test_a_wrong_choice_is_found(
    cluster: Cluster, node: str, pods: list[tuple[Object, dict[str, str]]], sentence: str
) -> None:
    cluster.scheduler.stop()
    add_mixed_nodes(cluster)
    for written, given in pods:
        put(cluster, node, written, given)
    assert audit(cluster.api) == [sentence]
