"""Small doubles of KubeShare's scheduler and device manager and of NVIDIA's plugin: what they read and write.

From the sources of NTHU-LSALAB/KubeShare 1.0 (23fe943). They differ in one thing: the scheduler counts SharePods that
are being deleted until their pods are gone, so that a card with too much on it is never its own doing.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from math import ceil
from random import Random

from tests.e2e.kube_api import KubeApi, Object, RefusedError
from tests.e2e.node_cell import NodeCell
from tests.e2e.nvidia_plugin import VISIBLE
from tests.e2e.pods import OVER, PODS

SHAREPODS = "/apis/kubeshare.nthu/v1/namespaces/default/sharepods"
SYSTEM_PODS = "/api/v1/namespaces/kube-system/pods"
GPU, GPUID, REQUEST, MEMORY = "nvidia.com/gpu", "kubeshare/GPUID", "kubeshare/gpu_request", "kubeshare/gpu_mem"
FIRST_PORT = 50050
PLACEHOLDER = "kubeshare-vgpu"

DEFINITION: Object = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "sharepods.kubeshare.nthu"},
    "spec": {
        "group": "kubeshare.nthu",
        "scope": "Namespaced",
        "names": {"plural": "sharepods", "singular": "sharepod", "kind": "SharePod", "shortNames": ["shp"]},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
            }
        ],
    },
}
"""KubeShare's definition, in the version that API servers serve today: nothing is checked, the status is a field."""


class KubeShare:
    """The scheduler, then the device manager, for every SharePod again and again, in a thread of the tests."""

    def __init__(self, api: KubeApi, node: NodeCell, uuids: Sequence[str]) -> None:
        self._api = api
        self._node = node
        self._uuids = uuids
        self._rng = Random(1)
        self._stopping = threading.Event()
        self._thread = threading.Thread()
        self.trouble: Exception | None = None

    def start(self) -> None:
        """Start. Raises IndexError, as the device manager ends, for a SharePod on a held card without a port."""
        # Else kube-controller-manager makes it, which does not run here.
        self._api.ensure("/api/v1/namespaces/kube-system/serviceaccounts", {"metadata": {"name": "default"}})
        held = {each["metadata"]["labels"][GPUID] for each in self._placeholders()}
        for share in self._api.items(SHAREPODS):
            port = share.get("status", {}).get("PodManagerPort", 0)
            if share["spec"].get("nodeName") and _gpuid(share) in held and port < FIRST_PORT:
                raise IndexError(f"SharePod {share['metadata']['name']}: port {port}")
        self._stopping.clear()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self.end()
        self.check()

    def check(self) -> None:
        """Fail if it has ended by itself."""
        assert self.trouble is None, self.trouble

    def end(self) -> None:
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(60)

    def _run(self) -> None:
        while not self._stopping.wait(0.2):
            try:
                for share in self._api.items(SHAREPODS):
                    self._look_at(share)
                self._drop_placeholders()
            except RefusedError as refused:
                if refused.status not in (404, 409):
                    self.trouble = refused
                    return
            except Exception as error:  # noqa: BLE001 -- `stop` reports it
                self.trouble = error
                return

    def _look_at(self, share: Object) -> None:
        if not share["spec"].get("nodeName"):
            self._schedule(share)
        elif not share.get("status", {}).get("BoundDeviceID"):
            self._find_card(share)
        else:
            self._make_pod(share)

    def _schedule(self, share: Object) -> None:
        free: dict[str, int] = {}
        for each in self._takers().values():
            free[each[GPUID]] = free.get(each[GPUID], 1000) - _thousandths(each)
        wanted = _thousandths(share["metadata"]["annotations"])
        fitting = {left - wanted: gpuid for gpuid, left in free.items() if left >= wanted}
        if fitting:
            gpuid = fitting[min(fitting)]
        elif len(free) < len(self._uuids):
            gpuid = "".join(self._rng.choices("abcdefghijklmnopqrstuvwxyz", k=5))
        else:
            return
        written = {"metadata": {"annotations": {GPUID: gpuid}}, "spec": {"nodeName": self._node.name}}
        self._api.merge(_path(share), written)

    def _takers(self) -> dict[str, Mapping[str, str]]:
        """Return by name the annotations of the SharePods with a GPU id, and of pods whose SharePod is deleted."""
        found = self._api.items(PODS) + [each for each in self._api.items(SHAREPODS) if each["spec"].get("nodeName")]
        return {
            each["metadata"]["name"]: each["metadata"]["annotations"]
            for each in found
            if _gpuid(each) and each.get("status", {}).get("phase") not in OVER
        }

    def _find_card(self, share: Object) -> None:
        """Take the card that NVIDIA's plugin gives a placeholder pod."""
        gpuid = _gpuid(share)
        name = f"{PLACEHOLDER}-{self._node.name}-{gpuid}"
        if (pod := self._api.find(f"{SYSTEM_PODS}/{name}")) is None:
            self._api.create(SYSTEM_PODS, self._placeholder(name, gpuid))
        elif pod["status"]["phase"] == "Running":
            uuid = self._node.environment(pod, "sleepforever")[VISIBLE]
            assert uuid in self._uuids
            port = FIRST_PORT + 1 + self._rng.randrange(500)
            self._api.merge(_path(share), {"status": {"BoundDeviceID": uuid, "PodManagerPort": port}})

    def _make_pod(self, share: Object) -> None:
        status, pod = share["status"], self._api.find(f"{PODS}/{share['metadata']['name']}")
        phase = status.get("PodStatus", {}).get("phase")
        if pod is None and (phase is None or share["spec"].get("restartPolicy") == "Always"):
            pod = self._api.create(PODS, self._pod(self._api.get(_path(share))))
        if pod is not None:
            shown = {"PodStatus": pod["status"], "PodObjectMeta": pod["metadata"]}
            if any(status.get(name) != value for name, value in shown.items()):
                self._api.merge(_path(share), {"status": shown})

    def _pod(self, share: Object) -> Object:
        variables = {
            VISIBLE: share["status"]["BoundDeviceID"],
            "NVIDIA_DRIVER_CAPABILITIES": "compute,utility",
            "POD_MANAGER_PORT": str(share["status"]["PodManagerPort"]),
        }
        env = [{"name": name, "value": value} for name, value in variables.items()]
        owner = {"apiVersion": "kubeshare.nthu/v1", "kind": "SharePod", "controller": True, "blockOwnerDeletion": True}
        metadata = share["metadata"]
        return {
            "metadata": {
                "name": metadata["name"],
                "annotations": metadata["annotations"],
                "ownerReferences": [owner | {"name": metadata["name"], "uid": metadata["uid"]}],
            },
            "spec": share["spec"] | {"containers": [each | {"env": env} for each in share["spec"]["containers"]]},
        }

    def _placeholder(self, name: str, gpuid: str) -> Object:
        (main,) = self._api.items(SHAREPODS)[0]["spec"]["containers"]
        one = {"requests": {GPU: "1"}, "limits": {GPU: "1"}}
        labels = {"kubeshare/role": "dummyPod", "kubeshare/nodeName": self._node.name, GPUID: gpuid}
        container = main | {"name": "sleepforever", "resources": one, "command": ["/bin/sh", "-c", "sleep 100000"]}
        spec = {"nodeName": self._node.name, "restartPolicy": "Never", "terminationGracePeriodSeconds": 0}
        needed = {"hostNetwork": True, "automountServiceAccountToken": False, "containers": [container]}
        return {"metadata": {"name": name, "labels": labels}, "spec": spec | needed}

    def _placeholders(self) -> list[Object]:
        return self._api.items(SYSTEM_PODS, labelSelector="kubeshare/role=dummyPod")

    def _drop_placeholders(self) -> None:
        held = {each[GPUID] for each in self._takers().values()}
        for each in self._placeholders():
            if each["metadata"]["labels"][GPUID] not in held:
                self._api.delete(f"{SYSTEM_PODS}/{each['metadata']['name']}", gracePeriodSeconds="0")


def _path(share: Object) -> str:
    return f"{SHAREPODS}/{share['metadata']['name']}"


def _gpuid(of: Object) -> str:
    return str(of["metadata"].get("annotations", {}).get(GPUID, ""))


def _thousandths(annotations: Mapping[str, str]) -> int:
    return ceil(float(annotations[REQUEST]) * 1000)
