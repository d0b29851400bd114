"""One pod's progress, reconciled with kubelet's list again and again."""

from __future__ import annotations

from collections import Counter
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from gas.plugin.devices.device_ids import AllocateRequest
from gas.plugin.kubelet.pod_resources import ContainerIds
from gas.plugin.matching.progress import Confidence, Progress, can_get
from gas.values.cards import Card
from tests.builders import container
from tests.plugin.pods_for_plugin import I915, XE, decided, ids, question, seen

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


LISTS: tuple[ContainerIds, ...] = (
    NOTHING_YET,
    {"c": {I915: ids("card0-0")}, "d": {}},
    {"c": {I915: ids("card0-0")}, "d": {I915: ids("card1-0")}},
    {"c": {I915: ids("card2-0")}, "d": {I915: ids("card1-0")}},
)
STEPS = st.one_of(
    st.tuples(st.just("list"), st.sampled_from(LISTS), st.booleans()),
    st.tuples(st.just("serve"), st.sampled_from(POD.demands), st.sampled_from(["card0-0", "card1-0", "card3-0"])),
)


@given(st.lists(STEPS, max_size=12))
def test_a_list_that_agreed_before_changes_nothing(steps: list[Any]) -> None:
    """The other one is shown another pod each time, so that it compares every list."""
    progress, comparing = Progress(POD), Progress(POD)
    for step, what, how in steps:
        for each in (progress, comparing):
            if step == "serve":
                each.serve(what, ids(how))
                each.confidence = Confidence.GUESSED
            else:
                each.reconcile(what, is_settled=how)
        comparing.pod = seen(container("c", i915=1), container("d", i915=1), name=f"{comparing.pod.key[-3:]}x")
        assert (progress.unserved(), progress.confidence) == (comparing.unserved(), comparing.confidence)
        assert [progress.has_served(I915, ids(f"card{n}-0")) for n in range(4)] == [
            comparing.has_served(I915, ids(f"card{n}-0")) for n in range(4)
        ]


def test_ids_that_init_containers_leave_are_promised_once() -> None:
    pod = seen(
        container("a", i915=1),
        container("b", i915=1),
        init=(container("i", i915=2), container("j", i915=1)),
        annotations=decided("card0|card0", init="card0,card1|card0"),
    )

    assert Progress(pod).promised_cards() == Counter({Card(0): 2, Card(1): 1})


def test_ids_to_come_are_those_of_unserved_containers() -> None:
    pod = seen(container("a", i915=1), container("b", i915=2), init=(container("i", i915=4),))
    progress = Progress(pod)
    counts = [progress.ids_to_come(I915)]
    for demand in pod.demands:
        progress.serve(demand, ids("card0-0"))
        counts.append(progress.ids_to_come(I915))
    assert counts == [4, 3, 2, 0]
    assert Progress(pod).ids_to_come(XE) == 0


def test_a_sidecar_leaves_its_ids_to_no_later_container() -> None:
    pod = seen(container("a", i915=1), init=(container("side", always=True, i915=1),))
    progress = Progress(pod)
    progress.serve(pod.demands[0], ids("card0-0"))
    assert progress.can_explain(question(ids("card1-0")), pod.demands[1])


def test_ids_of_one_resource_say_nothing_about_those_of_another() -> None:
    pod = seen(container("c", i915=1, xe=1), init=(container("i", i915=1, xe=1),))
    progress = Progress(pod)
    for demand, id_ in zip(pod.demands, ("card0-0", "card1-0"), strict=False):
        progress.serve(demand, ids(id_))
    can_be = [progress.can_explain(AllocateRequest(resource=XE, ids=ids(f"card{n}-0")), pod.demands[3]) for n in (1, 2)]
    assert can_be == [True, False]
    assert (progress.cards_of(I915), progress.cards_of(XE)) == ({Card(0)}, {Card(1)})


def test_a_container_without_decision_was_promised_nothing() -> None:
    assert Progress(seen(container("a", i915=1))).promised_cards() == Counter()


def test_a_container_that_keeps_all_its_decided_cards_gets_them() -> None:
    assert can_get((Card(0),), 1, question(ids("card0-0", "card1-0"), 1, ids("card0-0")))
    assert not can_get((Card(0),), 1, question(ids("card0-0", "card1-0"), 1, ids("card1-0")))
