"""Make pods and nodes of the simulation, and read what they mean from the objects alone, not by the product's code."""

import json
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from fractions import Fraction
from functools import lru_cache
from itertools import combinations
from typing import Any

Object = Mapping[str, Any]
Use = dict[str, dict[str, int]]  # amounts by card and by resource

PREFIX = "gpu.intel.com/"
COUNT = "i915"
CPU = "cpu"
ALIYUN = "aliyun.com/"
ALIYUN_ANNOTATIONS = tuple("ALIYUN_" + name for name in ("COM_GPU_MEM_IDX", "GPU_ID", "COM_GPU_MEM_POD"))
KOORDINATOR = "koordinator.sh/"
ALLOCATED = "scheduling.koordinator.sh/device-allocated"
VENDOR = "nvidia.com/gpu"
RESOURCES = {name: PREFIX + name for name in (COUNT, "millicores", "memory.max", "tiles")} | {
    "gpu-mem": ALIYUN + "gpu-mem",
    "gpu.shared": KOORDINATOR + "gpu.shared",
    "nvidia-gpu": VENDOR,
}
"""By resource of a card in ledgers, the resource of nodes that counts it."""

CARDS = "gas-container-cards"
INIT_CARDS = "gas-init-container-cards"
RECEIPT = "gas-allocated-cards"
INIT_RECEIPT = "gas-allocated-init-cards"
RECEIPTS = {RECEIPT: "containers", INIT_RECEIPT: "initContainers"}  # the containers that each is about
DECISIONS = {"containers": CARDS, "initContainers": INIT_CARDS}
TILES = "gas-container-tiles"
TILE_VARIABLE = "ZE_AFFINITY_MASK"
TIMESTAMP = "gas-ts"
SHARE = "kubeshare/"
COMPANY = tuple(SHARE + name for name in ("sched_affinity", "sched_anti-affinity", "sched_exclusion"))
CARD_NAME = SHARE + "GPUID"
ALLOW, DENY = "gas-allow", "gas-deny"
SINGLE_NUMA = "gas-allocate-single-numa"
NODE_SCORE = "gas-node-score"
LINKED = "gas-allocate-xelink"
DISABLED = "telemetry.aware.scheduling.p/gas-disable-"

VOLUME_SECONDS = "example.com/volume-seconds"  # how long a pod's volumes take, once its node is chosen
VOLUME_FAILURES = "example.com/volume-failures"  # how often that fails before it succeeds
ONLY_NODE = "example.com/only-node"  # of a pod that no other node may have
POD_GROUP = "example.com/pod-group"  # of a pod that belongs to one
PRIORITY = "example.com/priority"  # of a pod that evicts no others

NAMESPACE = "other"  # of some pods, if there are several
APPS = ("a", "b", "")  # labels of pods; disruption budgets are about the first two
PRIORITIES = (0, 100, 1000)
SLOTS = 10  # number of containers that may share a card
OTHER_SCHEDULER = "other"  # ``schedulerName`` of pods that another client binds

MEMORY = 8_000_000_000

MIB = 2**20  # bytes of one unit of Aliyun's

TILES_OF_A_CARD = 2

_COUNTED = {ALIYUN + "gpu-mem", SHARE + "vgpu"}

MANAGED = (*_COUNTED, PREFIX + COUNT, KOORDINATOR + "gpu.shared", VENDOR)  # the scheduler asks the extender for these

_SUFFIXES = {"k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}


@lru_cache(1024)
def quantity(text: str) -> Fraction:
    text = str(text)
    for suffix, factor in _SUFFIXES.items():
        if text.endswith(suffix):
            return Fraction(text.removesuffix(suffix)) * factor
    return Fraction(text.removesuffix("m")) / 1000 if text.endswith("m") else Fraction(text)


def node(name: str, cards: tuple[int, ...]) -> dict[str, Any]:
    return {
        "metadata": {
            "name": name,
            "labels": {"kubernetes.io/hostname": name} | card_labels(cards),
            "annotations": card_records(cards),
        },
        "status": {"capacity": card_amounts(cards), "allocatable": card_amounts(cards)},
    }


def card_labels(cards: tuple[int, ...]) -> dict[str, str]:
    """Return the labels of a node: its cards, and the links that each pair of them has, see `linked_tile`."""
    pairs = zip(cards[::2], cards[1::2], strict=False)
    links = (f"{one}.{tile}-{other}.{1 - tile}" for one, other in pairs for tile in (0, 1))
    return {PREFIX + "gpu-numbers": ".".join(map(str, cards)), PREFIX + "xe-links": "_".join(links)}


def card_records(cards: tuple[int, ...]) -> dict[str, str]:
    """Return the annotation of a node that describes its cards one by one."""
    # With this driver, the vendor's whole cards are the same cards.
    records = ",".join(f'{{"card":{number},"driver":"nvidia","memory":{MEMORY}}}' for number in cards)
    return {"gas-cards": f"[{records}]"}


def card_amounts(cards: tuple[int, ...]) -> dict[str, str]:
    of_each = {
        SHARE + "vgpu": 1000,
        SHARE + "millicores": 1000,
        SHARE + "memory.max": MEMORY,
        PREFIX + COUNT: SLOTS,
        PREFIX + "millicores": 1000,
        PREFIX + "memory.max": MEMORY,
        PREFIX + "tiles": TILES_OF_A_CARD,
        ALIYUN + "gpu-mem": MEMORY // MIB,
        ALIYUN + "gpu-count": 1,
        KOORDINATOR + "gpu-memory": MEMORY,
        VENDOR: 1,
    } | {KOORDINATOR + name: 100 for name in ("gpu.shared", "gpu-core", "gpu-memory-ratio")}
    return {"cpu": "1000", "memory": "4000Gi", "pods": "200"} | {
        name: str(amount * len(cards)) for name, amount in of_each.items()
    }


def budget(app: str, allowed: int) -> dict[str, Any]:
    """Return a disruption budget of pods with a label, which allows a number of disruptions."""
    spec = {"selector": {"matchLabels": {"app": app}}}
    return {"metadata": {"name": f"of-{app}"}, "spec": spec, "status": {"disruptionsAllowed": allowed}}


def pod_group(minimum: int) -> dict[str, Any]:
    return {"spec": {"schedulingPolicy": {"gang": {"minCount": minimum}}}}


def group_of(value: Object) -> str:
    """Return the name of a pod's PodGroup; empty if it has none."""
    return str((value["spec"].get("schedulingGroup") or {}).get("podGroupName", ""))


def budget_of(value: Object) -> str:
    """Return the label of the disruption budget that counts a pod; empty if there is none."""
    metadata = value["metadata"]
    return (metadata.get("labels") or {}).get("app", "") if metadata["namespace"] == "default" else ""


def pod(
    name: str, containers: list[dict[str, int]], init: list[dict[str, int]], fields: Object, *, prefix: str = PREFIX
) -> dict[str, Any]:
    """Return a pod whose containers request these amounts, by resource without its prefix; ``cpu`` has none."""

    def built(kind: str, index: int, asks: dict[str, int]) -> dict[str, Any]:
        amounts = {name if name == CPU else prefix + name: str(amount) for name, amount in asks.items()}
        resources = {"limits": amounts, "requests": amounts}
        return {"name": f"{kind}{index}", "image": "example/gpu:1", "resources": resources if amounts else {}}

    metadata = {"name": name, **fields}
    spec: dict[str, Any] = {"containers": [built("main", i, asks) for i, asks in enumerate(containers)]}
    if init:
        spec["initContainers"] = [built("init", i, asks) for i, asks in enumerate(init)]
    return {"metadata": metadata, "spec": spec}


def share(
    name: str, thousandths: float, memory: int, labels: Mapping[str, str], fields: Object, *, complete: bool = True
) -> dict[str, Any]:
    """Return a pod that asks for a part of a card by KubeShare's annotations and, if ``complete``, for ``vgpu``."""
    built = pod(name, [{"vgpu": 1} if complete else {}], [], fields, prefix=SHARE)
    built["metadata"]["annotations"] = {
        SHARE + "gpu_request": str(thousandths / 1000),
        SHARE + "gpu_limit": "1.0",
        SHARE + "gpu_mem": str(memory),
        **labels,
        **(fields.get("annotations") or {}),
    }
    return built


def annotations_of(value: Object) -> Mapping[str, str]:
    return value["metadata"].get("annotations") or {}


def owners_of(value: Object) -> set[str]:
    """Return the UIDs of the objects that an object belongs to."""
    return {each["uid"] for each in value["metadata"].get("ownerReferences") or ()}


def share_of(value: Object) -> dict[str, int] | None:
    """Return what a pod of KubeShare's or Aliyun's vocabulary takes of its card; None for other pods."""
    if units := limits_of(value)[ALIYUN + "gpu-mem"]:
        return {"gpu-mem": units, "memory.max": units * MIB, "millicores": units * MIB * 1000 // MEMORY}
    annotations = annotations_of(value)
    if SHARE + "gpu_request" not in annotations:
        return None
    found = {
        "millicores": math.ceil(Fraction(annotations[SHARE + "gpu_request"]) * 1000),
        "memory.max": int(annotations[SHARE + "gpu_mem"]),
    }
    return {name: amount for name, amount in found.items() if amount}


def stated_share(value: Object) -> dict[str, int] | None:
    """Return the resources that a pod of KubeShare's must request to state what it takes; None for other pods."""
    if SHARE + "gpu_request" not in annotations_of(value):
        return None
    part = share_of(value) or {}
    return {SHARE + "vgpu": 1} | {SHARE + name: part.get(name, 0) for name in ("millicores", "memory.max")}


def company_of(value: Object) -> tuple[str, str, str]:
    """Return the labels of affinity, anti-affinity and exclusion of a pod. Whole cards have a label of their own."""
    if VENDOR in limits_of(value):
        return "", "", VENDOR
    annotations = annotations_of(value)
    affinity, anti_affinity, exclusion = (annotations.get(name, "") for name in COMPANY)
    return affinity, anti_affinity, exclusion


def card_name_of(value: Object) -> str:
    return annotations_of(value).get(CARD_NAME, "")


def may_have(value: Object, card: str) -> bool:
    """Return whether a pod's lists of allowed and denied cards leave it a card."""
    annotations = annotations_of(value)
    return card in annotations.get(ALLOW, card).split(",") and card not in annotations.get(DENY, "").split(",")


def card_groups(value: Object, cards: Iterable[str]) -> list[set[str]]:
    """Return sets of cards of which one must serve a pod, if it asks for a single NUMA node or for two linked cards."""
    asks, groups = annotations_of(value), dict[tuple[int, int], set[str]]()
    for card in cards:
        number = int(card.removeprefix("card"))
        key = (SINGLE_NUMA in asks and number % 2, LINKED in asks and number // 2)
        groups.setdefault(key, set()).add(card)
    return list(groups.values()) or [set()]


def linked_tile(card: str, tile: str) -> tuple[str, str]:
    """Return the tile that a link joins to this one: of the other card of the pair, with the other number."""
    return f"card{int(card.removeprefix('card')) ^ 1}", f"gt{1 - int(tile.removeprefix('gt'))}"


def numa_label(cards: Iterable[int]) -> dict[str, str]:
    groups = (".".join(str(card) for card in cards if card % 2 == node) for node in (0, 1))
    return {PREFIX + "numa-gpu-map": "_".join(f"{node}-{group}" for node, group in enumerate(groups) if group)}


def disabled_cards(node: Object) -> set[str]:
    labels = node["metadata"].get("labels") or {}
    return {name.removeprefix(DISABLED) for name in labels if name.startswith(DISABLED)}


def tile_variable(cards: Iterable[str], tiles: Iterable[tuple[str, str]]) -> str:
    """Return the variable that limits a container to its tiles, which count through its cards; empty without tiles."""
    first = {card: at * TILES_OF_A_CARD for at, card in enumerate(cards)}
    return ",".join(map(str, sorted(first[card] + int(tile.removeprefix("gt")) for card, tile in tiles)))


def decided_at(value: Object) -> int:
    """Return a number that rises with each decision on the same node; 0 without a decision."""
    return int(annotations_of(value).get(TIMESTAMP) or 0)


def is_over(value: Object) -> bool:
    return value.get("status", {}).get("phase") in ("Succeeded", "Failed")


def demand(container: Object) -> tuple[int, dict[str, int]]:
    """Return the number of cards of a container, and what it takes of each of them. Parts are rounded up."""
    limits = _limits(container)
    if count := limits.get(PREFIX + COUNT, 0):
        amounts = {name.removeprefix(PREFIX): amount for name, amount in limits.items() if name != CPU}
    elif count := limits.get(KOORDINATOR + "gpu.shared", 0):
        ratio = limits.get(KOORDINATOR + "gpu-memory-ratio", 0)
        amounts = {
            "gpu.shared": count,
            "millicores": 10 * limits.get(KOORDINATOR + "gpu-core", 0),
            "memory.max": limits.get(KOORDINATOR + "gpu-memory", 0) or MEMORY * ratio // 100,
        }
    elif count := limits.get(VENDOR, 0):
        amounts = {"nvidia-gpu": count, "millicores": 1000 * count}
    else:
        return 0, {}
    return count, {name: -(-amount // count) for name, amount in amounts.items() if amount}


def _limits(container: Object) -> dict[str, int]:
    limits = (container.get("resources") or {}).get("limits") or {}
    return {name: int(quantity(text)) for name, text in limits.items()}


def limits_of(value: Object) -> Counter[str]:
    """Return the sums of what app containers request, by full name."""
    return sum((Counter(_limits(each)) for each in value["spec"]["containers"]), Counter[str]())


def asks_for_cards(value: Object) -> bool:
    return share_of(value) is not None or requests_cards(value)


def requests_cards(value: Object) -> bool:
    """Return whether a pod asks for a card by a resource, so that kube-scheduler and kubelet know of it."""
    spec = value["spec"]
    containers = [*spec["containers"], *(spec.get("initContainers") or [])]
    return any(demand(each)[0] or not _COUNTED.isdisjoint(_limits(each)) for each in containers)


def cards_of(text: str) -> list[list[str]]:
    return [place.split(",") if place else [] for place in text.split("|")]


def tiles_of(text: str) -> list[set[tuple[str, str]]]:
    """Parse the tiles of each container as pairs of a card and a tile."""
    places = ([each.partition(":") for each in place.split(",")] for place in text.split("|"))
    return [{(card, tile) for card, _, tiles in place if card for tile in tiles.split("+")} for place in places]


def tiles_of_containers(value: Object) -> list[set[tuple[str, str]]]:
    return tiles_of(annotations_of(value).get(TILES, ""))


def in_own_words(value: Object) -> Use | None:
    """Return what a pod takes of each card by Aliyun's or Koordinator's annotations; None if it has none."""
    annotations = annotations_of(value)
    number, again, units = (annotations.get(name) for name in ALIYUN_ANNOTATIONS)
    if number is not None or again is not None:
        return {f"card{each}": {"gpu-mem": int(units or 0)} for each in (number, again)}
    if ALLOCATED not in annotations:
        return None
    found = {
        f"card{each['minor']}": {
            "millicores": 10 * int(each["resources"][KOORDINATOR + "gpu-core"]),
            "memory.max": int(each["resources"][KOORDINATOR + "gpu-memory"]),
        }
        for each in json.loads(annotations[ALLOCATED])["gpu"]
    }
    if VENDOR not in limits_of(value):
        return found
    # A pod with whole cards says that it has all of their memory, of which it asked for nothing.
    return {card: {"millicores": of["millicores"]} for card, of in found.items() if of["memory.max"] == MEMORY}


def use_of(value: Object, annotations: Mapping[str, str]) -> Use | None:
    """Return what a pod takes of each card according to annotations; None if they say nothing.

    Init containers run before the others, so the larger of both counts.
    """
    text = annotations.get(RECEIPT) or annotations.get(CARDS)
    if not text:
        return None
    if (part := share_of(value)) is not None:
        return {card: dict(part) for cards in cards_of(text) for card in cards}
    use = _use(value["spec"]["containers"], cards_of(text))
    init = value["spec"].get("initContainers") or []
    for container, cards in zip(
        init, cards_of(annotations.get(INIT_RECEIPT) or annotations.get(INIT_CARDS) or ""), strict=False
    ):
        join(use, _use([container], [cards]), max)
    return use


def _use(containers: list[Object], places: list[list[str]]) -> Use:
    use: Use = {}
    for container, cards in zip(containers, places, strict=False):
        for card in cards:
            join(use, {card: demand(container)[1]}, int.__add__)
    return use


def join(use: Use, other: Mapping[str, Mapping[str, int]], combine: Callable[[int, int], int]) -> None:
    """Combine other amounts with those in ``use``, in place."""
    for card, amounts in other.items():
        mine = use.setdefault(card, {})
        for resource, amount in amounts.items():
            mine[resource] = combine(mine.get(resource, 0), amount)


def added(uses: Iterable[Mapping[str, Mapping[str, int]]]) -> Use:
    """Return the sums by card and resource, without those that are 0."""
    total: Use = {}
    for use in uses:
        join(total, use, int.__add__)
    found = {card: {name: amount for name, amount in amounts.items() if amount} for card, amounts in total.items()}
    return {card: amounts for card, amounts in found.items() if amounts}


def capacity_of(value: Object) -> Use:
    label = (value["metadata"].get("labels") or {}).get(PREFIX + "gpu-numbers", "")
    numbers = [number for number in label.split(".") if number]
    allocatable = (value.get("status") or {}).get("allocatable") or {}
    sums = {resource: int(quantity(allocatable.get(name, "0"))) for resource, name in RESOURCES.items()}
    return {f"card{each}": {name: amount // len(numbers) for name, amount in sums.items()} for each in numbers}


def intels_capacity(cards: Iterable[int]) -> Use:
    """Return what cards have in Intel's words."""
    return {
        f"card{each}": {COUNT: SLOTS, "millicores": 1000, "memory.max": MEMORY, "tiles": TILES_OF_A_CARD}
        for each in cards
    }


def recorded_cards(value: Object) -> list[int]:
    """Return the cards that the annotation of a node describes."""
    return [each["card"] for each in json.loads(annotations_of(value).get("gas-cards", "[]"))]


def fits(value: Object, capacity: Use, used: Mapping[str, Mapping[str, int]]) -> bool:
    """Return whether a pod without init containers fits on the free cards of a node, trying every choice of cards."""
    free = {card: dict(amounts) for card, amounts in capacity.items()}
    join(free, {card: used[card] for card in free if card in used}, int.__sub__)
    if (part := share_of(value)) is not None:
        return any(all(amounts.get(name, 0) >= part[name] for name in part) for amounts in free.values())
    demands = [demand(each) for each in value["spec"]["containers"]]
    if KOORDINATOR + "gpu.shared" in limits_of(value):  # the containers divide the pod's cards, in equal shares
        demands = [(sum(count for count, _ in demands), demands[0][1])]
    return _fits(demands, free)


def _fits(left: list[tuple[int, dict[str, int]]], free: Use) -> bool:
    if not left:
        return True
    (count, share), rest = left[0], left[1:]
    for cards in combinations(sorted(free), count):
        if all(free[card].get(resource, 0) >= amount for card in cards for resource, amount in share.items()):
            after = {card: dict(amounts) for card, amounts in free.items()}
            join(after, dict.fromkeys(cards, share), int.__sub__)
            if _fits(rest, after):
                return True
    return False
