"""A cluster for the page: cards of several models, pods of many sizes, measured use, and some of what goes wrong."""

import json
import random

from benchmarks.clusters import CARDS, SHARES, Object, Size, node_names, pod
from gas.decision import names as decision
from gas.vocabularies.intel import names

GB = 10**9
MODELS = (
    ("Data Center GPU Flex 170", 16, 1),
    ("Data Center GPU Max 1100", 48, 1),
    ("Data Center GPU Max 1550", 128, 2),
)
"""Model, gigabytes and tiles of a card."""

NAMESPACE = "kube-system"
METRICS_PORT = 9003


class Varied:
    """The objects of the cluster, and what its plugins measure. No card is over its capacity."""

    def __init__(self, size: Size, seed: int) -> None:
        self._chance = random.Random(seed)
        self._uses: dict[str, list[tuple[str, str, int]]] = {}
        self.nodes: list[Object] = []
        self.pods: list[Object] = [_daemon("gas-extender-0", "node-00000", "gas-extender")]
        kinds = [MODELS[0 if number % 7 < 4 else 1 if number % 7 < 6 else 2] for number in range(size.nodes)]
        for name, kind in zip(node_names(size), kinds, strict=True):
            self.nodes.append(self._node(name, *kind))
            self.pods.append(_daemon(f"gas-plugin-{name}", name, "gas-plugin", "--usage"))
        gigabytes = {name: kind[1] for name, kind in zip(node_names(size), kinds, strict=True)}
        free = {
            (name, card): kind[1] for name, kind in zip(node_names(size), kinds, strict=True) for card in range(CARDS)
        }
        unhealthy = {
            (each["metadata"]["name"], record["card"])
            for each in self.nodes
            for record in json.loads(each["metadata"]["annotations"]["gas-cards"])
            if not record.get("healthy", True)
        }
        places = sorted(free.keys() - unhealthy)
        for number in range(size.pods):
            name, card = places[int(self._chance.triangular(0, len(places), 0))]
            whole = gigabytes[name]
            wanted = self._chance.choice((whole // 4, whole // 2, whole // 2, 3 * whole // 4, whole))
            if wanted <= free[name, card]:
                free[name, card] -= wanted
                self.pods.append(self._placed(number, name, card, wanted, 1000 * wanted // whole))
        for number, (cards, wanted) in enumerate(((8, 128), (1, 200), (1, 160))):
            amounts = {"i915": cards, "memory.max": cards * wanted * GB}
            waiting = pod(f"wide-{number}" if number else "wide", amounts)
            self.pods.append(_alive(waiting, "Pending"))

    def _node(self, name: str, model: str, gigabytes: int, tiles: int) -> Object:
        records = [
            {
                "card": card,
                "driver": "i915",
                "model": model,
                "pci": f"0000:{0x10 + card:02x}:00.0",
                "numa": card // (CARDS // 2),
                "tiles": tiles,
                **({"healthy": False} if self._chance.random() < 0.004 else {}),
            }
            for card in range(CARDS)
        ]
        healthy = [each["card"] for each in records if each.get("healthy", True)]
        amounts = {
            "cpu": "64",
            "pods": "110",
            names.PREFIX + "i915": str(len(healthy) * SHARES),
            names.PREFIX + "millicores": str(len(healthy) * 1000),
            names.PREFIX + "memory.max": str(len(healthy) * gigabytes * GB),
            **({names.PREFIX + names.TILES: str(len(healthy) * tiles)} if tiles > 1 else {}),
        }
        labels = {names.GPU_NUMBERS: ".".join(map(str, healthy)), "zone": f"z{self._chance.randrange(4)}"}
        if tiles > 1:
            pairs = [(one, one + 1) for one in range(0, CARDS, 2)] + [(0, 4), (3, 7)]
            labels[names.PREFIX + "xe-links"] = "_".join(f"{a}.0-{b}.0" for a, b in pairs)
        if self._chance.random() < 0.01:
            labels["telemetry.aware.scheduling.policy/gas-disable-card1"] = "true"
        return {
            "metadata": {"name": name, "labels": labels, "annotations": {"gas-cards": json.dumps(records)}},
            "status": {
                "allocatable": amounts,
                "capacity": amounts,
                "conditions": [{"type": "Ready", "status": "True"}],
                "nodeInfo": {"kernelVersion": "6.12.0-amd64"},
            },
        }

    def _placed(self, number: int, node: str, card: int, wanted: int, millicores: int) -> Object:
        name = f"{self._chance.choice(('train', 'infer', 'render', 'notebook'))}-{number:05}"
        placed = pod(name, {"i915": 1, "millicores": millicores, "memory.max": wanted * GB})
        placed["metadata"]["annotations"] = {
            decision.TIMESTAMP: str(1_795_000_000_000_000_000 + number),
            decision.CONTAINER_CARDS: f"card{card}",
        }
        placed["spec"]["nodeName"] = node
        self._uses.setdefault(node, []).append((name, f"card{card}", wanted))
        return _alive(placed, "Running")

    def use(self, node: str) -> Object:
        """Return the document ``/usage`` of a node's plugin now; it differs each time."""
        pods: list[Object] = []
        for name, card, wanted in self._uses.get(node, ()):
            steady = random.Random(name).random()
            memory = int(wanted * GB * min(1.0, max(0.02, steady + self._chance.uniform(-0.05, 0.05))))
            busy = round(min(1.0, max(0.0, steady + self._chance.uniform(-0.1, 0.1))), 3)
            pods.append({"uid": name, "cards": {card: {"memoryUsed": memory, "engines": {"ccs": {"busy": busy}}}}})
        return {"trouble": None, "pods": pods}


def _alive(made: Object, phase: str) -> Object:
    metadata = made["metadata"] | {"uid": made["metadata"]["name"], "creationTimestamp": "2026-11-22T08:00:00Z"}
    return made | {"metadata": metadata, "status": {"phase": phase}}


def _daemon(name: str, node: str, *command: str) -> Object:
    container = {"name": "main", "image": "gas", "command": list(command)}
    made = {"metadata": {"name": name, "namespace": NAMESPACE}, "spec": {"nodeName": node, "containers": [container]}}
    return _alive(made, "Running")
