"""The deschedule label: set on pods that hold what a node's label wants emptied, and removed again."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec
import pytest
from prometheus_client import CollectorRegistry

from gas.cluster.errors import ApiRefused, ApiUnavailable
from gas.extender.decider import Decider
from gas.extender.hooks import Change
from gas.extender.telemetry.descheduler import Descheduler
from gas.extender.telemetry.part import DESCHEDULE_PATCHES
from gas.objects.stored import Node, Pod
from gas.values.errors import GasError
from tests.background import eventually, in_background, turns
from tests.builders import container, node_json, pod
from tests.extender.decider import OPTIONS

LABEL = "gpu.aware.scheduling/deschedule-pod"
MARK = "gas-deschedule-label"
POLICY = "telemetry.aware.scheduling.policy/"
CARD0 = {POLICY + "gas-deschedule-pods-card0": "x"}


class Descheduling:
    """A descheduler, and pods whose labels its patches really change.

    patches  (pod's name, UID, value of the label)
    fails    what the next patches raise
    acts     whether this replica decides
    is_late  whether the watch shows no patch until `show` is called
    """

    def __init__(self) -> None:
        self.patches: list[tuple[str, str, str | None]] = []
        self.fails: GasError | None = None
        self.gone: set[str] = set()
        self.acts = True
        self.is_late = False
        self.labels: dict[str, dict[str, str]] = {}
        self.marks: dict[str, dict[str, str]] = {}
        self.shown: dict[str, Callable[..., Pod]] = {}
        self.registry = CollectorRegistry()
        self.decider = Decider(OPTIONS)
        self.nodes = self.decider.nodes
        self.pods = self.decider.pods
        self.descheduler = Descheduler(
            self.decider,
            DESCHEDULE_PATCHES.counter(self.registry),
            patch_pod=self._patch,
            acts=lambda: self.acts,
            retry_pause=0.0,
            idle_pause=0.0,
        )
        self.decider.add(self.descheduler.hooks)

    def node(self, labels: Mapping[str, str] | None = None, *, with_capacity: bool = True, **fields: Any) -> None:
        seen = node_json("n1", labels=labels, **fields)
        if not with_capacity:
            seen["status"]["capacity"] = {}
        self.nodes.changed(msgspec.convert(seen, Node))

    def runs(self, name: str, *cards: str, written_tiles: str | None = None, tiles: int = 0) -> None:
        """Add a pod that holds these cards."""
        written = {"gas-container-cards": ",".join(cards)} | (
            {"gas-container-tiles": written_tiles} if written_tiles else {}
        )

        def shown(labels: Mapping[str, str], annotations: Mapping[str, str]) -> Pod:
            return pod(
                container(i915=len(cards), tiles=tiles),
                name=name,
                uid=name,
                node="n1",
                annotations={**written, **annotations},
                labels=labels,
            )

        self.shown[name] = shown
        self.show(name)

    def show(self, name: str) -> None:
        """Let the watch show a pod with its present labels."""
        self.decider.pod_handlers.changed(self.shown[name](self.labels.get(name, {}), self.marks.get(name, {})))

    async def _patch(
        self,
        namespace: str,
        name: str,
        uid: str,
        annotations: Mapping[str, str | None],
        *,
        labels: Mapping[str, str | None],
    ) -> bool:
        assert namespace == "default"
        assert labels.keys() == {LABEL}
        assert annotations.keys() == {MARK}
        self.patches.append((name, uid, labels[LABEL]))
        if self.fails is not None:
            raise self.fails
        if name in self.gone:
            return False
        self.labels[name] = {key: value for key, value in labels.items() if value is not None}
        self.marks[name] = {key: value for key, value in annotations.items() if value is not None}
        if not self.is_late:
            self.show(name)
        return True

    def labelled(self) -> set[str]:
        return {name for name, labels in self.labels.items() if labels.get(LABEL) == "gpu"}

    def counted(self, change: str) -> float:
        sample = self.registry.get_sample_value("gas_extender_deschedule_patches_total", {"change": change})
        return sample or 0.0


# contract E8.4
async def test_the_label_is_set_on_pods_of_the_card_and_removed_with_the_nodes_label() -> None:
    ground = Descheduling()
    ground.node()
    ground.runs("a", "card0")
    ground.runs("b", "card1")
    ground.runs("c", "card0", "card1")
    async with in_background(ground.descheduler.run()):
        await turns()
        assert not ground.patches
        ground.node(CARD0)
        await eventually(lambda: ground.labelled() == {"a", "c"})
        assert ground.counted("put-on") == 2
        ground.node()
        await eventually(lambda: not ground.labelled())
        await turns()
    assert len(ground.patches) == 4
    assert ground.counted("taken-off") == 2


# contract E8.4
async def test_pods_that_start_later_get_the_label_too() -> None:
    ground = Descheduling()
    ground.node(CARD0)
    async with in_background(ground.descheduler.run()):
        await turns()
        ground.runs("late", "card0")
        await eventually(lambda: ground.labelled() == {"late"})


# contract E8.12
@pytest.mark.parametrize("value", ["gpu", "mine", ""])
async def test_a_label_that_a_user_set_is_neither_removed_nor_taken_over(value: str) -> None:
    ground = Descheduling()
    ground.node()
    ground.runs("a", "card0")
    async with in_background(ground.descheduler.run()):
        ground.labels["a"] = {LABEL: value}
        ground.show("a")
        await turns()
        ground.node(CARD0)
        await turns()
        ground.node()
        await turns()
    assert not ground.patches
    assert ground.labels["a"] == {LABEL: value}


async def test_a_change_that_the_watch_has_not_shown_yet_is_not_patched_again() -> None:
    ground = Descheduling()
    ground.node(CARD0)
    ground.runs("a", "card0")
    ground.is_late = True
    async with in_background(ground.descheduler.run()):
        await eventually(lambda: ground.labelled() == {"a"})
        ground.descheduler.node_changed("n1", Change.PODS)
        await turns()
        assert ground.counted("put-on") == 1
        ground.show("a")
        ground.node()
        await eventually(lambda: not ground.labelled())
        ground.descheduler.node_changed("n1", Change.PODS)
        await turns()
        assert ground.counted("taken-off") == 1


async def test_our_label_that_a_user_removed_is_set_again_while_it_is_wanted() -> None:
    ground = Descheduling()
    ground.node(CARD0)
    ground.runs("a", "card0")
    async with in_background(ground.descheduler.run()):
        await eventually(lambda: ground.labelled() == {"a"})
        ground.labels["a"] = {}
        ground.show("a")
        await eventually(lambda: ground.labelled() == {"a"})
        ground.node()
        await eventually(lambda: not ground.labelled())
    assert not ground.marks["a"]


# contract E8.4, E8.8
@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        pytest.param(CARD0, {"zero"}, id="card"),
        pytest.param({POLICY + "gas-deschedule-pods-card1": "PCI_GROUP"}, {"one", "two"}, id="pci-group"),
        pytest.param({POLICY + "gas-tile-deschedule-card2_gt1": "x"}, {"two"}, id="tile"),
        pytest.param({POLICY + "gas-tile-deschedule-card2_gt0": "x"}, set(), id="tile-that-no-pod-holds"),
        pytest.param({POLICY + "gas-disable-card0": "x"}, set(), id="disabled-is-not-descheduled"),
        pytest.param({POLICY + "gas-deschedule-pods-card9": "x"}, set(), id="no-such-card"),
        pytest.param({"other/gas-deschedule-pods-card0": "x"}, set(), id="another-namespace"),
    ],
)
def test_which_pods_should_carry_the_label(labels: dict[str, str], expected: set[str]) -> None:
    ground = Descheduling()
    ground.node(labels | {"gpu.intel.com/pci-groups": "0_1.2"}, cards=3, i915=3, tiles=6)
    ground.runs("zero", "card0")
    ground.runs("one", "card1")
    ground.runs("two", "card2", written_tiles="card2:gt1", tiles=1)
    assert ground.descheduler.wanted("n1") == expected
    assert ground.descheduler.wanted("absent") == set()


async def test_a_node_without_cards_in_its_capacity_does_not_count() -> None:
    ground = Descheduling()
    ground.node(CARD0, with_capacity=False)
    ground.runs("a", "card0")
    assert ground.descheduler.wanted("n1") == set()
    async with in_background(ground.descheduler.run()):
        await turns()
        assert not ground.patches
        ground.node(CARD0)
        await eventually(lambda: ground.labelled() == {"a"})


@pytest.mark.parametrize("error", [ApiUnavailable("away"), ApiRefused(409, "Conflict", "no")])
async def test_a_failed_patch_is_tried_again(error: GasError) -> None:
    ground = Descheduling()
    ground.fails = error
    ground.node(CARD0)
    ground.runs("a", "card0")
    async with in_background(ground.descheduler.run()):
        await eventually(lambda: len(ground.patches) > 2)
        ground.fails = None
        await eventually(lambda: ground.labelled() == {"a"})
    assert ground.counted("put-on") == 1


async def test_a_pod_that_is_gone_is_forgotten() -> None:
    ground = Descheduling()
    ground.gone = {"a"}
    ground.node(CARD0)
    ground.runs("a", "card0")
    ground.runs("b", "card0")
    async with in_background(ground.descheduler.run()):
        await eventually(lambda: ground.labelled() == {"b"})
        await turns()
    assert sum(name == "a" for name, _, _ in ground.patches) <= 2
    assert all(uid == name for name, uid, _ in ground.patches)
    assert ground.descheduler.labelled.records == {"b": "n1"}
    ground.decider.pod_handlers.deleted(ground.shown["b"]({}, {}))
    assert not ground.descheduler.labelled.records


async def test_a_replica_that_does_not_decide_patches_nothing_until_it_does() -> None:
    ground = Descheduling()
    ground.acts = False
    ground.node(CARD0)
    ground.runs("a", "card0")
    async with in_background(ground.descheduler.run()):
        await turns()
        assert not ground.patches
        ground.acts = True
        await eventually(lambda: ground.labelled() == {"a"})


async def test_after_a_restart_our_label_is_kept_only_while_it_is_wanted() -> None:
    ground = Descheduling()
    ground.labels["a"] = {LABEL: "gpu"}
    ground.marks["a"] = {MARK: "gpu"}
    ground.runs("a", "card0")
    ground.node(CARD0)
    async with in_background(ground.descheduler.run()):
        await turns()
        assert not ground.patches
        ground.node()
        await eventually(lambda: ground.patches == [("a", "a", None)])
