"""Rehearse a change from another system to gas and back: pods come and go meanwhile, and laws hold at every write.

Nothing here knows what the other system is: a test brings its doubles, pods, and what is written on them.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import ClassVar, Self

import yaml

from gas.values.amounts import parse_quantity
from tests.deploy.manifests import DEPLOY, arguments
from tests.e2e.control_plane_node import REPOSITORY, STATIC_PODS, ControlPlaneNode
from tests.e2e.fake_nvml import FakeNvml
from tests.e2e.gpu_node import GpuNode
from tests.e2e.kube_api import KubeApi, Object, write_kubeconfig
from tests.e2e.kubectl import Kubectl
from tests.e2e.pods import OVER, PODS, delete
from tests.e2e.ports import free_port
from tests.e2e.waiting import wait_for
from tests.e2e.webhooks import apply_overlay

Holdings = Mapping[str, int]
"""Card -> bytes of its memory."""

SECONDS = 180.0
"""Enough for several starts of programs on a busy machine."""


class Witness:
    """Watch all pods, and keep a sentence in `broken` for each write that breaks a law.

    1. No card has more of its memory taken than there is, by the pods of all systems together. So no new pod gets a
       card that old ones fill.
    2. A pod that runs stays as it is: node, containers, cards. It ends only when the test deletes it.
    3. No new pod fails.

    memory  of each card, in bytes
    taken   returns what a bound pod takes by what is written on it. Raises ValueError if that cannot be read
    """

    def __init__(self, api: KubeApi, memory: Holdings, taken: Callable[[Object], Holdings]) -> None:
        self.broken: list[str] = []
        self.writes = 0
        self.most: dict[str, int] = dict.fromkeys(memory, 0)
        """Card -> the most bytes that were taken of it."""
        self.ran: set[str] = set()
        """Names of the pods that were seen running."""
        self._api = api
        self._memory = memory
        self._taken = taken
        self._bound: dict[str, Holdings] = {}
        self._running: dict[str, object] = {}
        self.deleted: set[str] = set()
        """Names of the pods that the test has deleted."""
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join(SECONDS)

    def running(self) -> list[str]:
        """Return the names of the pods that run, without those that the test deletes."""
        return sorted(self._running.keys() - self.deleted)

    def unfinished(self) -> list[str]:
        """Return the names of the bound pods that do not run yet, or are ending."""
        return sorted(self._bound.keys() - set(self.running()))

    def delete(self, name: str, how: Callable[[str], object] | None = None) -> None:
        """Delete a pod; ``how`` deletes it by its name in another way."""
        self.deleted.add(name)
        if how is None:
            delete(self._api, name)
        else:
            how(name)

    def _watch(self) -> None:
        try:
            for kind, written in self._api.watch(PODS, until=self._stopping.is_set):
                self.see(kind, written)
        finally:
            if not self._stopping.is_set():
                self._report("the pods are not watched any more")

    def see(self, kind: str, written: Object) -> None:
        """Check one write: ``ADDED``, ``MODIFIED`` or ``DELETED``, and the pod."""
        self.writes += 1
        name, status = written["metadata"]["name"], written["status"]
        is_over = kind == "DELETED" or status.get("phase") in OVER
        if name not in self.deleted and (is_over or "deletionTimestamp" in written["metadata"]):
            self._report(f"pod {name} ends, though the test has not deleted it: {kind} {status}")
        if is_over:
            self._bound.pop(name, None)
            self._running.pop(name, None)
        elif written["spec"].get("nodeName"):
            self._check_bound(name, written)

    def _check_bound(self, name: str, written: Object) -> None:
        try:
            taken = self._taken(written)
        except ValueError as error:
            self._report(f"pod {name} is bound, and {error}: {written['metadata'].get('annotations')}")
            taken = {}
        self._bound[name] = taken
        for card in taken:
            total = sum(each.get(card, 0) for each in self._bound.values())
            self.most[card] = max(self.most[card], total)
            if total > self._memory[card]:
                who = {other: each[card] for other, each in self._bound.items() if card in each}
                self._report(f"card {card} has {self._memory[card]} bytes, and these take {total}: {who}")
        if (state := _state(written, taken)) is not None:
            self.ran.add(name)
            if (before := self._running.setdefault(name, state)) != state:
                self._report(f"pod {name} ran as {before} and runs as {state}")
                self._running[name] = state

    def _report(self, sentence: str) -> None:
        if sentence not in self.broken:
            self.broken.append(sentence)


def _state(written: Object, taken: Holdings) -> object | None:
    """Return what must not change while a pod runs; None while it does not run."""
    containers = written["status"].get("containerStatuses", [])
    if not containers or not all("running" in each["state"] for each in containers):
        return None
    started = [(each["name"], each["containerID"], each["restartCount"]) for each in containers]
    return written["spec"]["nodeName"], started, sorted(taken.items())


class Load:
    """Create a pod now and then, and delete another one when there are many.

    create  creates a pod of this name, or the object that makes it
    delete  deletes it; the pod itself if None
    """

    def __init__(
        self,
        witness: Witness,
        rng: Random,
        create: Callable[[str, Random], object],
        delete: Callable[[str], object] | None = None,
        *,
        most: int = 8,
        every: float = 0.5,
    ) -> None:
        self.created = self.deleted = 0
        self._witness = witness
        self._rng = rng
        self._create = create
        self._delete = delete
        self._most = most
        self._every = every
        self._alive: list[str] = []
        self.paused = threading.Lock()
        """Nothing is created or deleted while it is held."""
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join(SECONDS)

    def _run(self) -> None:
        while not self._stopping.wait(self._every):
            with self.paused:
                self._step()

    def _step(self) -> None:
        self._alive = [name for name in self._alive if name not in self._witness.deleted]
        running = [name for name in self._witness.running() if name in self._alive]
        if len(running) > 2 and (len(self._alive) >= self._most or self._rng.random() < 0.3):
            name = self._rng.choice(running)
            self._witness.delete(name, self._delete)
            self.deleted += 1
        elif len(self._alive) < self._most:
            name = f"load-{self.created}"
            self._create(name, self._rng)
            self._alive.append(name)
            self.created += 1


class Rehearsal:
    """The steps of a change-over, with a look at the containers after each.

    has  returns the cards that the containers of a running pod were given, by the containers themselves
    """

    def __init__(
        self,
        api: KubeApi,
        witness: Witness,
        load: Load,
        taken: Callable[[Object], Holdings],
        has: Callable[[Object], set[str]],
    ) -> None:
        self.witness = witness
        self.load = load
        self._api = api
        self._taken = taken
        self._has = has

    @contextmanager
    def running(self) -> Iterator[None]:
        """Watch and load the cluster, and look at it a last time at the end."""
        self.witness.start()
        self.load.start()
        try:
            yield
            self.look()
        finally:
            self.load.stop()
            self.witness.stop()

    @contextmanager
    def step(self, says: str) -> Iterator[None]:
        """Carry out one step of a guide; no law may have been broken meanwhile."""
        started, writes, ran = time.monotonic(), self.witness.writes, len(self.witness.ran)
        yield
        self.look()
        print(
            f"{says}: {time.monotonic() - started:.0f} s, {self.witness.writes - writes} writes,"
            f" {len(self.witness.ran) - ran} more pods ran"
        )

    def new_pods_run(self, number: int = 8) -> None:
        """Wait until ``number`` pods run that did not run before."""
        before = set(self.witness.ran)
        wait_for(f"{number} new pods running", lambda: self._ran_since(before) >= number, seconds=SECONDS, every=0.2)

    def _ran_since(self, before: set[str]) -> int:
        assert self.witness.broken == []
        return len(self.witness.ran - before)

    def settled(self) -> None:
        """Wait until no bound pod starts or ends; call it when no new one is bound."""
        wait_for("no pod starting or ending", lambda: not self.witness.unfinished(), seconds=SECONDS, every=0.2)

    def look(self) -> None:
        """Compare the cards of all containers with those that are written, and fail if a law was broken."""
        found = []
        with self.load.paused:
            running = set(self.witness.running())
            for written in self._api.items(PODS):
                if (name := written["metadata"]["name"]) in running:
                    has, taken = self._has(written), self._taken(written).keys()
                    if has != taken:
                        found.append(f"pod {name} has the cards {has}, written are {set(taken)}")
        assert found == []
        assert self.witness.broken == []


class Place:
    """A node with NVIDIA's cards and its control plane, on which a guide is followed.

    A test adds the programs of the other system.
    """

    guide: ClassVar[str]
    """File name of the page in docs/ that has the commands."""
    overlay: ClassVar[str]
    """The overlay of deploy/ that it names."""
    cards: ClassVar[Sequence[str]]
    """NVIDIA's cards, as NVML has them."""
    configuration: ClassVar[str] = ""
    """File name of kube-scheduler's configuration that the other system has."""

    def __init__(self, gpu_node: GpuNode, machine: ControlPlaneNode, kubectl: Kubectl) -> None:
        self.gpu_node = gpu_node
        self.machine = machine
        self.kubectl = kubectl
        self.node = gpu_node.node.name
        self.api = gpu_node.api
        self._page = (REPOSITORY / "docs" / self.guide).read_text(encoding="utf-8")
        library = FakeNvml(gpu_node.node.directory / "nvml")
        library.write(list(self.cards))
        gpu_node.plugin_environment = library.environment

    @classmethod
    @contextmanager
    def running(cls, gpu_node: GpuNode, binaries: Path) -> Iterator[Self]:
        gpu_node.cluster.scheduler.stop()
        machine = ControlPlaneNode(gpu_node.cluster, gpu_node.node, binaries)
        machine.start()
        admin = write_kubeconfig(gpu_node.node.directory / "admin.kubeconfig", gpu_node.api)
        kubectl = Kubectl(binaries / "kubectl", admin)
        yield cls(gpu_node, machine, kubectl)
        kubectl.run("delete", "--ignore-not-found", "-k", DEPLOY / "overlays" / cls.overlay)
        gpu_node.cluster.add_accounts()  # the overlay's has the name of one of them

    def documented(self, command: str) -> str:
        """Return a command, which the guide must have."""
        assert command in self._page, f"docs/{self.guide} does not have the command that is tried: {command}"
        return command

    def run(self, command: str) -> None:
        """Run a command of the guide on this node."""
        program, *words = self.documented(command).replace("NODE", self.node).split()
        if program == "kubectl":
            self.kubectl.run(*words)
        elif program == "gas-configurator":
            self.machine.configurator(*words, *(self._certificates() if "--apply-secret" in words else ()))
        else:
            own = [f"--kubeConfig={self.gpu_node.node.directory / 'plugin.kubeconfig'}", f"--node-name={self.node}"]
            self.machine.run(sys.executable, "-m", program.replace("-", "."), *words, *own)

    def _certificates(self) -> list[str]:
        """Return the configurator's flags for this machine, so that nothing needs a name of a Service."""
        own = self.gpu_node.cluster
        pairs = {"": own.client, "serving-": own.serving}
        return [
            f"--url=https://localhost:{own.service.port}",
            *(f"--{prefix}cert={pair.certificate}" for prefix, pair in pairs.items()),
            *(f"--{prefix}key={pair.key}" for prefix, pair in pairs.items()),
            f"--client-ca={own.authority.certificate}",
            f"--serving-ca={own.authority.certificate}",
        ]

    def configure_scheduler(self, extenders: list[Object]) -> None:
        """Write kube-scheduler's configuration, which takes effect when it starts."""
        configuration = {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "clientConnection": {"kubeconfig": "/etc/kubernetes/scheduler.conf"},
            "extenders": extenders,
        }
        (self.machine.etc / "kubernetes" / self.configuration).write_text(yaml.safe_dump(configuration))

    def use_configuration(self) -> None:
        """Let kube-scheduler read its configuration, as the other system's guide does, and restart it."""
        path = f"/etc/kubernetes/{self.configuration}"
        manifest = yaml.safe_load(self.machine.manifest.read_text())
        (container,) = manifest["spec"]["containers"]
        container["command"].append(f"--config={path}")
        container["volumeMounts"].append({"name": "config", "mountPath": path})
        manifest["spec"]["volumes"].append({"name": "config", "hostPath": {"path": path, "type": "FileOrCreate"}})
        self.machine.manifest.write_text(yaml.safe_dump(manifest))
        self.machine.wait_for_scheduler("with the other extender", with_configuration=True)

    def restart_scheduler(self) -> None:
        """Move the manifest away and back, as administrators of static pods do."""
        manifest = self.machine.manifest.read_text()
        self.machine.manifest.unlink()
        scheduler = f"{STATIC_PODS}/kube-scheduler-{self.node}"
        wait_for("the end of kube-scheduler", lambda: self.api.find(scheduler) is None, every=0.2)
        self.machine.manifest.write_text(manifest)
        self.machine.wait_for_scheduler("again", with_configuration=True)

    def start_extender(self) -> None:
        """Start our extender as the overlay has it, and apply that."""
        port = free_port()
        self.gpu_node.start_extender(*self._flags("gpu-aware-scheduling"), f"--admission-port={port}")
        apply_overlay(self.kubectl, self.gpu_node, self.overlay, port)

    def plugin_flags(self) -> list[str]:
        """Return our plugin's flags on a node that has Intel's cards as well, which the other system does not know."""
        return [each.replace("=nvml", "=sysfs,nvml") for each in self._flags("gas-plugin-nvidia")]

    def _flags(self, workload: str) -> list[str]:
        """Return those that say what is offered to whom."""
        kinds = ("--vocabularies=", "--card-sources=", "--aliyun-unit=", "--sharepods")
        return [each for each in arguments(self.overlay, workload) if each.startswith(kinds)]

    def offered(self, resource: str) -> int:
        return parse_quantity(self.gpu_node.object()["status"].get("allocatable", {}).get(resource, 0))
