"""Pods in HAMi's words under the real kube-scheduler and API server, beside one that HAMi has bound."""

from __future__ import annotations

import json

from tests.e2e.bindings import bind_now
from tests.e2e.cluster import Cluster
from tests.e2e.kube_api import Object
from tests.e2e.pods import PODS, asking, event_messages, get_pod, is_refused, node_of, pod
from tests.e2e.waiting import wait_for
from tests.hami_words import ALLOCATED, NAMES, REGISTER, A


def wanting(name: str, annotations: dict[str, str] | None = None, **amounts: int) -> Object:
    limits = {f"nvidia.com/{NAMES[key]}": amount for key, amount in amounts.items()}
    return pod(name, asking(limits), annotations=annotations)


# contract H1.1, H3.1, H3.5, H3.6, H3.8, H4.3
def test_pods_find_room_beside_one_that_hami_has_bound(cluster: Cluster) -> None:
    api = cluster.api
    cluster.restart_scheduler(ignorable=False)
    card = {"id": A, "count": 10, "devmem": 24576, "devcore": 100, "type": "NVIDIA A10", "health": True}
    cluster.add_node("n1", annotations={REGISTER: json.dumps([card])}, resources={"nvidia.com/gpu": "10"})
    decided = {"hami.io/vgpu-node": "n1", ALLOCATED: f"{A},NVIDIA,4000,20:;"}
    api.create(PODS, wanting("old", decided, gpu=1, mem=4000, cores=20))
    bind_now(api, "old", "n1")
    extender = cluster.extender("one", "--vocabularies=intel,vendor,hami", account=cluster.full_account)
    extender.start_and_wait_until_ready()
    api.create(PODS, wanting("large", gpu=1, mem=21000, prio=1))
    wait_for("a refusal", lambda: is_refused(api, "large"))
    assert "no card has 21000 MiB of nvidia.com/gpumem free" in str(event_messages(api, "large", "FailedScheduling"))
    api.create(PODS, wanting("new", gpu=1, mem=20000, cores=30, prio=1))
    wait_for("the pod is bound", lambda: node_of(api, "new"))
    metadata = get_pod(api, "new")["metadata"]
    assert metadata["labels"] == {"hami.io/vgpu-node": "n1"}
    assert metadata["annotations"]["hami.io/vgpu-node"] == "n1"
    assert metadata["annotations"][ALLOCATED] == f"{A},NVIDIA,20000,30:;"
    api.create(PODS, wanting("whole", gpu=1))
    wait_for("a refusal", lambda: is_refused(api, "whole"))
    books = extender.books()
    assert (books["trouble"], books["differences"]) == ({}, [])
