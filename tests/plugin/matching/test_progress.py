"""One pod's progress, reconciled with kubelet's list again and again."""

from __future__ import annotations

from collections import Counter

from gas.plugin.kubelet.pod_resources import ContainerIds
from gas.plugin.matching.progress import Progress
from gas.values.cards import Card
from tests.builders import container
from tests.plugin.pods_for_plugin import I915, decided, ids, seen

POD = seen(container("c", i915=1), container("d", i915=1))
NOTHING_YET: ContainerIds = {"c": {}, "d": {}}


def test_ids_recorded_since_are_compared_with_the_same_list() -> None:
    progress = Progress(POD)
    progress.reconcile(NOTHING_YET, is_settled=True)
    progress.serve(POD.demands[0], ids("card0-0"))
    progress.reconcile(NOTHING_YET, is_settled=False)
    assert not progress.is_untouched
    progress.reconcile(NOTHING_YET, is_settled=True)
    assert progress.is_untouched


def test_a_pod_that_the_watch_shows_anew_is_compared_with_the_same_list() -> None:
    progress = Progress(POD)
    listed: ContainerIds = {"c": {I915: ids("card0-0")}, "e": {I915: ids("card1-0")}}
    progress.reconcile(listed, is_settled=True)
    progress.pod = seen(container("c", i915=1), container("e", i915=1))
    progress.reconcile(listed, is_settled=True)
    assert progress.is_complete


def test_ids_that_an_init_container_leaves_are_promised_once() -> None:
    pod = seen(
        container("a", i915=1),
        container("b", i915=1),
        init=(container("i", i915=2),),
        annotations=decided("card0|card0", init="card0,card1"),
    )

    assert Progress(pod).promised_cards() == Counter({Card(0): 2, Card(1): 1})


def test_a_container_without_decision_was_promised_nothing() -> None:
    assert Progress(seen(container("a", i915=1))).promised_cards() == Counter()
