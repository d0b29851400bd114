"""Compares decision, receipt, kubelet's list, the extender's ledger and the containers themselves.

Every difference is a sentence, and nothing here uses code of the program under test.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from typing import Any

from sandbox.hardware.fake_sysfs import FakeGpu
from tests.e2e.extender import Extender
from tests.e2e.kube_api import KubeApi, Object
from tests.e2e.node_cell import NodeCell, container_id
from tests.e2e.pod_resources import listed_ids
from tests.e2e.pods import OVER, PODS
from tests.e2e.programs import ProgramError
from tests.e2e.written_cards import WrittenContainer, gpu_requests, held_amounts, held_tiles, written_containers

MASK = "ZE_AFFINITY_MASK"
HIERARCHY = "ZE_FLAT_DEVICE_HIERARCHY"
RECEIPTS = {"gas-allocated-cards": "gas-container-cards", "gas-allocated-init-cards": "gas-init-container-cards"}
"""Receipt -> the decision that it replaces."""


@dataclass(frozen=True, slots=True)
class Witnesses:
    """All sources of information about the cards that the containers of one node have.

    gpus  the allocatable cards of the node
    """

    api: KubeApi
    node: NodeCell
    extender: Extender
    gpus: tuple[FakeGpu, ...]

    def pods(self) -> list[Object]:
        """Return the pods of the node that have not ended."""
        on_node = self.api.items(PODS, fieldSelector=f"spec.nodeName={self.node.name}")
        return [pod for pod in on_node if pod["status"]["phase"] not in OVER]

    def disagreements(self, *, receipts_expected: Collection[str] = ()) -> list[str]:
        """Return one sentence for each difference.

        receipts_expected  pods that must have a receipt, because kubelet chose their devices; no other pod may have one
        """
        found: list[str] = []
        pods = []
        for pod in self.pods():
            try:
                written_containers(with_receipts(pod))
            except ValueError as error:
                found.append(f"pod {_name(pod)}: {error}")
                continue
            pods.append(pod)
            has_receipt = any(_annotations(pod).get(receipt) for receipt in RECEIPTS)
            if has_receipt is not (_name(pod) in receipts_expected):
                found.append(f"pod {_name(pod)} has {'a' if has_receipt else 'no'} receipt: {_annotations(pod)}")
            for container, spec in zip(written_containers(with_receipts(pod)), _specs(pod), strict=True):
                found += [f"{_name(pod)}/{container.name} {text}" for text in self._of_container(pod, container, spec)]
        return [*found, *self._of_kubelet(pods), *self._of_books(pods)]

    def _of_container(self, pod: Object, container: WrittenContainer, spec: Object) -> Iterator[str]:
        """Compare with the devices and the environment of the container."""
        try:
            made = self.node.containerd.specification(container_id(pod, container.name))
        except KeyError:
            yield "was never created"
            return
        requests = gpu_requests(spec)
        nodes = sorted(entry["path"] for entry in made["linux"].get("devices", ()))
        seen = self._watched(requests) if any("monitoring" in name for name in requests) else set()
        cards = sorted(name for path in nodes if (name := path.removeprefix("/dev/dri/")).startswith("card"))
        if set(cards) != seen | set(container.cards):
            yield f"has device nodes of {cards}, written are {sorted(container.cards)}"
        wanted = sorted(
            f"/dev/dri/{name}" for gpu in self.gpus if f"card{gpu.card}" in cards for name in _device_nodes(gpu)
        )
        if [path for path in nodes if path.startswith("/dev/dri/")] != wanted:
            yield f"has device nodes {nodes}, its cards have {wanted}"
        if _is_running(pod, container.name):
            yield from self._inside(pod, container.name, nodes)
        mask = self._mask(container, spec)
        if _is_as_decided(pod) and (found := _environment(made).get(MASK)) != mask:
            yield f"has {MASK}={found}, its tiles {container.tiles} mean {mask}"

    def _inside(self, pod: Object, container: str, nodes: list[str]) -> Iterator[str]:
        """Compare with the devices that a program in the container sees."""
        try:
            inside = self.node.execute(pod, container, "sh", "-c", "ls /dev/dri 2>/dev/null || true").split()
        except ProgramError as error:
            yield f"cannot be looked into: {error}"
            return
        if sorted(set(inside) - {"by-path"}) != sorted(path.rpartition("/")[2] for path in nodes if "/dri/" in path):
            yield f"sees {inside} in /dev/dri, was given {nodes}"

    def _watched(self, requests: Collection[str]) -> set[str]:
        """Return the cards that the monitoring resources give access to."""
        return {
            f"card{gpu.card}"
            for gpu in self.gpus
            if "monitoring" in requests or f"{gpu.model.driver}_monitoring" in requests
        }

    def _mask(self, container: WrittenContainer, spec: Object) -> str | None:
        """Return the mask for the driver that the written tiles mean (contract P4.1 to P4.4)."""
        tiles_of = {f"card{gpu.card}": gpu.model.tiles for gpu in self.gpus}
        most = max((tiles_of.get(card, 1) for card in container.cards), default=1)
        if not container.tiles or most <= 1:
            return None
        items = []
        for position, card in enumerate(container.cards):
            for tile in (int(name.removeprefix("gt")) for name in container.tiles[card]):
                before = sum(tiles_of[earlier] for earlier in container.cards[:position])
                is_composite = _declared(spec).get(HIERARCHY) == "COMPOSITE"
                items.append(f"{position}.{tile}" if is_composite else str(before + tile))
        return ",".join(items)

    def _of_kubelet(self, pods: list[Object]) -> Iterator[str]:
        """Compare with the devices that kubelet lists."""
        listed = listed_ids(self.node.pod_resources)
        for pod in pods:
            for container, spec in zip(written_containers(with_receipts(pod)), _specs(pod), strict=True):
                if container.role == "init":
                    continue  # never listed
                ids = listed.get((_name(pod), container.name), {})
                requests = gpu_requests(spec)
                for resource in ("i915", "xe"):
                    has = sorted(id_.rpartition("-")[0] for id_ in ids.get(resource, ()))
                    wants = sorted(container.cards) if resource in requests else []
                    if has != wants:
                        yield f"{_name(pod)}/{container.name} has {resource} of {has} for kubelet, written are {wants}"
        known = {_name(pod) for pod in pods}
        yield from (
            f"kubelet lists {pod}/{container} with {ids}, which does not run"
            for (pod, container), ids in listed.items()
            if ids and pod not in known
        )
        given = Counter(
            (resource, id_)
            for ids in listed.values()
            for resource, own in ids.items()
            if "monitoring" not in resource
            for id_ in own
        )
        yield from (f"kubelet lists {id_} of {resource} {n} times" for (resource, id_), n in given.items() if n > 1)

    def _of_books(self, pods: list[Object]) -> Iterator[str]:
        """Compare with the extender's ledger."""
        books = self.extender.books()
        for place in ("differences", "trouble", "problems"):
            if books[place]:
                yield f"the books have {place}: {books[place]}"
        sums: dict[str, Counter[str]] = {}
        expected = {pod["metadata"]["uid"]: pod for pod in pods}
        for uid, pod in expected.items():
            written = [
                replace(each, per_card={name: n for name, n in each.per_card.items() if "monitoring" not in name})
                for each in written_containers(with_receipts(pod))
            ]
            amounts = {card: dict(of) for card, of in held_amounts(written).items()}
            for card, of in amounts.items():
                sums.setdefault(card, Counter()).update(of)
            booking: dict[str, Any] = books["pods"].get(uid, {"cards": {}})
            booked = {card: of["amounts"] for card, of in booking["cards"].items()}
            if booked != amounts:
                yield f"the books have pod {_name(pod)} on {booked}, written is {amounts}"
            tiles = {(card, f"gt{tile}") for card, of in booking["cards"].items() for tile in of["tiles"]}
            if _is_as_decided(pod) and tiles != (wanted := held_tiles(written)):
                yield f"the books have pod {_name(pod)} on tiles {sorted(tiles)}, written are {sorted(wanted)}"
        for uid, booking in books["pods"].items():
            if booking["node"] == self.node.name and uid not in expected:
                yield f"the books still have pod {booking['pod']} ({uid}), which does not run"
        of_node = books["nodes"].get(self.node.name, {})
        booked = {card: of["booked"] for card, of in of_node.items() if of["booked"]}
        if booked != {card: dict(of) for card, of in sums.items()}:
            yield f"the books' sums are {booked}, those of the pods {sums}"


def with_receipts(pod: Object) -> Object:
    """Return the pod with its receipts in place of the decision."""
    annotations = dict(_annotations(pod))
    for receipt, decision in RECEIPTS.items():
        if text := annotations.get(receipt):
            annotations[decision] = text
    return pod | {"metadata": pod["metadata"] | {"annotations": annotations}}


def _is_as_decided(pod: Object) -> bool:
    """Return whether the receipts, if any, equal the decision. With other cards there is no decision about tiles."""
    try:
        return written_containers(pod) == written_containers(with_receipts(pod))
    except ValueError:
        return False


def _name(pod: Object) -> str:
    return str(pod["metadata"]["name"])


def _annotations(pod: Object) -> dict[str, str]:
    annotations: dict[str, str] = pod["metadata"].get("annotations", {})
    return annotations


def _specs(pod: Object) -> list[Object]:
    """Return the containers' specifications in the order of `written_containers`."""
    return [*pod["spec"].get("initContainers", []), *pod["spec"]["containers"]]


def _is_running(pod: Object, container: str) -> bool:
    status = pod["status"]
    statuses = [*status.get("initContainerStatuses", ()), *status.get("containerStatuses", ())]
    return any(each["name"] == container and "running" in each["state"] for each in statuses)


def _device_nodes(gpu: FakeGpu) -> tuple[str, str]:
    return f"card{gpu.card}", gpu.render_node


def _declared(spec: Object) -> dict[str, str]:
    return {each["name"]: each.get("value", "") for each in spec.get("env", ())}


def _environment(made: Object) -> dict[str, str]:
    return dict(entry.split("=", 1) for entry in made["process"]["env"])
