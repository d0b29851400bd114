"""Three pods of 5 GB on two cards of 8 GB, through the real kube-scheduler: the project's reason to exist."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from tests.e2e.cluster import Cluster
from tests.e2e.pods import PODS, cards_by_pod, container, delete_now, event_messages, is_refused, pod
from tests.e2e.waiting import wait_for

CARDS = {"gpu.intel.com/i915": "20", "gpu.intel.com/memory.max": "16G"}
NAMES = {"worked-1", "worked-2", "worked-3"}


@pytest.mark.parametrize("ignorable", [True, False], ids=["ignorable", "not-ignorable"])
def test_two_run_on_different_cards_and_the_third_waits_with_our_sentence_until_one_is_gone(
    cluster: Cluster, ignorable: bool, record_property: Callable[[str, object], None]
) -> None:
    api = cluster.api
    cluster.restart_scheduler(ignorable=ignorable)
    cluster.add_node("n1", labels={"gpu.intel.com/gpu-numbers": "0.1"}, resources=CARDS)
    cluster.extender("gas", "-v=4").start_and_wait_until_ready()
    for name in sorted(NAMES):
        api.create(PODS, pod(name, container(i915=1, memory_max="5G")))
    wait_for("two pods are bound", lambda: len(cards_by_pod(api)) == 2)
    assert sorted(card or "none" for card in cards_by_pod(api).values()) == ["card0", "card1"]
    (third,) = NAMES - cards_by_pod(api).keys()
    said = wait_for("the third's event", lambda: event_messages(api, third, "FailedScheduling"))
    assert "0/1 nodes are available: 1 no card has 5.0 GB of memory.max free" in said[0]
    wait_for("the third is known to wait", lambda: is_refused(api, third))

    gone, freed = next(iter(cards_by_pod(api).items()))
    released = time.monotonic()
    delete_now(api, gone)
    # On its own kube-scheduler tries again after five minutes.
    wait_for("the third is bound", lambda: third in cards_by_pod(api), seconds=60, every=0.02)
    seconds = time.monotonic() - released
    assert cards_by_pod(api)[third] == freed
    record_property("seconds from the release to the bind", f"{seconds:.2f}")
    print(f"\nthe third pod was bound {seconds:.2f} s after the release")


def test_a_pod_that_waits_for_a_memory_that_no_node_knows_has_an_event_that_says_why(cluster: Cluster) -> None:
    """kube-scheduler refuses the pod by the sums of the node and does not ask the extender."""
    api = cluster.api
    cluster.restart_scheduler(ignorable=False)
    cluster.add_node(
        "n1",
        labels={"gpu.intel.com/gpu-numbers": "0.1"},
        annotations={"gas-cards": '[{"card":0,"memorySource":"unknown"},{"card":1,"memorySource":"unknown"}]'},
        resources={"gpu.intel.com/i915": "20"},
    )
    cluster.extender("gas", "-v=4", account=cluster.full_account).start_and_wait_until_ready()
    api.create(PODS, pod("unknown", container(i915=1, memory_max="5G")))
    (scheduled, *_) = wait_for("its refusal", lambda: event_messages(api, "unknown", "FailedScheduling"))
    assert "Insufficient gpu.intel.com/memory.max" in scheduled
    (said, *_) = wait_for("its event", lambda: event_messages(api, "unknown", "GPUMemoryUnknown"), seconds=60)
    assert "the memory of card0, card1 of node n1 is unknown; the event GPUMemoryUnknown of the node says why" in said
