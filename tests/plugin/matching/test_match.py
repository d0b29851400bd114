"""The reasons that the log gives when a container gets other cards than decided."""

from __future__ import annotations

import pytest

from gas.objects.stored import NodePod
from gas.plugin.matching.allocator import why_other_cards
from tests.builders import container
from tests.plugin.called_by_hand import Node
from tests.plugin.pods_for_plugin import decided, ids, node_pod, slots

ONE, TWO = container("c", i915=1), container("c", i915=2)
INIT = container("i", i915=1)


def _why(node: Node, *texts: str) -> str:
    return why_other_cards(node.allocate(*texts))


def test_kubelet_takes_any_of_what_init_containers_had_without_asking() -> None:
    pair = container("i", i915=2)
    node = Node(node_pod(ONE, init=(pair,), annotations=decided("card0", init="card0,card1")))
    node.prefer(2, slots(2))
    node.allocate("card0-0", "card1-0")
    assert _why(node, "card1-0").startswith("kubelet did not ask for a preference: it reuses devices of the pod's init")


@pytest.mark.parametrize(
    "pod",
    [
        pytest.param(node_pod(ONE, annotations=decided("card0")), id="no-init-container"),
        pytest.param(node_pod(ONE, init=(container("i"),), annotations=decided("card0")), id="one-without-cards"),
    ],
)
def test_kubelet_may_not_ask_for_a_preference(pod: NodePod) -> None:
    assert _why(Node(pod), "card1-0") == "kubelet did not ask for a preference"


def test_the_card_of_an_init_container_is_kept() -> None:
    node = Node(node_pod(TWO, init=(INIT,), annotations=decided("card0,card1", init="card0")))
    node.prefer(1, ids("card2-0"))
    node.allocate("card2-0")
    node.prefer(2, slots(2), ids("card2-0"))
    assert _why(node, "card0-0", "card2-0") == "kubelet keeps card2, which an init container of the pod had"


def test_a_card_was_not_offered() -> None:
    node = Node(node_pod(TWO, annotations=decided("card0,card7")))
    node.prefer(2, slots(2))
    assert _why(node, "card0-0", "card1-0").startswith("kubelet did not offer card7: ")


def test_a_preference_was_not_followed() -> None:
    node = Node(node_pod(ONE, annotations=decided("card0")))
    node.prefer(1, slots(2))
    assert _why(node, "card1-0") == "kubelet did not follow the preference"
