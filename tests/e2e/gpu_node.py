"""A real node with fake cards, its plugin, the extender, and pods that show their devices."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from uuid import uuid4

from sandbox.hardware.fake_sysfs import FakeGpu
from tests.e2e.accounts import PLUGIN_RULES, add_account
from tests.e2e.agreement import Witnesses
from tests.e2e.cluster import Cluster
from tests.e2e.extender import Extender
from tests.e2e.images import BUSYBOX
from tests.e2e.kube_api import KubeApi, Object
from tests.e2e.node_cell import NodeCell
from tests.e2e.plugin import Plugin
from tests.e2e.pod_resources import listed_ids
from tests.e2e.pods import PODS, delete_now, get_pod
from tests.e2e.waiting import wait_for
from tests.e2e.written_cards import PREFIX, amount

SECONDS = 90.0
"""Enough for many containers on a busy machine."""


NEEDED_HERE = {"hostNetwork": True, "automountServiceAccountToken": False, "terminationGracePeriodSeconds": 0}
"""There is no pod network, no certificate for service accounts, and no time for graceful ends."""


class GpuNode:
    """Plugin and extender can be started again with other cards and flags; `clear` removes what a test left."""

    def __init__(self, cluster: Cluster, node: NodeCell) -> None:
        self.cluster = cluster
        self.api: KubeApi = cluster.api
        self.node = node
        self.gpus: tuple[FakeGpu, ...] = ()
        self.plugin_module = "gas.plugin"
        self.plugin_environment: dict[str, str] = {}
        self.prepare_tree: Callable[[Path], object] = lambda _tree: None
        self.plugin: Plugin
        self.extender: Extender
        self._plugin_account = add_account(cluster.api, "gas-plugin", "gas-plugin", PLUGIN_RULES)

    def start(self, gpus: tuple[FakeGpu, ...], *flags: str, extender: Sequence[str] = ()) -> None:
        """Start plugin and extender, and return when the extender knows the cards. ``extender`` are its flags."""
        self._new_extender(*extender).start()
        self.start_plugin(gpus, *flags)
        wait_for("the extender ready", self.extender.is_ready, every=0.05)
        places = next((int(flag.partition("=")[2]) for flag in flags if flag.startswith("--shared-dev-num=")), 1)
        wanted = {f"card{gpu.card}": {gpu.model.driver: places} for gpu in gpus}
        wait_for("the cards in the extender's books", lambda: self.places() == wanted)

    def start_plugin(self, gpus: tuple[FakeGpu, ...], *flags: str) -> None:
        """Start the plugin, in place of the running one, with new cards, and return when kubelet watches them."""
        self.stop_plugin()
        self.new_plugin(gpus, *flags)
        self.plugin.start()

    def new_plugin(self, gpus: tuple[FakeGpu, ...], *flags: str) -> None:
        """Put the cards in place of those of before, with a plugin for them that is not started yet."""
        shutil.rmtree(self.node.directory / "tree", ignore_errors=True)
        self.gpus = gpus
        self.plugin = Plugin(
            self.node,
            self._plugin_account,
            gpus,
            *flags,
            module=self.plugin_module,
            environment=self.plugin_environment,
        )
        self.prepare_tree(self.plugin.tree)

    def stop_plugin(self) -> None:
        if hasattr(self, "plugin") and self.plugin.program.is_running:
            assert self.plugin.program.terminate() == 0

    def start_extender(self, *flags: str) -> None:
        """Start the extender, in place of the running one."""
        self._new_extender(*flags).start_and_wait_until_ready()

    def _new_extender(self, *flags: str) -> Extender:
        if hasattr(self, "extender"):
            self.extender.program.kill()
        self.extender = self.cluster.extender(f"gas-{uuid4().hex[:6]}", *flags, account=self.cluster.full_account)
        return self.extender

    @property
    def tree(self) -> Path:
        return self.plugin.tree

    @property
    def witnesses(self) -> Witnesses:
        return Witnesses(self.api, self.node, self.extender, self.gpus)

    def books(self) -> dict[str, Object]:
        """Return card -> its entry in the extender's ledger."""
        books: dict[str, Object] = self.extender.books()["nodes"].get(self.node.name, {})
        return books

    def places(self) -> dict[str, dict[str, int]]:
        """Return card -> how many containers may share it, by its resource, as far as the extender knows."""
        found = {card: books["capacity"] for card, books in self.books().items()}
        return {card: {name: of[name] for name in ("i915", "xe") if of.get(name)} for card, of in found.items()}

    def object(self) -> Object:
        """Return the node's object."""
        return self.api.get(f"/api/v1/nodes/{self.node.name}")

    def set_labels(self, labels: Mapping[str, str | None]) -> None:
        """Set labels as an administrator does, before the extender starts; by name without prefix, None removes one."""
        self._label({f"{PREFIX}{name}": value for name, value in labels.items()})

    def close_tiles(self, *names: str) -> None:
        """Close tiles as telemetry does, ``card2_gt0``, before the extender starts. `open_tiles` removes the labels."""
        self._closed = {f"telemetry.aware.scheduling.demo/gas-tile-disable-{name}": "closed" for name in names}
        self._label(self._closed)

    def open_tiles(self) -> None:
        self._label(dict.fromkeys(self._closed))

    def allocatable(self, resource: str) -> int:
        """Return the node's allocatable amount of a resource, given without prefix."""
        found: Mapping[str, str] = self.object()["status"].get("allocatable", {})
        return amount(found.get(PREFIX + resource, "0"))

    def create(self, written: Object, *, node: str | None = None) -> None:
        """Create a pod that prints its device nodes and environment, and runs until it is deleted."""
        self.prepare(written)
        if node is not None:
            written["spec"]["nodeName"] = node
        self.api.create(PODS, written)

    def prepare(self, written: Object) -> None:
        """Let a pod, or an object with the spec of one, print its devices and run until it is deleted."""
        for each in (*written["spec"].get("initContainers", []), *written["spec"]["containers"]):
            is_init = each in written["spec"].get("initContainers", []) and "restartPolicy" not in each
            script = "ls /dev/dri; env" if is_init else "ls /dev/dri; env; sleep 100000"
            each |= {"image": BUSYBOX.name, "imagePullPolicy": "Never", "command": ["/bin/sh", "-c", script]}
        written["spec"] |= NEEDED_HERE

    def create_unchanged(self, written: Object, *, node: str | None = None) -> None:
        """Create a pod with its own image and command, and only the changes that this node needs."""
        written["spec"] |= NEEDED_HERE
        if node is not None:
            written["spec"]["nodeName"] = node
        self.api.create(PODS, written)

    def running(self, names: Collection[str]) -> list[Object]:
        """Wait until all pods run, and return them."""

        def waited_for() -> list[str]:
            pods = [get_pod(self.api, name) for name in names]
            failed = [p["metadata"]["name"] + ": " + str(p["status"]) for p in pods if p["status"]["phase"] == "Failed"]
            assert not failed, failed
            return [p["metadata"]["name"] for p in pods if p["status"]["phase"] != "Running"]

        try:
            wait_for(f"{len(names)} pods running", lambda: not waited_for(), seconds=SECONDS)
        except TimeoutError as error:
            raise AssertionError(f"{error}; these do not run: {waited_for()}") from None
        return [get_pod(self.api, name) for name in names]

    def cards(self, of: Object, name: str = "main") -> list[str]:
        """Return the cards of which a container has the device nodes."""
        nodes = (path.removeprefix("/dev/dri/") for path in self.node.devices(of, name))
        return sorted(card for card in nodes if card.startswith("card"))

    def settled(self, *, receipts_expected: Collection[str] = (), seconds: float = 20) -> None:
        """Wait until there are no differences. Fails with those that remain."""
        found: list[str] = []

        def look() -> bool:
            nonlocal found
            found = self.witnesses.disagreements(receipts_expected=receipts_expected)
            return not found

        try:
            wait_for("agreement", look, seconds=seconds, every=0.5)
        except TimeoutError:
            raise AssertionError("\n".join(["there are differences:", *found])) from None

    def receipts(self) -> dict[str, dict[str, str]]:
        """Return pod -> its receipts, of pods that have any."""
        found: dict[str, dict[str, str]] = {}
        for each in self.api.items(PODS):
            annotations: Mapping[str, str] = each["metadata"].get("annotations", {})
            if own := {name: text for name, text in annotations.items() if name.startswith("gas-allocated-")}:
                found[each["metadata"]["name"]] = own
        return found

    def booked(self) -> dict[str, int]:
        """Return card -> how many containers the extender has booked on it."""
        return {
            card: booked.get("i915", 0) + booked.get("xe", 0)
            for card, books in self.books().items()
            if (booked := books["booked"])
        }

    def clear(self) -> None:
        """Delete all pods, and wait until kubelet and extender have released them."""
        for each in self.api.items(PODS):
            delete_now(self.api, each["metadata"]["name"])
        wait_for("kubelet without pods", lambda: not listed_ids(self.node.pod_resources))

    def _label(self, labels: Mapping[str, str | None]) -> None:
        self.api.merge(f"/api/v1/nodes/{self.node.name}", {"metadata": {"labels": dict(labels)}})
