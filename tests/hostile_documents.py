"""Valid documents that `tests.hostile` breaks: a node, pods in the words of every system, and what is measured."""

from __future__ import annotations

from tests.builders import container, pod_json, requesting
from tests.inspection.example_cluster import gpu_node_json, record
from tests.kubeshare_words import of_the_original, share, sharing

RECORDS = [record(n, uuid=f"GPU-0000000{n}", memory=2**33, numa=n, tiles=2, links=[1 - n], board=0) for n in (0, 1)]
LABELS = {"gpu-numbers2": "Z.2", "numa-gpu-map": "0-0_1-1", "pci-groups": "0.1", "xe-links": "0.0-1.0"}
TELEMETRY = {"gas-disable-card2": "PCI_GROUP", "gas-tile-disable-card0_gt0": "x"}
NODE = gpu_node_json("bad", *RECORDS, labels={f"gpu.intel.com/{name}": text for name, text in LABELS.items()})
NODE["metadata"]["labels"] |= {f"telemetry.aware.scheduling.p/{name}": text for name, text in TELEMETRY.items()}
NODE["metadata"]["labels"]["a"] = "2"
NODE["metadata"]["annotations"] |= {
    "gas-card-capacity": "card0=memory.max:8Gi,tiles:2;card1=millicores:500",
    "scheduling.koordinator.sh/gpu-partitions": '{"2":[{"minors":[0,1],"ringBusBandwidth":"10Gi"}]}',
}
NODE["status"]["allocatable"] |= {"kubeshare/vgpu": "1000", "aliyun.com/gpu-mem": "16384", "cpu": "8"}
NODE["status"]["allocatable"] |= {"gpu.intel.com/tiles": "4", "nvidia.com/gpu": "2", "koordinator.sh/gpu.shared": "200"}
DECIDED = {"gas-ts": "1", "gas-container-cards": "card0", "gas-container-tiles": "card0:gt0"}
DECIDED |= {"gas-allocated-cards": "card1", "gas-allow": "card0"}
ALIYUN = {f"ALIYUN_COM_GPU_MEM_{name}": "1" for name in ("IDX", "POD", "DEV", "ASSUME_TIME")} | {
    "ALIYUN_COM_GPU_MEM_ASSIGNED": "true",
    "ALIYUN_GPU_ID": "1",
}
KOORDINATOR = {
    "scheduling.koordinator.sh/device-allocated": '{"gpu":[{"minor":0,"resources":{}}]}',
    "scheduling.koordinator.sh/device-allocate-hint": '{"gpu":{"requiredTopologyScope":"NUMANode"}}',
    "scheduling.koordinator.sh/gpu-minors": "0",
    "scheduling.koordinator.sh/gpu-partition-spec": '{"allocatePolicy":"Restricted","ringBusBandwidth":"1Gi"}',
}
TERM = {"matchExpressions": [{"key": "a", "operator": "Gt", "values": ["1"]}]}
AFFINITY = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [TERM]}}}
INIT = container("init", i915=1)
PODS = [
    pod_json(container(i915=1, tiles=1), init=(INIT,), annotations=DECIDED, name="intel"),
    pod_json(requesting({"aliyun.com/gpu-mem": "1024"}), annotations=ALIYUN, name="aliyun"),
    pod_json(requesting({"koordinator.sh/gpu": "50"}), annotations=KOORDINATOR, name="koordinator"),
    pod_json(requesting({"nvidia.com/gpu": "1"}), annotations=DECIDED, name="vendor"),
    sharing("kubeshare", share(gpuid="abcde", affinity="a", exclusion="b")),
    of_the_original("original", share(), "GPU-00000000", node=""),
]
for each in PODS:
    each["metadata"] |= {"labels": {"app": "x"}, "resourceVersion": "7", "creationTimestamp": "2026-01-01T00:00:00Z"}
    each["metadata"]["uid"] = each["metadata"]["name"]
    each["spec"] |= {"priority": 5, "tolerations": [{"key": "a", "operator": "Exists"}], "affinity": AFFINITY}
    each["status"] |= {"startTime": "2026-01-01T00:00:00Z", "nominatedNodeName": "bad"}
BOUND = [
    each
    | {"spec": each["spec"] | {"nodeName": "bad"}}
    | {"metadata": each["metadata"] | {name: f"bound-{each['metadata'][name]}" for name in ("name", "uid")}}
    for each in PODS
]
ALL_VOCABULARIES = "--vocabularies=intel,aliyun,koordinator,vendor,kubeshare"
CARD_USE = {"memoryUsed": 5, "engines": {"ccs": {"busy": 0.5}}}
DECISION = {"time": 1.0, "pod": "a/b", "uid": "u", "node": "n", "cards": "card0", "verb": "bind", "error": "x"}
