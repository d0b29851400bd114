"""Small doubles of what Koordinator does with GPUs: what they read and write, from its sources (a7a1b76).

DeviceShare is a plugin of koord-scheduler; here it is an extender of kube-scheduler, which writes the same. It differs
in one thing: it counts pods that are being deleted until they are gone, so that a card with too much on it is never its
own doing. Koordlet's hook gives a container the cards in `ALLOCATED`; here the pods' own variable does.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Mapping

from gas.values.amounts import parse_quantity
from tests.e2e.extender_double import ExtenderDouble
from tests.e2e.kube_api import KubeApi, Object
from tests.e2e.nvidia_plugin import NVIDIA
from tests.e2e.pods import OVER

PREFIX = "koordinator.sh/"
SHARED, CORE, MEMORY, RATIO = (PREFIX + name for name in ("gpu.shared", "gpu-core", "gpu-memory", "gpu-memory-ratio"))
ALLOCATED = "scheduling.koordinator.sh/device-allocated"
MINORS = "scheduling.koordinator.sh/gpu-minors"
TIMESTAMP = "scheduling.koordinator.sh/bind-timestamp"


def requested(pod: Object) -> tuple[int, dict[str, int]]:
    """Return how many cards a pod asks for, and what it takes of each."""
    total: dict[str, int] = {}
    for container in pod["spec"]["containers"]:
        for name, amount in container.get("resources", {}).get("limits", {}).items():
            total[name] = total.get(name, 0) + parse_quantity(amount)
    if whole := total.get(NVIDIA, 0):
        return whole, {CORE: 100, RATIO: 100}
    count = total.get(SHARED, 0)
    return count, {name: total[name] // count for name in (CORE, MEMORY, RATIO) if name in total}


class DeviceShare(ExtenderDouble):
    """The scheduler's half, served by the process of the tests.

    memory  bytes of each card, as koordlet reports them
    """

    managed = (SHARED, NVIDIA)

    def __init__(self, api: KubeApi, cards: int, memory: int) -> None:
        super().__init__()
        self._api = api
        self._cards = cards
        self._memory = memory
        self._lock = threading.Lock()

    def reply(self, verb: str, arguments: Object) -> tuple[int, Object]:
        return 200, self._filter(arguments) if verb == "filter" else self._bind(arguments)

    def _filter(self, arguments: Object) -> Object:
        count, wanted = requested(arguments["Pod"])
        names = arguments["NodeNames"]
        passed = [name for name in names if len(self._fitting(name, wanted)) >= count]
        failed = {name: "Insufficient gpu devices" for name in names if name not in passed}
        return {"Nodes": None, "NodeNames": passed, "FailedNodes": failed, "Error": ""}

    def _bind(self, arguments: Object) -> Object:
        path = f"/api/v1/namespaces/{arguments['PodNamespace']}/pods/{arguments['PodName']}"
        with self._lock:
            pod = self._api.get(path)
            count, wanted = requested(pod)
            fitting = self._fitting(arguments["Node"], wanted)
            if pod["metadata"]["uid"] != arguments["PodUID"] or len(fitting) < count:
                return {"Error": "Insufficient gpu devices"}
            memory = wanted.get(MEMORY, wanted.get(RATIO, 0) * self._memory // 100)
            ratio = wanted.get(RATIO, memory * 100 // self._memory)
            amounts = {name: str(amount) for name, amount in (wanted | {MEMORY: memory, RATIO: ratio}).items()}
            minors = fitting[:count]
            annotations = {
                ALLOCATED: json.dumps({"gpu": [{"minor": minor, "resources": amounts} for minor in minors]}),
                MINORS: ",".join(map(str, minors)),
                TIMESTAMP: str(time.time_ns()),
            }
            self._api.merge(path, {"metadata": {"annotations": annotations}})
            named = {"name": arguments["PodName"], "uid": arguments["PodUID"]}
            target = {"kind": "Node", "name": arguments["Node"]}
            self._api.create(f"{path}/binding", {"metadata": named, "target": target})
        return {"Error": ""}

    def _fitting(self, node: str, wanted: Mapping[str, int]) -> list[int]:
        """Return the cards with enough free, those with the most memory left first."""
        memory = wanted.get(MEMORY, wanted.get(RATIO, 0) * self._memory // 100)
        free = {minor: [self._memory, 100] for minor in range(self._cards)}
        for pod in self._api.items("/api/v1/pods", fieldSelector=f"spec.nodeName={node}"):
            if pod["status"]["phase"] not in OVER:
                for minor, (taken, core) in allocated(pod).items():
                    if minor in free:  # as the original ignores cards that no Device object has
                        free[minor] = [free[minor][0] - taken, free[minor][1] - core]
        by_room = sorted(free, key=lambda minor: (-free[minor][0], minor))
        return [minor for minor in by_room if free[minor][0] >= memory and free[minor][1] >= wanted.get(CORE, 0)]


def allocated(pod: Object) -> dict[int, tuple[int, int]]:
    """Return by card the bytes and hundredths of compute that a pod has, by the annotation of both systems."""
    text = pod["metadata"].get("annotations", {}).get(ALLOCATED)
    devices = json.loads(text)["gpu"] if text else []
    amounts = {
        each["minor"]: [parse_quantity(each["resources"].get(name, 0)) for name in (MEMORY, CORE)] for each in devices
    }
    return {minor: (memory, core) for minor, (memory, core) in amounts.items()}


class KoordManager:
    """koordlet and koord-manager, which keep the resources of a node as they should be."""

    def __init__(self, api: KubeApi, node: str, cards: int, memory: int) -> None:
        whole = str(100 * cards)
        self._amounts = {SHARED: whole, CORE: whole, RATIO: whole, PREFIX + "gpu": whole, MEMORY: str(cards * memory)}
        self._api = api
        self._path = f"/api/v1/nodes/{node}"
        self._stopping = threading.Event()
        self._thread = threading.Thread()

    def start(self) -> None:
        self._stopping.clear()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join(30)

    def _run(self) -> None:
        while not self._stopping.wait(1):
            status = self._api.get(self._path)["status"]
            if any(status["allocatable"].get(name) != amount for name, amount in self._amounts.items()):
                written = {"capacity": self._amounts, "allocatable": self._amounts}
                self._api.merge(f"{self._path}/status", {"status": written})
