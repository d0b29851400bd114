"""Pods whose volumes appear seconds after their node was chosen, under real kube-scheduler and volume controller.

VOLUME_BURSTS  number of bursts, in half of which a program is killed
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from operator import itemgetter
from random import Random

import pytest

from tests.e2e.cluster import Cluster
from tests.e2e.extender import Extender
from tests.e2e.kube_api import KubeApi, Object
from tests.e2e.pods import PODS, cards_of, container, pod
from tests.e2e.repeated import Repeated
from tests.e2e.waiting import wait_for

BURSTS = int(os.environ.get("VOLUME_BURSTS", "4"))
NODES, CARDS, BURST = 3, 2, 9  # cards of a node; pods of a burst, of which a card holds one

STORAGE_CLASSES = "/apis/storage.k8s.io/v1/storageclasses"
VOLUMES = "/api/v1/persistentvolumes"
CLAIMS = "/api/v1/namespaces/default/persistentvolumeclaims"
SELECTED_NODE = "volume.kubernetes.io/selected-node"
SIZE = {"storage": "1Gi"}
FAILED = "FailedScheduling"


class Provisioner(Repeated):
    """Create the volume of each claim on the node that kube-scheduler chose for it, after some seconds.

    delays  name of the claim -> these seconds
    """

    def __init__(self, api: KubeApi, delays: Mapping[str, float]) -> None:
        super().__init__("provisioner", every=0.1)
        self._api = api
        self._delays = delays
        self._due: dict[str, float] = {}

    def step(self) -> None:
        for claim in self._api.items(CLAIMS):
            if (node := selected_node(claim)) and "volumeName" not in claim["spec"]:
                name, now = claim["metadata"]["name"], time.monotonic()
                if now >= self._due.setdefault(name, now + self._delays[name]):
                    self._api.ensure(VOLUMES, volume(claim, node))


def selected_node(claim: Object) -> str | None:
    """Return the node that the claim's volume is made on."""
    node: str | None = claim["metadata"].get("annotations", {}).get(SELECTED_NODE)
    return node


def volume(claim: Object, node: str) -> Object:
    names = {key: claim["metadata"][key] for key in ("name", "namespace", "uid")}
    on_node = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
    return {
        "metadata": {"name": f"volume-{names['uid']}"},
        "spec": {
            "capacity": SIZE,
            "accessModes": claim["spec"]["accessModes"],
            "storageClassName": claim["spec"]["storageClassName"],
            "claimRef": {"apiVersion": "v1", "kind": "PersistentVolumeClaim", **names},
            "hostPath": {"path": "/none"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [on_node]}},
        },
    }


def create(api: KubeApi, name: str) -> None:
    """Create a pod that takes more than half of a card, and the claim of its volume."""
    spec = {"accessModes": ["ReadWriteOnce"], "storageClassName": "late", "resources": {"requests": SIZE}}
    api.create(CLAIMS, {"metadata": {"name": name}, "spec": spec})
    written = pod(name, container(i915=1, millicores=600))
    written["spec"]["volumes"] = [{"name": "cache", "persistentVolumeClaim": {"claimName": name}}]
    api.create(PODS, written)


def stranded(api: KubeApi) -> set[str]:
    """Return the unbound pods whose volumes tie them to a node on which other pods have all cards."""
    tied = {claim["metadata"]["name"]: selected_node(claim) for claim in api.items(CLAIMS)}
    pods = api.items(PODS)
    bound = Counter(each["spec"].get("nodeName") for each in pods)
    waiting = {each["metadata"]["name"] for each in pods if "nodeName" not in each["spec"]}
    return {name for name in waiting if (node := tied[name]) and bound[node] == CARDS}


def used_cards(api: KubeApi) -> Counter[tuple[str, str | None]]:
    """Return (node, card) -> number of pods."""
    return Counter((node, cards_of(each)) for each in api.items(PODS) if (node := each["spec"].get("nodeName")))


def run_burst(api: KubeApi, seed: int, disturb: Callable[[], None] | None = None) -> set[str]:
    """Let the pods of a burst arrive, until all cards are used or pods are stranded. Return the stranded pods."""
    rng = Random(seed)
    delays = {f"burst-{seed}-{number}": rng.uniform(0.2, 3) for number in range(BURST)}
    seconds = rng.choice((0, 2))
    events: list[tuple[float, Callable[[], None]]] = [
        (rng.uniform(0, seconds), partial(create, api, name)) for name in delays
    ]
    if disturb is not None:
        events.append((rng.uniform(0.2, 3), disturb))
    begun = time.monotonic()
    with Provisioner(api, delays):
        for at, happens in sorted(events, key=itemgetter(0)):
            time.sleep(max(0.0, begun + at - time.monotonic()))
            happens()
        wait_for(
            f"all cards are used by burst {seed}",
            lambda: used_cards(api).total() == NODES * CARDS or stranded(api),
            seconds=60,
        )
    used, left = used_cards(api), stranded(api)
    assert set(used.values()) == {1}, f"burst {seed}: a card has more pods than it has room for: {used}"
    print(f"burst {seed}: {len(used)} cards are used, {len(left)} pods are stranded; {time.monotonic() - begun:.1f} s")
    clear(api)
    return left


def clear(api: KubeApi) -> None:
    api.delete_all(PODS, gracePeriodSeconds="0")
    for collection in (CLAIMS, VOLUMES):
        api.delete_all(collection)


@pytest.fixture
def api(cluster: Cluster) -> Iterator[KubeApi]:
    """Provide the API of a cluster of three nodes with two cards each, in which volumes are bound."""
    api = cluster.api
    for number in range(NODES):
        cluster.add_gpu_node(f"n{number}", cards=CARDS)
    late = {"provisioner": "example.com/late", "volumeBindingMode": "WaitForFirstConsumer"}
    api.create(STORAGE_CLASSES, {"metadata": {"name": "late"}, **late})
    cluster.controller_manager.start("persistentvolume-binder-controller")
    try:
        yield api
    finally:
        clear(api)
        api.delete(f"{STORAGE_CLASSES}/late")


def start_extender(cluster: Cluster, *flags: str) -> Extender:
    extender = cluster.extender("gas", *flags, account=cluster.full_account)
    extender.start_and_wait_until_ready()
    return extender


@pytest.mark.parametrize("preempts", [False, True], ids=["without-preemption", "with-preemption"])
def test_no_volume_ties_a_pod_to_a_node_without_its_card(cluster: Cluster, api: KubeApi, preempts: bool) -> None:
    extender = start_extender(cluster, *(["--preemption"] if preempts else []))
    restart_scheduler = partial(cluster.restart_scheduler, ignorable=False, preempts=preempts)
    restart_scheduler()

    def restart_extender() -> None:
        extender.program.kill()
        extender.start()

    killed = (None, restart_scheduler, None, restart_extender)
    bursts = enumerate(range(preempts, BURSTS, 2))
    left = {seed: run_burst(api, seed, killed[(number + 2 * preempts) % 4]) for number, seed in bursts}
    assert not any(left.values()), left
    assert extender.books()["differences"] == []


def test_pods_are_stranded_without_nominations(cluster: Cluster, api: KubeApi) -> None:
    start_extender(cluster)
    cluster.restart_scheduler(ignorable=False, feature_gates="NominatedNodeNameForExpectation=false")
    assert any(run_burst(api, seed) for seed in range(4))
