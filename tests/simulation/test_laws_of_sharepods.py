"""The laws of SharePods hold for pods and statuses as the product makes them, and find what is wrong with others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from gas.vocabularies.kubeshare.sharepod import MadePod, SharePod, choice_patch, pod_of, status_of
from sandbox.api.kinds import PODS, SHAREPODS, Kind
from sandbox.api.storage import Storage
from sandbox.api.verbs import Api
from simulation import objects
from simulation.laws import Laws
from simulation.observed import LawBroken

Change = Callable[[dict[str, Any]], object]


def as_it_is(_object: dict[str, Any]) -> None:
    """Change nothing."""


class Cluster:
    """A cluster with a SharePod, of which tests play the controller, and the laws over it."""

    def __init__(self, thousandths: int = 500, policy: str = "Never") -> None:
        storage = Storage()
        self.now = 0.0
        self.api = Api(storage)
        self.laws = Laws(storage, clock=lambda: self.now)
        self.laws.calm = True
        share = objects.share("s", thousandths, 0, {}, {}, complete=False)
        share["spec"]["restartPolicy"] = policy
        self.api.create(SHAREPODS, "default", share)
        self.laws.check_writes("")

    def share(self) -> SharePod:
        return msgspec.convert(self.api.get(SHAREPODS, "default", "s").value, SharePod)

    def make(self, change: Change = as_it_is) -> None:
        pod = pod_of(self.share())
        change(pod)
        self.api.create(PODS, "default", pod)
        self.laws.check_writes("extender-a")

    def bind(self) -> None:
        annotations = {objects.CARDS: "card1", objects.CARD_NAME: "abcde", objects.TIMESTAMP: "1"}
        binding = {"metadata": {"name": "s", "annotations": annotations}, "target": {"kind": "Node", "name": "n0"}}
        self.api.bind("default", "s", binding)

    def show(self, change: Change = as_it_is) -> None:
        pod = msgspec.convert(self.api.get(PODS, "default", "s").value, MadePod)
        patch = {"status": status_of(self.share(), pod, {}), **(choice_patch(self.share(), pod) or {})}
        change(patch)
        self.patch(SHAREPODS, {each: patch[each] for each in patch if each != "status"})
        self.patch(SHAREPODS, {"status": patch["status"]}, "status")
        self.laws.check_writes("")

    def patch(self, kind: Kind, patch: dict[str, Any], subresource: str = "") -> None:
        body = ("application/merge-patch+json", msgspec.json.encode(patch))
        self.api.patch(kind, "default", "s", body, subresource)
        self.laws.check_writes("")

    def ends(self, phase: str, *conditions: dict[str, str]) -> None:
        self.patch(PODS, {"status": {"phase": phase, "conditions": conditions}}, "status")

    def say(self, message: str) -> None:
        self.patch(SHAREPODS, {"status": {"message": message}}, "status")

    def at_end(self) -> None:
        self.laws.check_writes("")
        self.laws.sharepods.check_at_end()


def test_what_the_product_makes_and_shows_is_right() -> None:
    cluster = Cluster()
    cluster.make()
    cluster.show()
    cluster.at_end()
    cluster.bind()
    cluster.show()
    cluster.at_end()


@pytest.mark.parametrize(
    "change",
    [
        lambda pod: pod["metadata"].update(name="t"),
        lambda pod: pod["metadata"].update(ownerReferences=[]),
        lambda pod: pod["metadata"]["ownerReferences"][0].update(uid="other"),
        lambda pod: pod["metadata"]["annotations"].pop("kubeshare/gpu_limit"),
        lambda pod: pod["metadata"]["annotations"].update({"kubeshare/chosen-node": "n0"}),
        lambda pod: pod["spec"]["containers"][0].update(resources={}),
        lambda pod: pod["spec"].update(affinity={}),
    ],
)
def test_a_pod_is_what_its_sharepod_says(change: Change) -> None:
    with pytest.raises(LawBroken, match=r"^SharePods: pod default/. was made "):
        Cluster().make(change)


@pytest.mark.parametrize(
    "change",
    [
        lambda shown: shown["status"]["PodStatus"].update(phase="Running"),
        lambda shown: shown["status"]["PodObjectMeta"].update(uid="other"),
        lambda shown: shown["status"].update(BoundDeviceID="card0"),
        lambda shown: shown["status"].update(message="it cannot be made"),
        lambda shown: shown.pop("spec"),
        lambda shown: shown.pop("metadata"),
    ],
)
def test_a_sharepod_shows_its_pod(change: Change) -> None:
    cluster = Cluster()
    cluster.make()
    cluster.bind()
    cluster.show(change)
    with pytest.raises(LawBroken, match=r"^SharePods: the pod of default/s has something else than it shows: "):
        cluster.at_end()


@pytest.mark.parametrize(
    ("thousandths", "message", "holds"),
    [
        (500, "", False),
        (500, "the pod cannot be made: x", False),
        (1500, "", False),
        (1500, "the pod cannot be made: x", True),
    ],
)
def test_a_sharepod_without_a_pod_says_why(thousandths: int, message: str, *, holds: bool) -> None:
    cluster = Cluster(thousandths)
    cluster.say(message)
    if holds:
        cluster.at_end()
        return
    with pytest.raises(LawBroken, match=r"^SharePods: default/s has no pod, and says "):
        cluster.at_end()


def test_a_name_that_another_pod_has_is_reported() -> None:
    cluster = Cluster()
    cluster.api.create(PODS, "default", objects.pod("s", [{"i915": 1}], [], {}))
    cluster.say("pod default/s exists and does not belong to this SharePod")
    cluster.at_end()


@pytest.mark.parametrize(("seconds", "calm"), [(2.0, True), (30.0, False)])
def test_a_pod_is_not_made_again_after_the_end_that_its_sharepod_shows(seconds: float, *, calm: bool) -> None:
    cluster = Cluster()
    cluster.laws.calm = calm
    cluster.make()
    cluster.ends("Succeeded")
    cluster.show()
    cluster.api.delete(PODS, "default", "s", {})
    cluster.say("pod default/s ended (Succeeded) and was deleted; it is not made again")
    cluster.at_end()
    cluster.now = seconds
    with pytest.raises(LawBroken, match=r"^SharePods: pod default/s was made again"):
        cluster.make()


@pytest.mark.parametrize(("policy", "holds"), [("Always", False), ("OnFailure", False), ("Never", True)])
def test_an_evicted_pod_is_replaced_by_its_restart_policy(policy: str, *, holds: bool) -> None:
    cluster = Cluster(policy=policy)
    cluster.make()
    cluster.ends("Failed", {"type": "DisruptionTarget", "status": "True"})
    cluster.show()
    if holds:
        cluster.at_end()
        return
    with pytest.raises(LawBroken, match=r"^SharePods: the pod of default/s was evicted, and no other one is made"):
        cluster.at_end()


def test_no_pod_is_left_when_its_sharepod_is_gone() -> None:
    cluster = Cluster()
    cluster.make()
    cluster.api.delete(SHAREPODS, "default", "s", {})
    with pytest.raises(LawBroken, match=r"^SharePods: pod default/s is left of a SharePod that is gone"):
        cluster.at_end()
