"""Events: written only by the replica that decides, and not again and again for a pod that waits."""

from __future__ import annotations

from typing import Any, cast

from gas.cluster.events import Events, Involved
from gas.extender.announcer import MOST_AT_ONCE, Announcer
from gas.extender.decider import Decider
from gas.extender.decisions import PodRefusal
from gas.extender.hooks import Corrected, InvalidNode, Mismatch
from gas.extender.metrics import Metrics
from tests.builders import container, node, pod
from tests.extender.decider import OPTIONS

WAITING = pod(container(i915=1), uid="u1")


class Announcing:
    """An announcer, and the (reason, object, message) of each event that it wrote."""

    def __init__(self) -> None:
        self.acts = True
        self.events: list[tuple[str, str, str]] = []
        self.decider = Decider(OPTIONS)
        self.decider.pods.changed(WAITING)
        self.has_begun = True
        self.announcer = Announcer(
            cast(Events, self),
            self.decider,
            Metrics("1"),
            acts=lambda: self.acts,
            has_begun=lambda: self.acts and self.has_begun,
        )

    def post(self, involved: Involved, *, severity: str, reason: str, message: str) -> None:
        assert severity == "Warning"
        self.events.append((reason, involved.name, message))

    def reasons(self) -> list[str]:
        return [reason for reason, _, _ in self.events]


def refusal(*reasons: str, **fields: Any) -> PodRefusal:
    return PodRefusal(
        "default/pod", 0.0, "no-room", dict.fromkeys(reasons, 1), {}, **{"only_seen_by_cards": True, **fields}
    )


def test_only_a_replica_that_decides_writes_events() -> None:
    announcing = Announcing()
    announcing.acts = False
    announcing.announcer.found(Mismatch(WAITING, "first"))
    announcing.announcer.found(Corrected(WAITING))
    announcing.acts = True
    announcing.announcer.found(InvalidNode("n1", ("one", "two")))
    assert announcing.events == [("InvalidGPULabels", "n1", "one; two; see gas doctor")]


def test_a_replica_that_begins_to_decide_announces_everything_that_is_wrong() -> None:
    announcing = Announcing()
    announcing.decider.nodes.changed(node("bad", labels={"gpu.intel.com/gpu-numbers": "0.x"}))
    announcing.decider.pods.changed(pod(container(i915=1), uid="u2", name="unannotated", node="bad"))
    announcing.announcer.announce_all()
    assert [event[:2] for event in announcing.events] == [
        ("GPUBookingMismatch", "unannotated"),
        ("InvalidGPULabels", "bad"),
    ]


def test_until_everything_that_is_wrong_was_announced_only_what_does_not_last_is() -> None:
    announcing = Announcing()
    announcing.has_begun = False
    announcing.announcer.found(InvalidNode("bad", ("announced later",)))
    announcing.announcer.found(Mismatch(WAITING, "announced later"))
    announcing.announcer.found(Corrected(WAITING))
    assert announcing.reasons() == ["GPUAllocationCorrected"]


def test_a_refused_pod_is_announced_once_for_the_same_reasons() -> None:
    announcing = Announcing()
    for reasons in (("full",), ("full",), ("full", "unknown")):
        announcing.announcer.pod_refused(WAITING, refusal(*reasons))
    assert announcing.reasons() == ["NoGPUCardFits", "NoGPUCardFits"]


def test_a_refusal_that_sums_of_the_node_show_too_is_not_announced() -> None:
    announcing = Announcing()
    announcing.announcer.pod_refused(WAITING, refusal("unknown", only_seen_by_cards=False))
    assert not announcing.events


def test_a_question_about_a_pod_that_does_not_exist_is_not_announced() -> None:
    announcing = Announcing()
    announcing.announcer.pod_refused(pod(container(i915=1), uid="absent"), refusal("full"))
    assert not announcing.events


def test_unknown_memory_is_announced_once_for_each_pod() -> None:
    announcing = Announcing()
    other = pod(container(i915=1), uid="u2", name="other")
    for waiting in ([(WAITING, "unknown")], [(WAITING, "unknown"), (other, "unknown")], [(WAITING, "still unknown")]):
        announcing.announcer.announce_unknown_memory(waiting)
    assert announcing.events == [
        ("GPUMemoryUnknown", "pod", "unknown"),
        ("GPUMemoryUnknown", "other", "unknown"),
        ("GPUMemoryUnknown", "pod", "still unknown"),
    ]


def test_events_about_unknown_memory_are_written_some_at_a_time() -> None:
    announcing = Announcing()
    waiting = [(pod(container(i915=1), uid=f"u{number}"), "unknown") for number in range(MOST_AT_ONCE + 5)]
    announcing.announcer.announce_unknown_memory(waiting)
    assert len(announcing.events) == MOST_AT_ONCE
    announcing.announcer.announce_unknown_memory(waiting)
    assert len(announcing.events) == len(waiting)
