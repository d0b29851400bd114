"""Small clusters made from a number, with everything that decides where a pod may go.

That is the rules of placement, of Kubernetes, and of several vocabularies.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from gas.extender.wire import BindingArgs
from gas.inspection.cluster import Cluster
from gas.values.errors import GasError
from tests.builders import container, pod_json
from tests.inspection.example_cluster import GB, cluster_of, decoded_pod, extender_pod, gpu_node_json, record
from tests.inspection.steps import passing
from tests.other_words import GPU_COUNT, GPU_MEM, KOORDINATOR, MIB

Object = dict[str, Any]
TELEMETRY = "telemetry.aware.scheduling.p/gas-"
TRIES = 25
"""Pods that are made in search of one that has to wait."""


class VariedCluster:
    """Up to 3 nodes, pods that run on them, and a pod that waits because of them if one is found.

    nodes  as JSON
    pods   the extender's, then those that run
    asked  the pod that waits
    """

    def __init__(self, number: int, *, prefers_cards: bool) -> None:
        self._choose = random.Random(number)
        self._words = self._choose.choice([[], [], ["koordinator"], ["aliyun"], ["koordinator", "aliyun"]])
        flags = ["--enableAllowlist", "--enableDenylist", f"--vocabularies={','.join(['intel', *self._words])}"]
        if self._choose.random() < 0.3:
            orders = ("fewest-containers", "best-fit=memory.max", "used-first")
            flags.append(f"--card-order={self._choose.choice(orders)}")
        self.nodes = [self._node(f"n-{at}", prefers_cards=prefers_cards) for at in range(self._choose.randint(1, 3))]
        self.pods = [extender_pod(*flags)]
        self._run_pods(self._choose.choice([0, 2, 4, 5, 6, 7, 8]))
        self.asked = self._waiting(cluster_of(self.nodes, self.pods), cluster_of(self.nodes, self.pods[:1]))

    def cluster(self) -> Cluster:
        return cluster_of(self.nodes, [*self.pods, self.asked])

    def _run_pods(self, most: int) -> None:
        """Bind pods where they fit, then end some of them."""
        cluster = cluster_of(self.nodes, self.pods)
        placed: list[Object] = []
        for at in range(most):
            built = self._pod(f"p-{at}")
            metadata, pod = built["metadata"], decoded_pod(built)
            names: Sequence[str] = ()
            with suppress(GasError):
                names = passing(cluster, pod)
            if names:
                node = self._choose.choice(names)
                args = BindingArgs(metadata["name"], "default", metadata["uid"], node)
                metadata["annotations"] |= cluster.decider.reserve(args, pod, now=at + 1.0)
                built["spec"]["nodeName"], built["status"]["phase"] = node, "Running"
                placed.append(built)
        self.pods += [pod for pod in placed if self._choose.random() < 0.85]

    def _waiting(self, now: Cluster, empty: Cluster) -> Object:
        for _ in range(TRIES):
            built = self._pod("asked")
            with suppress(GasError):
                if passing(empty, decoded_pod(built)) and not passing(now, decoded_pod(built)):
                    break
        return built

    def _node(self, name: str, *, prefers_cards: bool) -> Object:
        choose = self._choose
        cards, memory, tiles = choose.randint(1, 3), choose.randint(4, 9) * GB, choose.choice([0, 0, 2])
        likely = {
            "gpu.intel.com/numa-gpu-map": (0.4 * (cards > 1), "0-0_1-" + ".".join(map(str, range(1, cards)))),
            "gpu.intel.com/xe-links": (
                0.5 * (tiles > 0 and cards > 1),
                "_".join(f"{card}.0-{card + 1}.0" for card in range(cards - 1)),
            ),
            f"{TELEMETRY}disable-card0": (0.12, "true"),
            f"{TELEMETRY}tile-disable-card0_gt1": (0.12 * (tiles > 0), "true"),
            f"{TELEMETRY}prefer-gpu": (0.15 * prefers_cards, f"card{cards - 1}"),
        }
        labels = {"zone": choose.choice("ab")}
        labels |= {label: text for label, (share, text) in likely.items() if choose.random() < share}
        node = gpu_node_json(
            name, *(record(card, numa=card % 2) for card in range(cards)), memory=memory, labels=labels
        )
        amounts = node["status"]["allocatable"]
        amounts["gpu.intel.com/i915"] = str(cards * choose.choice([1, 2, 10]))
        if tiles:
            amounts["gpu.intel.com/tiles"] = str(cards * tiles)
        if "koordinator" in self._words:
            amounts |= dict.fromkeys(KOORDINATOR.values(), str(100 * cards))
            amounts[KOORDINATOR["memory"]] = str(memory * cards)
        if "aliyun" in self._words:
            amounts |= {GPU_MEM: str(cards * (memory // MIB)), GPU_COUNT: str(cards)}
        amounts |= {"cpu": choose.choice(["1", "3", "8"]), "pods": choose.choice(["3", "110"])}
        if choose.random() < 0.1:
            node["spec"] = {"taints": [{"key": "gpu", "effect": "NoSchedule"}]}
        return node

    def _pod(self, name: str) -> Object:
        """Return a pod that asks for cards in one of the vocabularies."""
        choose = self._choose
        match choose.choice(["intel", "intel", *self._words]):
            case "koordinator":
                built = pod_json(self._koordinator(), name=name, uid=f"uid-{name}", annotations={})
            case "aliyun":
                built = pod_json(
                    _asking({GPU_MEM: choose.randint(1000, 6000)}), name=name, uid=f"uid-{name}", annotations={}
                )
            case _:
                built = self._intel(name)
        if choose.random() < 0.6:
            resources = choose.choice(built["spec"]["containers"]).setdefault("resources", {"requests": {}})
            resources["requests"] = {**resources["requests"], "cpu": choose.choice(["0", "100m", "500m", "2"])}
        if choose.random() < 0.15:
            built["spec"]["nodeSelector"] = {"zone": choose.choice("ab")}
        if choose.random() < 0.3:
            built["spec"]["tolerations"] = [{"operator": "Exists"}]
        return built

    def _koordinator(self) -> Object:
        requests = self._choose.choice(
            [
                {"core": 50, "ratio": 50},
                {"core": 20, "ratio": 100},
                {"core": 20, "memory": 3 * GB},
                {"gpu": 100},
                {"gpu": 200},
                {"core": 60, "ratio": 60, "shared": 2},
            ]
        )
        return _asking({KOORDINATOR[key]: amount for key, amount in requests.items()})

    def _intel(self, name: str) -> Object:
        choose = self._choose
        containers = [self._container(f"c{at}", asks=at == 0) for at in range(choose.choice([1, 1, 1, 2, 3]))]
        init = [
            self._container(f"i{at}", sidecar=choose.random() < 0.5) for at in range(choose.choice([0, 0, 0, 1, 2]))
        ]
        rules: tuple[dict[str, str], ...] = (
            {"gas-deny": choose.choice(["card0", "card1", "card0,card2"])},
            {"gas-allow": choose.choice(["card0", "card1", "card0,card1"])},
            {"gas-allocate-single-numa": "true"},
            {"gas-allocate-xelink": "true"},
            {"gas-same-gpu": "c0,c1"},
        )
        annotations = dict(choose.choice(rules)) if choose.random() < 0.4 else {}
        if "gas-allocate-xelink" in annotations:
            containers, init = [container("c0", i915=2, tiles=2)], []
        if "gas-same-gpu" in annotations:
            containers, init = (
                [container(each, i915=1, memory_max=choose.randint(1, 3) * GB) for each in ("c0", "c1")],
                [],
            )
        if choose.random() < 0.3:
            annotations[f"gas-card-{choose.choice(['exclusion', 'anti-affinity', 'affinity'])}"] = choose.choice("xy")
        elif choose.random() < 0.1:
            orders = ("fewest-containers", "best-fit=memory.max", "used-first", "least-used=millicores")
            annotations["gas-card-order"] = choose.choice(orders)
        return pod_json(*containers, name=name, uid=f"uid-{name}", init=tuple(init), annotations=annotations)

    def _container(self, name: str, *, asks: bool = False, sidecar: bool = False) -> Object:
        choose = self._choose
        if not asks and choose.random() < 0.2:
            return container(name, always=sidecar)
        count = choose.choice([1, 1, 1, 2, 2, 3])
        likely = {
            "memory_max": (0.8, choose.randint(1, 6) * GB * count),
            "millicores": (0.7, choose.choice([100, 500, 900]) * count),
            "tiles": (0.2, choose.choice([1, 2]) * count),
        }
        wanted = {resource: amount for resource, (share, amount) in likely.items() if choose.random() < share}
        return container(name, always=sidecar, i915=count, **wanted)


def _asking(requests: Mapping[str, int]) -> Object:
    written = {name: str(amount) for name, amount in requests.items()}
    return {"name": "c0", "resources": {"requests": written, "limits": dict(written)}}
