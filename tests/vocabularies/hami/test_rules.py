"""The amounts of containers in HAMi's words, refusals, and defaults of new pods."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from gas.daemon.flags import flags_in
from gas.extender.command_line import parse_flags
from gas.objects.json_patch import applied
from gas.objects.stored import NewPod
from gas.placement.inventory import Inventory
from gas.placement.need import PodNeed, Role, Scope
from gas.placement.order import LeastUsedParts, MostUsedParts, NodeScore, UsedFirst
from gas.placement.ratio import Ratio
from gas.values.amounts import MEMORY_MAX
from gas.values.card_records import parse_card_records
from gas.vocabularies.combined import Vocabularies
from gas.vocabularies.hami.texts import parse_register
from gas.vocabularies.hami.vocabulary import HamiFlags
from gas.vocabularies.pod_checks import PodChecks
from gas.vocabularies.pod_parts import ALONE, need_facts
from gas.vocabularies.protocol import BadNeed, DeviceOptions, NeedOptions, NodeFacts
from gas.vocabularies.selection import configured, parse_vocabularies
from tests.builders import pod, pod_json, requesting
from tests.hami_words import MIB, REGISTER, asking, wanting
from tests.other_words import asking as vendor_asking
from tests.plugin.gpus import gpu, nvidia_gpu

HAMI = Vocabularies(parse_vocabularies("intel,hami"))
ALL = Ratio(MEMORY_MAX, 100)


def with_flags(*flags: str, names: str = "intel,hami") -> Vocabularies:
    parsed = parse_flags([f"--vocabularies={names}", *flags])
    return Vocabularies(configured(parsed.vocabularies, parsed))


def need(*containers: dict[str, Any], of: Vocabularies = HAMI, **fields: Any) -> PodNeed:
    return of.need(pod(*containers, **fields), NeedOptions())


def takes(container: dict[str, Any], of: Vocabularies = HAMI) -> tuple[int, Any, int]:
    """Return cards, MiB or the part of the memory, and percent of compute of each."""
    (found,) = need(container, of=of).containers
    amounts = dict(found.per_card)
    memory = amounts[MEMORY_MAX] // MIB if MEMORY_MAX in amounts else found.ratios[0]
    assert amounts["gpu"] == 1
    return found.count, memory, amounts.get("millicores", 0) // 10


# contract H1.2, H1.3, H1.4, H1.5, H1.6
@pytest.mark.parametrize(
    ("amounts", "flags", "expected"),
    [
        ({"gpu": 1}, (), (1, ALL, 100)),
        ({"gpu": 2, "mem": "20k"}, (), (2, 20000, 0)),
        ({"gpu": 1, "mem": "3000m"}, (), (1, 3, 0)),
        ({"gpu": 1, "mem": 0}, (), (1, ALL, 0)),
        ({"gpu": 1, "pct": 0}, (), (1, ALL, 0)),
        ({"gpu": 1, "pct": 100}, (), (1, ALL, 100)),
        ({"gpu": 1, "pct": 100, "mem": 5}, (), (1, 5, 100)),
        ({"gpu": 1, "pct": 33, "cores": 5}, (), (1, Ratio(MEMORY_MAX, 33), 5)),
        ({"gpu": 1, "pct": 33, "mem": 0}, (), (1, Ratio(MEMORY_MAX, 33), 0)),
        ({"gpu": 1, "cores": 0}, (), (1, ALL, 0)),
        ({"gpu": 1, "mem": 5, "cores": 250}, (), (1, 5, 100)),
        ({"gpu": 1, "mem": 5}, ("--hami-default-cores=7", "--hami-default-memory=9"), (1, 5, 7)),
        ({"gpu": 1, "mem": 0}, ("--hami-default-memory=9",), (1, 9, 0)),
        ({"gpu": 1}, ("--hami-default-memory=9",), (1, 9, 100)),
        ({"gpu": 1, "pct": 50}, ("--hami-default-memory=9",), (1, Ratio(MEMORY_MAX, 50), 0)),
        ({"gpu": 1, "mem": 5}, ("--hami-memory-factor=1024",), (1, 5120, 0)),
    ],
)
def test_what_a_container_takes(amounts: dict[str, Any], flags: tuple[str, ...], expected: Any) -> None:
    assert takes(asking(**amounts), with_flags(*flags)) == expected


# contract H1.2, H1.3, H1.4, H2.5, H2.7
@pytest.mark.parametrize(
    ("amounts", "annotations", "sentence"),
    [
        (
            {"gpu": 1, "mem": "3Gi"},
            {},
            "container 'main': nvidia.com/gpumem counts MiB, found 3221225472; 3221225472 bytes would be 3072",
        ),
        ({"gpu": 1, "pct": 101}, {}, "container 'main': nvidia.com/gpumem-percentage: expected 0 to 100, found 101"),
        (
            {"pct": 5},
            {},
            "container 'main': nvidia.com/gpumem-percentage needs nvidia.com/gpu, the number of cards, which the"
            " webhook adds; add it",
        ),
        (
            {"gpu": 1},
            {"nvidia.com/vgpu-mode": "mig"},
            "nvidia.com/vgpu-mode: expected hami-core, the mode of every card, found 'mig'",
        ),
        (
            {"gpu": 1},
            {"nvidia.com/use-gputype": "a," * 300},
            "nvidia.com/use-gputype: expected at most 256 entries, found 300; shorten it",
        ),
        *(
            (
                {"gpu": 1},
                {"hami.io/device-scoring-weights": text},
                "hami.io/device-scoring-weights: expected whole numbers, not all 0, as in slot=1,core=1,memory=3,"
                f" found '{text}'",
            )
            for text in (
                *("", "slot=1,core=1", "slot=0,core=0,memory=0", "slot=1,core=1,memory=x"),
                *("slot=1,slot=1,memory=1", "slot=1,core=1,disk=1"),
            )
        ),
    ],
)
def test_pods_that_no_node_could_run(amounts: dict[str, Any], annotations: dict[str, str], sentence: str) -> None:
    with pytest.raises(BadNeed) as bad:
        need(asking(**amounts), annotations=annotations)
    assert str(bad.value) == sentence


# contract H1.6
def test_a_pod_without_cards_asks_for_nothing() -> None:
    assert not need(asking(gpu=0), asking("other", gpu=0, mem=5)).wants_cards


# contract H1.10, H1.11
def test_roles_of_containers() -> None:
    init = (asking("init", gpu=1), asking("side", gpu=1, always=True))
    found = need(asking("app", gpu=1), init=init).containers
    assert [each.role for each in found] == [Role.INIT, Role.SIDECAR, Role.APP]


# contract H1.7, H1.8, H2.2, H2.3, H2.4, H2.5, H2.6, H2.7
def test_rules_for_cards() -> None:
    plain = need(asking(gpu=1, mem=5))
    assert (plain.idle, plain.unfilled, type(plain.order)) == (False, frozenset({"millicores"}), LeastUsedParts)
    whole = need(asking(gpu=1), asking("other", gpu=1, mem=5, cores=5))
    assert (whole.idle, whole.unfilled, whole.company) == (True, frozenset(), ALONE)
    chosen = need(
        asking(gpu=2, mem=5),
        annotations={
            "hami.io/gpu-scheduler-policy": "numa, mutex,binpack,spread",
            "hami.io/device-scoring-weights": " memory = 3,slot=0, core=1",
            "hami.io/node-scheduler-policy": "spread",
            "nvidia.com/numa-bind": "T",
            "nvidia.com/vgpu-mode": "mig,hami-core",
            "nvidia.com/use-gputype": " A10,, V100",
        },
    )
    assert chosen.order == MostUsedParts((("gpu", 0), ("memory.max", 3), ("millicores", 1)))
    assert (chosen.near, chosen.idle, chosen.scope) == (True, True, Scope.NUMA)
    assert (chosen.node_score, chosen.models) == (NodeScore.LEAST_LOADED, frozenset({"a10", "v100"}))
    assert need(asking(gpu=1), annotations={"hami.io/node-scheduler-policy": "x"}).node_score == NodeScore.BEST_FIT
    aware = {"hami.io/gpu-scheduler-policy": "topology-aware"}
    assert [need(asking(gpu=count), annotations=aware).near for count in (1, 2)] == [False, True]


# contract H2.4
def test_a_pods_own_order_comes_first_then_its_policy_then_the_administrators() -> None:
    orders = [
        str(HAMI.need(pod(asking(gpu=1), annotations=annotations), options).order)
        for options in (NeedOptions(), NeedOptions(card_order=UsedFirst()))
        for annotations in ({}, {"hami.io/gpu-scheduler-policy": "binpack"}, {"gas-card-order": "natural"})
    ]
    assert orders == ["least-used", "most-used", "natural", "used-first", "most-used", "natural"]


# contract H1.4, H1.6, H2.4, H5.1, H5.3
@pytest.mark.parametrize(
    ("container", "annotation", "sentence"),
    [
        (asking(gpu=1, mem=99), "", "container 'main': nvidia.com/gpumem means only 99 MiB of each card"),
        (asking(gpu=1, mem=100, cores=101), "", "container 'main': nvidia.com/gpucores: 101 means 100, a whole card"),
        (asking(gpu=1), "gpu-scheduler-policy=numa-first", "'numa-first' is not known and means spread"),
        (asking(gpu=1), "node-scheduler-policy=x", "'x' is not known and means binpack"),
        (asking(gpu=1), "gpu-scheduler-policy=topology-aware", "topology-aware has no effect on a pod with one card"),
        (
            asking(gpu=1) | {"securityContext": {"privileged": True}},
            "",
            "container 'main' is privileged and would see all cards; remove that or nvidia.com/gpu",
        ),
        (
            requesting({"nvidia.com/gpu": 1, "nvidia.com/gpumemory": 1}),
            "",
            "container 'main' asks for 'nvidia.com/gpumemory', which no node has; did you mean nvidia.com/gpumem?",
        ),
        (asking(gpu=1, pct=50, prio=1), "gpu-scheduler-policy=mutex,spread", None),
    ],
)
def test_faults_and_warnings(container: dict[str, Any], annotation: str, sentence: str | None) -> None:
    name, _, text = annotation.partition("=")
    new = msgspec.convert(pod_json(container, annotations={f"hami.io/{name}": text} if name else {}), NewPod)
    expected = [] if sentence is None else [f"hami.io/{name}: {sentence}" if name else sentence]
    assert list(PodChecks(HAMI, NeedOptions()).pod(new).all) == expected


# contract H1.3, H1.6, H5.2
@pytest.mark.parametrize(
    ("limits", "flags", "added"),
    [
        ({"gpu": 1}, (), {"gpucores": "100"}),
        ({"gpumem": 5}, (), {"gpu": "1"}),
        ({"gpumem-percentage": 100}, ("--hami-default-gpus=2",), {"gpu": "2", "gpucores": "100"}),
        ({"gpucores": 5}, (), {"gpu": "1"}),
        ({"gpu": 1, "gpumem": 0}, (), {}),
        ({"gpu": "x"}, (), {}),
    ],
)
@pytest.mark.parametrize("form", ["limits", "both"])
def test_the_webhook_adds_what_a_container_does_not_state(
    limits: dict[str, Any], flags: tuple[str, ...], added: dict[str, str], form: str
) -> None:
    stated = {f"nvidia.com/{name}": str(amount) for name, amount in limits.items()}
    # The API server copies limits to requests before it asks webhooks; a template's pod may still lack them.
    written = {"limits": stated, "requests": stated} if form == "both" else {"requests": stated}
    document = pod_json({"name": "a", "resources": written}, {"name": "b"}, init=({"name": "c", "resources": written},))
    checks = PodChecks(with_flags(*flags), NeedOptions())
    new = msgspec.convert(document, NewPod)
    changed = applied(checks.complete(new), document)["spec"]
    for container in (changed["containers"][0], changed["initContainers"][0]):
        expected = stated | {f"nvidia.com/{name}": amount for name, amount in added.items()}
        assert container["resources"]["requests"] == expected
    assert not checks.complete(msgspec.convert(applied(checks.complete(new), document), NewPod))


# contract H5.2
def test_the_webhook_gives_pods_without_one_a_runtime_class() -> None:
    checks = PodChecks(with_flags("--hami-runtime-class=nvidia"), NeedOptions())
    for own, expected in ((None, "nvidia"), ("own", "own")):
        document = wanting(gpu=1)
        document["spec"] |= {"runtimeClassName": own} if own else {}
        changed = applied(checks.complete(msgspec.convert(document, NewPod)), document)
        assert changed["spec"]["runtimeClassName"] == expected


# contract H1.1
def test_resources_by_other_names() -> None:
    renamed = with_flags("--hami-resources=gpu=example.com/vgpu, gpumem=example.com/vmem")
    asked = requesting({"example.com/vgpu": 2, "example.com/vmem": 30, "nvidia.com/gpucores": 5})
    assert takes(asked, renamed) == (2, 30, 5)
    assert renamed.resources[-1] == "example.com/vgpu"
    assert "example.com/vmem" in renamed.managed_resources
    assert renamed.ignored_resources == {
        "example.com/vmem",
        *(f"nvidia.com/{name}" for name in ("gpumem-percentage", "gpucores", "priority")),
    }


@pytest.mark.parametrize("text", ["gpu", "gpu=vgpu", "card=a.b/c", "gpu=a.b/c,gpumem=a.b/c", "gpu=a.b/c,gpu=a.b/d"])
def test_names_that_cannot_be_read(text: str) -> None:
    (declared,) = (each for each in flags_in(HamiFlags) if each.name == "hami-resources")
    with pytest.raises(ValueError, match="different full names of gpu, gpumem"):
        declared.parse(text)


# contract H4.1
def test_only_one_vocabulary_reads_nvidias_cards() -> None:
    both = with_flags(names="intel,vendor,hami,koordinator")
    assert both.resources.count("nvidia.com/gpu") == 1
    assert need(vendor_asking(nvidia=1), of=both).count_resources == {"gpu"}
    assert need(vendor_asking(dcu=1), of=both).containers[0].count == 1
    assert both.ids_per_card(nvidia_gpu(0), DeviceOptions())["nvidia.com/gpu"] == 10
    with pytest.raises(BadNeed, match="in the words of koordinator and of hami"):
        need(requesting({"nvidia.com/gpu": 1, "koordinator.sh/gpu-memory": 1}), of=both)


# contract H3.7, H4.2
def test_what_the_plugin_offers_and_writes() -> None:
    hami = with_flags("--hami-split-count=3")
    cards = [nvidia_gpu(0, model="NVIDIA A10", numa_node=1), nvidia_gpu(1, model="Tesla V100", healthy=False), gpu(2)]
    assert [dict(hami.ids_per_card(each, DeviceOptions())) for each in cards][:2] == [{"nvidia.com/gpu": 3}] * 2
    annotations = hami.describe(cards, DeviceOptions()).annotations
    assert len(parse_card_records(annotations["gas-cards"])[0]) == 3
    first, second = parse_register(annotations[REGISTER])
    assert (first.id, first.count, first.devmem, first.devcore, first.numa) == (cards[0].uuid, 3, 81920, 100, 1)
    assert (first.type, first.mode, first.health) == ("NVIDIA A10", "hami-core", True)
    assert (second.type, second.index, second.health) == ("NVIDIA-Tesla V100", 1, False)
    assert REGISTER not in hami.describe([gpu(2)], DeviceOptions()).annotations


# contract H1.12
def test_a_priority_becomes_a_variable() -> None:
    asked = pod(asking("a", gpu=1, prio=1), asking("b", gpu=1))
    node = NodeFacts(inventory=Inventory(capacity={}))
    given = [HAMI.environment(asked, name, [nvidia_gpu(0)], node) for name in "ab"]
    assert given == [{"CUDA_TASK_PRIORITY": "1"}, {}]
    assert len(need_facts(asked).containers) == 2
