"""The reasons that the log gives for guesses and for other cards than decided, at the default level."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from typing import NamedTuple

import pytest

from gas.objects.stored import Pod
from gas.plugin.devices.allocation import Allocation
from gas.plugin.devices.device_ids import NO_IDS, AllocateRequest, Ids
from gas.plugin.flags import parse_flags
from gas.plugin.matching.allocator import Allocator, IssuedEnvironments, why_other_cards
from gas.plugin.matching.gpu_pods import GpuPods
from gas.plugin.matching.matcher import Matcher
from gas.plugin.matching.pod_resolver import PodResolver
from gas.plugin.metrics import Metrics
from gas.vocabularies.combined import Vocabularies
from tests.builders import container, requesting
from tests.listed import list_all
from tests.plugin.called_by_hand import Kubelet
from tests.plugin.called_by_hand import Node as ByHand
from tests.plugin.gpus import gpu
from tests.plugin.pods_for_plugin import I915, decided, ids, node_pod, question, slots

ONE = container("c", i915=1)


class Node:
    """Four cards, a kubelet, and the pods that the watch has shown."""

    def __init__(self, kubelet: Kubelet, *pods: Pod, flags: Sequence[str] = ()) -> None:
        parsed = parse_flags(flags, environ={}, host_name="n")
        vocabularies = Vocabularies(parsed.vocabularies)
        self.pods = GpuPods(vocabularies)
        list_all(self.pods, list(pods))
        matcher = Matcher(self.pods)
        self.metrics = Metrics("1")
        self.allocator = Allocator(
            matcher,
            PodResolver(matcher, kubelet, is_watching=lambda: True),
            IssuedEnvironments(vocabularies),
            self.metrics,
            parsed,
            gpus=lambda: [gpu(card, numa_node=card % 2) for card in range(4)],
            clock=time.monotonic,
        )

    async def prefer(self, offered: Ids) -> None:
        await self.allocator.prefer(question(offered))

    def allocate(self, *texts: str, resource: str = I915) -> Allocation:
        return self.allocator.allocate(AllocateRequest(resource=resource, ids=ids(*texts)))


A = node_pod(ONE, name="a", annotations=decided("card2", ts=1))
B = node_pod(ONE, name="b", annotations=decided("card3", ts=2))


class Case(NamedTuple):
    """Two calls and the reasons that are logged for them.

    listed   the pods that kubelet lists
    offered  in GetPreferredAllocation; empty if kubelet does not ask
    given    in Allocate
    """

    listed: str
    pods: tuple[Pod, ...]
    offered: Ids
    given: str
    reasons: list[str]


UNDECIDED = node_pod(container("c", i915=1), name="a")
TILED = node_pod(container("c", i915=1, tiles=1), name="a", annotations=decided("card2", tiles="card2:tile0"))


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(Case("a", (A,), slots(4), "card2-0", []), id="as-decided"),
        pytest.param(Case("a", (UNDECIDED,), slots(4), "card2-0", []), id="undecided"),
        pytest.param(Case("", (A, B), slots(4), "card2-0", ["kubelet does not list its pods"]), id="a-guess"),
        pytest.param(Case("a", (A,), slots(2), "card1-0", ["kubelet did not offer card2: "]), id="other-cards"),
        pytest.param(
            Case("", (A, B), slots(4), "card1-0", ["kubelet does not list its pods"] * 2),
            id="others-after-a-guess",
        ),
        pytest.param(
            Case("a", (TILED,), slots(4), "card2-0", ["the tiles of its decision cannot be read: "]), id="damaged-tiles"
        ),
        pytest.param(Case("", (A,), NO_IDS, "card1-0", ["kubelet did not ask for a preference"]), id="no-question"),
    ],
)
async def test_everything_that_may_lead_to_a_receipt_has_its_reason_in_the_log(
    case: Case, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "gas.plugin.matching.allocator")
    node = Node(Kubelet(*case.listed), *case.pods)
    if case.offered:
        await node.prefer(case.offered)
    assert node.allocate(case.given).env == {}
    logged = [getattr(record, "because", "") for record in caplog.records]
    assert len(logged) == len(case.reasons)
    assert all(reason.startswith(begin) for reason, begin in zip(logged, case.reasons, strict=True)), logged
    assert {vars(record)["container"] for record in caplog.records} <= {"default/a/c"}
    assert all(vars(record)["ids"] and vars(record)["confidence"] for record in caplog.records)


@pytest.mark.parametrize(("short", "seen"), [("i915", ["0", "1", "2"]), ("gpu.shared", ["0", "01", "012"])])
def test_app_containers_see_the_cards_of_all_where_the_vocabulary_says_so(short: str, seen: list[str]) -> None:
    resource = I915 if short == "i915" else f"koordinator.sh/{short}"
    init, one, two = (requesting({resource: "1"}, name) for name in "icd")
    pod = node_pod(one, two, init=(init,), annotations=decided("card1|card0", init="card0"))
    node = Node(Kubelet(), pod, flags=["--vocabularies=intel,koordinator"])
    given = [node.allocate(f"card{card}-0", resource=resource).device_nodes for card in (0, 1, 2)]
    paths = [[node.host_path.removeprefix("/dev/dri/card") for node in nodes] for nodes in given]
    assert ["".join(filter(str.isdecimal, each)) for each in paths] == seen
    for outcome, number in (("as-decided", 2), ("otherwise", 1)):
        labels = {"resource": short, "outcome": outcome}
        assert node.metrics.registry.get_sample_value("gas_plugin_allocations_total", labels) == number


def test_variables_of_a_container_depend_on_its_cards() -> None:
    memory = "aliyun.com/gpu-mem"
    node = Node(Kubelet(), node_pod(requesting({memory: "2"}, "c"), name="a"), flags=["--vocabularies=aliyun"])
    given = node.allocate("card1-0", "card1-1", resource=memory)
    assert given.env["ALIYUN_COM_GPU_MEM_DEV"] == str((gpu(1).memory or 0) // 2**20) != "0"
    listed = {"default/a": {"c": {memory: ids("card1-0", "card1-1")}}}
    environments = node.allocator.environments
    assert list(environments.compare(node.pods, listed, asked=time.monotonic() + 1)) == []
    assert len(environments) == 0, "what it was given is as decided"


async def test_cards_of_one_numa_node_are_near() -> None:
    node = Node(Kubelet(), node_pod(container("c", i915=2), name="a"), flags=["--allocation-policy=near"])
    assert await node.allocator.prefer(question(slots(4), 2)) == ("card0-0", "card2-0")


async def test_ids_are_logged_and_of_very_many_only_the_number(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "gas.plugin.matching.allocator")
    Node(Kubelet()).allocate("card0-10", "card0-2")
    Node(Kubelet()).allocate(*(f"card{card}-{slot}" for card in (0, 1) for slot in range(500)))
    logged = [record.__dict__["ids"] for record in caplog.records]
    assert logged == ["card0-2,card0-10", "500 of card0,500 of card1"]


TWO = container("c", i915=2)
INIT = container("i", i915=1)


def _why(node: ByHand, *texts: str) -> str:
    return why_other_cards(node.allocate(*texts))


def test_kubelet_takes_any_of_what_init_containers_had_without_asking() -> None:
    pair = container("i", i915=2)
    node = ByHand(node_pod(ONE, init=(pair,), annotations=decided("card0", init="card0,card1")))
    node.prefer(2, slots(2))
    node.allocate("card0-0", "card1-0")
    assert _why(node, "card1-0").startswith("kubelet did not ask for a preference: it reuses devices of the pod's init")


@pytest.mark.parametrize(
    "pod",
    [
        pytest.param(node_pod(ONE, annotations=decided("card0")), id="no-init-container"),
        pytest.param(node_pod(container("c"), init=(INIT,), annotations=decided("", init="card0")), id="only-itself"),
        pytest.param(node_pod(ONE, init=(container("i"),), annotations=decided("card0")), id="one-without-cards"),
    ],
)
def test_kubelet_may_not_ask_for_a_preference(pod: Pod) -> None:
    assert _why(ByHand(pod), "card1-0") == "kubelet did not ask for a preference"


def test_the_card_of_an_init_container_is_kept() -> None:
    node = ByHand(node_pod(TWO, init=(INIT,), annotations=decided("card0,card1", init="card0")))
    node.prefer(1, ids("card2-0"))
    node.allocate("card2-0")
    node.prefer(2, slots(2), ids("card2-0"))
    assert _why(node, "card0-0", "card2-0") == "kubelet keeps card2, which an init container of the pod had"


def test_a_card_was_not_offered() -> None:
    node = ByHand(node_pod(TWO, annotations=decided("card0,card7")))
    node.prefer(2, slots(2))
    assert _why(node, "card0-0", "card1-0").startswith("kubelet did not offer card7: ")


def test_a_preference_was_not_followed() -> None:
    node = ByHand(node_pod(ONE, annotations=decided("card0")))
    node.prefer(1, slots(2))
    assert _why(node, "card1-0") == "kubelet did not follow the preference"
