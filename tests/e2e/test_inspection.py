"""``kubectl gas`` through a real kubectl and API server: it says what the real scheduler then does."""

from __future__ import annotations

import json
import os
import random
import re
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

from gas.inspection.manifests import read_manifests
from tests.e2e.accounts import add_account
from tests.e2e.cluster import Cluster
from tests.e2e.kube_api import KubeApi, Object, RefusedError, write_kubeconfig
from tests.e2e.kubectl import Kubectl, KubectlGas
from tests.e2e.pods import PODS, container, pod
from tests.e2e.waiting import wait_for

CLUSTERS = int(os.environ.get("FIT_CLUSTERS", "20"))
"""Random clusters for which `fit` is compared with the scheduler; see docs/development.md."""

AT_ONCE = 20
"""Random clusters on the API server at the same time. A label keeps the pods of each on its own nodes."""


class RandomCluster:
    """Some nodes with pods on them, and equal pods that are to come, all made from one number.

    name      the value of the label ``cluster`` of its nodes
    manifest  of the object that asks for the pods
    asked     these pods
    """

    def __init__(self, number: int) -> None:
        self._choose = random.Random(number)
        self.name = f"c{number}"
        self._nodes: list[dict[str, Any]] = []
        self._running: list[dict[str, Any]] = []
        for at in range(self._choose.randint(1, 4)):
            self._add_node(f"{self.name}-n{at}")
        template = self._template()
        count = self._choose.randint(1, 8)
        kind, spec = self._choose.choice(
            [("Deployment", {"replicas": count}), ("StatefulSet", {"replicas": count}), ("Job", {"parallelism": count})]
        )
        metadata = {"name": self.name, "namespace": "default"}
        self.manifest = {"kind": kind, "metadata": metadata, "spec": {**spec, "template": template}}
        self.asked = [
            {**template, "metadata": {**template["metadata"], "name": f"{self.name}-{at}"}} for at in range(count)
        ]

    @property
    def object(self) -> str:
        return f"{self.manifest['kind']} default/{self.name}"

    def create(self, cluster: Cluster) -> None:
        """Create the nodes and the pods that run on them."""
        for node in self._nodes:
            cluster.add_node(**node)
        for running in self._running:
            cluster.api.create(PODS, running)

    def _add_node(self, name: str) -> None:
        choose, cards, cpu = self._choose, self._choose.randint(1, 3), self._choose.randint(2, 8)
        self._nodes.append(
            {
                "name": name,
                "labels": {
                    "cluster": self.name,
                    "zone": choose.choice("ab"),
                    "gpu.intel.com/gpu-numbers": ".".join(map(str, range(cards))),
                },
                "resources": {
                    "cpu": str(cpu),
                    "pods": str(choose.choice([4, 100])),
                    "gpu.intel.com/i915": str(4 * cards),
                    "gpu.intel.com/memory.max": f"{16 * cards}G",
                    "gpu.intel.com/millicores": str(1000 * cards),
                },
                "taints": [{"key": "gpu", "value": "yes", "effect": "NoSchedule"}] if choose.random() < 0.2 else [],
            }
        )
        if choose.random() < 0.3:
            self._run(name, container(), cpu="500m", memory="1Gi")
        for card in range(cards):
            memory, millicores = 16, 1000
            for _ in range(choose.randint(0, 2)):
                size, share = choose.randint(1, 8), choose.choice([100, 300, 500])
                if size <= memory and share <= millicores:
                    memory, millicores = memory - size, millicores - share
                    asked = container(i915=1, memory_max=f"{size}G", millicores=share)
                    self._run(name, asked, cards=f"card{card}", cpu="100m")

    def _run(self, node: str, asked: Object, *, cards: str = "", **requests: str) -> None:
        asked["resources"]["requests"] = {**asked["resources"]["limits"], **requests}
        annotations = {"gas-ts": "1", "gas-container-cards": cards} if cards else {}
        running = pod(f"{self.name}-r{len(self._running)}", asked, annotations=annotations)
        running["spec"]["nodeName"] = node
        self._running.append(running)

    def _template(self) -> dict[str, Any]:
        """Return a pod of one or two containers with one or two cards, and rules that some nodes do not meet."""
        choose = self._choose
        containers = []
        for at in range(choose.choice([1, 1, 1, 2])):
            count = choose.choice([1, 1, 1, 2])
            asked = container(
                f"main-{at}",
                i915=count,
                memory_max=f"{choose.randint(1, 9) * count}G",
                millicores=choose.choice([100, 300, 700]) * count,
            )
            asked["resources"]["requests"] = {"cpu": choose.choice(["100m", "200m", "1"])}
            containers.append(asked)
        company = choose.choice([{}, {}, {"gas-card-exclusion": "x"}, {"gas-card-anti-affinity": "x"}])
        built = pod(self.name, *containers, annotations=company)
        built["spec"]["nodeSelector"] = {"cluster": self.name, **choose.choice([{}, {}, {"zone": "a"}])}
        if choose.random() < 0.5:
            built["spec"]["tolerations"] = [{"key": "gpu", "operator": "Exists"}]
        return built


def test_fit_says_how_many_pods_the_scheduler_places_on_random_clusters(
    cluster: Cluster, kubectl_gas: KubectlGas, tmp_path: Path
) -> None:
    cluster.restart_scheduler(ignorable=False)
    cluster.extender("gas").start_and_wait_until_ready()
    disagreements: list[str] = []
    placed = refused = 0
    for first in range(0, CLUSTERS, AT_ONCE):
        batch = [RandomCluster(number) for number in range(first, min(first + AT_ONCE, CLUSTERS))]
        files = [tmp_path / f"{each.name}.json" for each in batch]
        for each, file in zip(batch, files, strict=True):
            each.create(cluster)
            file.write_text(json.dumps(each.manifest), encoding="utf-8")
        said = {row["object"]: row["fit"] for row in kubectl_gas.data("fit", *map(str, files))}
        for each in batch:
            for asked in each.asked:
                cluster.api.create(PODS, asked)
        expected = {each.name: said[each.object] for each in batch}
        wait_for("all pods have a decision", partial(_are_decided, cluster.api, batch), seconds=300, every=1)
        with suppress(TimeoutError):  # a pod may have to be tried twice, if the extender saw its node later
            wait_for("the same number", lambda: _placed(cluster.api, batch) == expected, seconds=60, every=1)  # noqa: B023
        found = _placed(cluster.api, batch)
        disagreements += [
            f"{name}: fit says {count}, kube-scheduler placed {found[name]}"
            for name, count in expected.items()
            if found[name] != count
        ]
        placed += sum(found.values())
        refused += sum(len(each.asked) for each in batch) - sum(found.values())
        cluster.api.delete_all(PODS, gracePeriodSeconds="0")
        cluster.api.delete("/api/v1/nodes")
        print(f"{first + len(batch)} clusters: {placed} placed, {refused} refused, disagreements: {disagreements}")
    assert disagreements == []
    assert placed > CLUSTERS
    assert refused > CLUSTERS / 2


CORDONER = ({"apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "list", "patch"]},)


def test_what_other_schedulers_and_rules_refuse_is_quoted_and_a_cordoned_card_gets_no_pods(
    cluster: Cluster, kubectl_gas: KubectlGas, binaries: Path, tmp_path: Path
) -> None:
    cluster.restart_scheduler(ignorable=False)
    records: list[Object] = [{"card": number, "pci": f"0000:0{number + 3}:00.0"} for number in range(2)]
    cluster.add_gpu_node("n1")
    cluster.api.merge("/api/v1/nodes/n1", {"metadata": {"annotations": {"gas-cards": json.dumps(records)}}})
    cluster.extender("gas").start_and_wait_until_ready()
    claiming, unserved = pod("claiming", container(i915=1)), pod("unserved", container(i915=1))
    claiming["spec"]["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]
    unserved["spec"]["schedulerName"] = "absent"
    for asked in (claiming, unserved):
        cluster.api.create(PODS, asked)
    condition = "fits on 1 of 1 nodes; the last attempt of kube-scheduler failed: 0/1 nodes are available: "
    no_claim = f'default/claiming: {condition}persistentvolumeclaim "data" not found'
    wait_for("the refusal", lambda: kubectl_gas("why", "claiming")[1].startswith(no_claim))
    assert "; not looked at here: volumes\n" in kubectl_gas("why", "claiming")[1]
    assert "scheduler absent has not reported on it yet; check" in kubectl_gas("why", "unserved")[1]

    writer = add_account(cluster.api, "gas-cordoner", "gas-cordoner", CORDONER)
    (tmp_path / "cordoner").mkdir()
    cordoner = KubectlGas(binaries / "kubectl", tmp_path / "cordoner", writer)
    assert kubectl_gas.run("cordon", "n1", "card0").returncode == 3
    assert cordoner("cordon", "n1", "0000:03:00.0")[0] == 0
    assert [row["health"] for row in kubectl_gas.data("top")] == ["disabled", "ok"]
    # The node starts again, and its cards have each other's numbers.
    swapped = json.dumps([{**each, "card": 1 - each["card"]} for each in records])
    cluster.api.merge("/api/v1/nodes/n1", {"metadata": {"annotations": {"gas-cards": swapped}}})
    for number in range(2):
        cluster.api.create(PODS, pod(f"p{number}", container(i915=1, millicores=600)))
    wait_for("one pod with a card", lambda: [*_cards_of(cluster.api).values()] == ["card0"])
    wait_for("the reason", lambda: "card1 is disabled by a label or annotation" in kubectl_gas("why", "p1")[1])
    assert cordoner("uncordon", "n1", "0000:03:00.0")[0] == 0
    wait_for("both", lambda: sorted(_cards_of(cluster.api).values()) == ["card0", "card1"])


def test_pods_that_are_not_to_be_scheduled_do_not_count_as_waiting(cluster: Cluster, kubectl_gas: KubectlGas) -> None:
    cluster.restart_scheduler(ignorable=False)
    cluster.add_gpu_node("n1")
    extender = cluster.extender("gas")
    extender.start_and_wait_until_ready()
    gated, ending, waiting = (
        pod(name, container(i915=1, millicores=amount))
        for name, amount in (("gated", 600), ("ending", 1001), ("waiting", 1001))
    )
    gated["spec"]["schedulingGates"] = [{"name": "kueue.x-k8s.io/admission"}]
    ending["metadata"]["finalizers"] = ["example.com/keep"]
    for each in (gated, ending, waiting):
        cluster.api.create(PODS, each)
    cluster.api.delete(f"{PODS}/ending")
    sample = re.compile(r'^gas_extender_(waiting|suspended)_pods.*reason="(.*)"} (.*)$', re.MULTILINE)

    def counted() -> dict[tuple[str, ...], str]:
        return {(kind, reason): count for kind, reason, count in sample.findall(extender.plain("/metrics")[1])}

    expected = {("waiting", "no-room"): "1", ("suspended", "Gated"): "1", ("suspended", "Terminating"): "1"}
    try:
        wait_for("they are counted apart", lambda: counted() == expected, seconds=20)
        states = {row["name"]: row["state"] for row in kubectl_gas.data("pods")}
        assert states == {"gated": "Gated", "ending": "Terminating", "waiting": "Waiting"}
        cluster.api.merge(f"{PODS}/gated", {"spec": {"schedulingGates": None}})
        wait_for("the gated pod is bound", lambda: _cards_of(cluster.api).keys() == {"gated"})
    finally:
        cluster.api.merge(f"{PODS}/ending", {"metadata": {"finalizers": None}})


def test_a_rolling_update_without_a_spare_card_goes_on_as_why_says(cluster: Cluster, kubectl_gas: KubectlGas) -> None:
    """The real controllers of Deployments replace the pod; the test stands in for the kubelet that ends it."""
    api, web = cluster.api, "/apis/apps/v1/namespaces/default/deployments/web"
    cluster.add_gpu_node("n1", cards=1, places=1)
    cluster.extender("gas").start_and_wait_until_ready()
    cluster.controller_manager.start("deployment-controller", "replicaset-controller")
    labels, asked = {"app": "web"}, pod("web", container(i915=1))
    template = {"metadata": {"labels": labels}, "spec": {**asked["spec"], "restartPolicy": "Always"}}
    spec = {"selector": {"matchLabels": labels}, "template": template}
    api.create(web.rpartition("/")[0], {"metadata": {"name": "web"}, "spec": spec})
    try:
        wait_for("the first pod", lambda: len(_cards_of(api)) == 1)
        (old,) = _cards_of(api)
        ready = [{"type": kind, "status": "True"} for kind in ("Ready", "PodScheduled")]
        api.merge(f"{PODS}/{old}/status", {"status": {"phase": "Running", "conditions": ready}})
        api.merge(web, {"spec": {"template": {"metadata": {"annotations": {"version": "2"}}}}})
        wait_for("the new pod", lambda: len(_pods_by_name(api)) == 2)
        (new,) = _pods_by_name(api).keys() - {old}
        circle = (
            "set maxSurge: 0 and maxUnavailable: 1, or type: Recreate, in the update strategy of Deployment/web, whose"
            f" old pod default/{old} ends only once the new one runs"
        )
        wait_for("the circle", lambda: circle in kubectl_gas("why", new)[1])
        assert not _pods_by_name(api)[old]["metadata"].get("deletionTimestamp")
        api.merge(web, {"spec": {"strategy": {"rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}}}})
        wait_for("the end of the old pod", lambda: _pods_by_name(api)[old]["metadata"].get("deletionTimestamp"))
        api.delete(f"{PODS}/{old}", gracePeriodSeconds="0")
        wait_for("the new pod on the card", lambda: [*_cards_of(api)] == [new])
    finally:
        api.delete(web)
        cluster.controller_manager.program.kill()
        api.delete("/apis/apps/v1/namespaces/default/replicasets")


def _cards_of(api: KubeApi) -> dict[str, str]:
    """Return the cards of the bound pods."""
    return {
        name: found["metadata"]["annotations"]["gas-container-cards"]
        for name, found in _pods_by_name(api).items()
        if found["spec"].get("nodeName")
    }


WORDS = """\
kind: Pod
apiVersion: v1
metadata: {name: words, annotations: {empty: null}}
spec:
  containers:
  - {name: main, image: x, resources: {limits: {gpu.intel.com/i915: 010, gpu.intel.com/tiles: 08, gpu.intel.com/a: ~}}}
  automountServiceAccountToken: no
"""


def test_fit_refuses_the_amounts_that_the_api_server_refuses(cluster: Cluster, binaries: Path, tmp_path: Path) -> None:
    amounts: list[Any] = ["absent", None, 0, 1, "1000m", 2, "1.5", -1, "x"]
    disagreements = []
    names = ("gpu.intel.com/i915", "example.com/x", "cpu", "kubernetes.io/x")
    for name, limit, request, is_of_pod in product(names, amounts, amounts, (False, True)):
        stated = {"limits": {name: limit}, "requests": {name: request}}
        resources = {key: each for key, each in stated.items() if each[name] != "absent"}
        built = pod("asked", container())
        built["kind"] = "Pod"
        built["spec"]["containers"][0]["resources"] = {} if is_of_pod else resources
        built["spec"] |= {"resources": resources} if is_of_pod else {}
        (wanted,), _ = read_manifests("f", json.dumps(built).encode(), "default")
        try:
            cluster.api.create(f"{PODS}?dryRun=All", built)
            refused = ""
        except RefusedError as error:
            refused = error.message
        if bool(wanted.fault) != bool(refused):
            disagreements.append((name, limit, request, is_of_pod, wanted.fault, refused))
    assert disagreements == []
    kubectl = Kubectl(binaries / "kubectl", write_kubeconfig(tmp_path / "kubeconfig", cluster.api))
    created = json.loads(kubectl.run("create", "--dry-run=server", "--output=json", "--filename=-", text=WORDS))
    (wanted,), _ = read_manifests("f", WORDS.encode(), "default")
    assert wanted.pod.annotations == created["metadata"]["annotations"] == {"empty": ""}
    for found, real in zip(wanted.pod.spec.containers or (), created["spec"]["containers"], strict=True):
        assert {name: str(amount) for name, amount in found.requests.items()} == real["resources"]["requests"]


def _pods_by_name(api: KubeApi) -> dict[str, Object]:
    return {each["metadata"]["name"]: each for each in api.items(PODS)}


def _are_decided(api: KubeApi, batch: Sequence[RandomCluster]) -> bool:
    """Return whether each pod was placed or refused."""
    pods = _pods_by_name(api)
    return all(
        found["spec"].get("nodeName")
        or any(
            condition["type"] == "PodScheduled" and condition["status"] == "False"
            for condition in found["status"].get("conditions", ())
        )
        for each in batch
        for asked in each.asked
        for found in [pods[asked["metadata"]["name"]]]
    )


def _placed(api: KubeApi, batch: Sequence[RandomCluster]) -> dict[str, int]:
    """Return by cluster how many of the pods that were to come have a node."""
    pods = _pods_by_name(api)
    return {
        each.name: sum(bool(pods[asked["metadata"]["name"]]["spec"].get("nodeName")) for asked in each.asked)
        for each in batch
    }
