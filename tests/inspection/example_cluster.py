"""A small cluster for the commands: three nodes with six cards, pods that run and pods that wait."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from gas.inspection.cluster import Cluster
from gas.inspection.following import Following
from gas.inspection.objects import InspectedNode, InspectedPod
from gas.inspection.page.board import Board
from gas.inspection.page.view import View
from sandbox.api.kinds import NAMESPACES, NODES, PODS
from sandbox.api.server import ApiServer
from tests.builders import container, node_json, pod_json

GB = 10**9
FLEX, ARC = "Data Center GPU Flex 170", "Arc A770"


def record(card: int, **fields: Any) -> dict[str, Any]:
    """Return one entry of the annotation gas-cards."""
    return {"card": card, "driver": "i915", "pci": f"0000:{card + 3:02x}:00.0", **fields}


def gpu_node_json(
    name: str,
    *records: Mapping[str, Any],
    memory: int = 16 * GB,
    labels: Mapping[str, str] | None = None,
    **others: str,
) -> dict[str, Any]:
    """Return a ready node with the recorded cards, those that are healthy also in its labels and amounts.

    others  amounts that have nothing to do with its cards
    """
    healthy = [each for each in records if each.get("healthy", True)]
    numbers = ".".join(str(each["card"]) for each in healthy)
    count = len(healthy)
    built = node_json(
        name,
        cards=numbers,
        labels=labels,
        annotations={"gas-cards": json.dumps(list(records))},
        i915=10 * count,
        millicores=1000 * count,
        memory_max=memory * count,
    )
    built["status"]["allocatable"] |= others
    built["status"] |= {
        "conditions": [{"type": "Ready", "status": "True"}],
        "nodeInfo": {"kernelVersion": "6.12.0-amd64"},
    }
    return built


def running(name: str, node: str, cards: str, *, namespace: str = "default", **requests: Any) -> dict[str, Any]:
    """Return a pod of one container that runs on these cards."""
    written = {"gas-ts": "1767225600000000000", "gas-container-cards": cards}
    pod = waiting(name, namespace=namespace, **requests)
    pod["metadata"]["annotations"] = written
    pod["spec"] |= {"nodeName": node, "restartPolicy": "Never"}
    pod["status"] = {"phase": "Running"}
    return pod


def waiting(name: str, *, namespace: str = "default", **requests: Any) -> dict[str, Any]:
    """Return a pod of one container that waits; ``i915=1`` is of gpu.intel.com, ``cpu="1"`` is not."""
    asks = container("main", **{key: amount for key, amount in requests.items() if key != "cpu"})
    asks["resources"]["requests"] |= {key: amount for key, amount in requests.items() if key == "cpu"}
    return pod_json(asks, name=name, namespace=namespace, uid=f"uid-{namespace}-{name}")


def plugin_pod(node: str, *arguments: str) -> dict[str, Any]:
    """Return the plugin's pod on a node."""
    command = {"name": "plugin", "image": "gas:1", "command": ["gas-plugin", *arguments]}
    return pod_json(command, name=f"gas-plugin-{node}", namespace="kube-system", node=node, phase="Running")


def extender_pod(*arguments: str) -> dict[str, Any]:
    command = {"name": "extender", "image": "gas:1", "command": ["gas-extender", *arguments]}
    return pod_json(command, name="gas-extender-0", namespace="kube-system", node="cp-1", phase="Running")


def example_nodes() -> list[dict[str, Any]]:
    return [
        gpu_node_json("gpu-1", record(0, model=FLEX, numa=0), record(1, model=FLEX, numa=1), labels={"zone": "a"}),
        gpu_node_json("gpu-2", record(0, model=FLEX, numa=0), record(1, model=FLEX, numa=0, healthy=False)),
        gpu_node_json("gpu-10", record(0, model=ARC), record(1, model=ARC), memory=8 * GB, labels={"zone": "b"}),
    ]


def example_pods() -> list[dict[str, Any]]:
    return [
        running("train-0", "gpu-1", "card0", i915=1, millicores=800, memory_max=12 * GB),
        running("train-1", "gpu-1", "card1", i915=1, millicores=500, memory_max=10 * GB),
        running("web-7d", "gpu-2", "card0", namespace="shop", i915=1, millicores=200, memory_max=6 * GB),
        running("notebook", "gpu-10", "card0", i915=1, millicores=300, memory_max=3 * GB),
        waiting("big", i915=1, memory_max=14 * GB),
        *(plugin_pod(name, "--usage") for name in ("gpu-1", "gpu-2", "gpu-10")),
        extender_pod(),
    ]


def use_of(*pods: tuple[str, str, int, float]) -> dict[str, Any]:
    """Return the document /usage: (UID, card, bytes, busy share) of each pod."""
    return {
        "trouble": None,
        "pods": [
            {"uid": uid, "cards": {card: {"memoryUsed": memory, "engines": {"ccs": {"busy": busy}}}}}
            for uid, card, memory, busy in pods
        ],
    }


def use_path(node: str) -> str:
    return f"/api/v1/namespaces/kube-system/pods/gas-plugin-{node}:9003/proxy/usage"


EXAMPLE_USE = {
    use_path("gpu-1"): use_of(
        ("uid-default-train-0", "card0", int(9.4 * GB), 0.93), ("uid-default-train-1", "card1", int(9.9 * GB), 0.71)
    ),
    use_path("gpu-2"): use_of(("uid-shop-web-7d", "card0", int(1.2 * GB), 0.04)),
    use_path("gpu-10"): use_of(("uid-default-notebook", "card0", int(2.8 * GB), 0.35)),
}


def decoded_node(built: Mapping[str, Any]) -> InspectedNode:
    return msgspec.convert(built, InspectedNode)


def decoded_pod(built: Mapping[str, Any]) -> InspectedPod:
    return msgspec.convert(built, InspectedPod)


def cluster_of(nodes: Sequence[Mapping[str, Any]], pods: Sequence[Mapping[str, Any]]) -> Cluster:
    """Return the cluster that these objects show."""
    return Cluster.of(list(map(decoded_node, nodes)), list(map(decoded_pod, pods)), counts_hosts=True)


async def no_decisions(_cluster: Cluster) -> tuple[str, ...]:
    """Read no decisions of an extender for a page."""
    return ("the last decisions are not shown",)


def page_of(cluster: Cluster | None, board: Board) -> View:
    """Return a page that shows a cluster, which no watch keeps up to date; None if it is not read yet."""
    view = View(None, no_decisions)  # type: ignore[arg-type]
    if cluster is not None:
        view.show(Following(cluster, ()), board)  # type: ignore[arg-type]
    return view


def example_cluster() -> Cluster:
    return cluster_of(example_nodes(), example_pods())


def fill(server: ApiServer, nodes: Sequence[Mapping[str, Any]], pods: Sequence[Mapping[str, Any]]) -> None:
    """Create nodes and pods on a server, with their states."""
    for namespace in sorted({pod["metadata"]["namespace"] for pod in pods} - {"default", "kube-system"}):
        server.api.create(NAMESPACES, None, {"metadata": {"name": namespace}})
    for node in nodes:
        server.api.create(NODES, None, dict(node))
    for pod in pods:
        create_pod(server, pod)


def create_pod(server: ApiServer, pod: Mapping[str, Any]) -> None:
    """Create a pod with its phase. The API server gives it a UID."""
    metadata = pod["metadata"]
    spec = {**pod["spec"]}
    spec["containers"] = [{"image": "busybox:1.37", **each} for each in spec["containers"]]
    server.api.create(PODS, metadata["namespace"], {**pod, "spec": spec})
    if spec.get("nodeName"):
        stored = server.api.get(PODS, metadata["namespace"], metadata["name"]).value
        server.api.update(
            PODS,
            metadata["namespace"],
            metadata["name"],
            {**stored, "status": {"phase": pod["status"]["phase"]}},
            "status",
        )


def with_real_uids(server: ApiServer, documents: Mapping[str, Any]) -> dict[str, Any]:
    """Return documents about use with the UIDs that the server gave the pods, in place of ``uid-NAMESPACE-NAME``."""

    def real(uid: str) -> str:
        _, namespace, name = uid.split("-", 2)
        return str(server.api.get(PODS, namespace, name).value["metadata"]["uid"])

    return {
        path: {**document, "pods": [{**pod, "uid": real(pod["uid"])} for pod in document["pods"]]}
        for path, document in documents.items()
    }
