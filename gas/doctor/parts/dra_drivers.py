"""Check DeviceClasses that stand for resources of gas, and cards that a DRA driver gives away as well."""

from collections.abc import Iterator, Mapping
from typing import TypeVar

import msgspec

from gas.cluster import paths
from gas.cluster.errors import ApiRefused
from gas.cluster.listing import Lister
from gas.doctor import fix
from gas.doctor.check import Check, Sources
from gas.doctor.findings import Finding, Unseen, not_seen, ok, probe, problem, warning
from gas.doctor.snapshot import Snapshot
from gas.extender.device_classes.device_classes import classes_by_resource, only_counts
from gas.inspection.objects import ResourceSlice
from gas.objects.stored import DeviceClass, Pod
from gas.vocabularies.combined import Vocabularies
from gas.vocabularies.node_parts import recorded_cards
from gas.vocabularies.protocol import BadNeed, NeedOptions

T = TypeVar("T")

CLASSES, SLICES = "device_classes", "resource_slices"  # names of what is gathered


async def _gather(sources: Sources) -> Mapping[str, object]:
    return {
        CLASSES: await probe(_listed(Lister(sources.api, paths.DEVICE_CLASSES, DeviceClass))),
        SLICES: await probe(_listed(Lister(sources.api, paths.RESOURCE_SLICES, ResourceSlice))),
    }


async def _listed(lister: Lister[T]) -> tuple[T, ...]:
    """Return all objects of a kind; none if the API server does not serve it."""
    try:
        return tuple((await lister.fetch()).objects)
    except ApiRefused as error:
        if error.status == 404:
            return ()
        raise


def check_dra_drivers(snapshot: Snapshot) -> Iterator[Finding]:
    classes: tuple[DeviceClass, ...] | Unseen = snapshot.gathered.get(CLASSES, ())
    slices: tuple[ResourceSlice, ...] | Unseen = snapshot.gathered.get(SLICES, ())
    for where, seen in (("DeviceClasses", classes), ("ResourceSlices", slices)):
        if isinstance(seen, Unseen):
            yield not_seen(where, seen)
    if not isinstance(classes, Unseen):
        yield from _classes(snapshot, classes_by_resource(classes))
    if not isinstance(slices, Unseen):
        yield from _published_twice(snapshot, slices)


def _classes(snapshot: Snapshot, by_resource: Mapping[str, str]) -> Iterator[Finding]:
    found = {name: each for name, each in by_resource.items() if name in snapshot.vocabularies.managed_resources}
    for resource, name in found.items():
        where = f"DeviceClass {name}"
        if _counts_cards(snapshot.vocabularies, resource):
            yield ok(
                f"stands for {resource}: pods that ask only for a number of them can go to nodes of its DRA driver;"
                " pods that ask for parts of a card, or have rules for cards, wait for nodes of gas-plugin",
                where,
            )
        else:
            yield problem(
                f"it stands for {resource}, which counts parts of cards, so a DRA driver would give a whole device for"
                " each; gas refuses its nodes for these pods",
                fix.kubectl("edit", "deviceclass", name, note="remove extendedResourceName"),
                where=where,
            )
    for scheduler in snapshot.schedulers if found else ():
        configured = scheduler.configuration
        extenders = None if configured is None or isinstance(configured, Unseen) else configured.extenders
        ignored = sorted({name for each in extenders or () for name, is_so in each.managed.items() if is_so})
        if others := [name for name in ignored if name not in by_resource]:
            yield warning(
                f"pods that ask for {', '.join(others)} as well as {', '.join(found)} fit nowhere: for a pod whose"
                " resource has a DeviceClass, kube-scheduler looks for all its extended resources on the node, also for"
                " those with ignoredByScheduler: true",
                "# let these pods not ask for both, or let nodes offer both; docs/dra.md",
                where=scheduler.name,
            )


def _counts_cards(vocabularies: Vocabularies, resource: str) -> bool:
    resources = {"requests": {resource: "1"}}
    pod = msgspec.convert({"metadata": {}, "spec": {"containers": [{"name": "one", "resources": resources}]}}, Pod)
    try:
        return only_counts(vocabularies.need(pod, NeedOptions()))
    except BadNeed:
        return False


def _published_twice(snapshot: Snapshot, slices: tuple[ResourceSlice, ...]) -> Iterator[Finding]:
    published: dict[str, list[ResourceSlice]] = {}
    for each in slices:
        published.setdefault(each.spec.node_name or "", []).append(each)
    for node in snapshot.checked_nodes:
        devices = [
            (each.spec.driver, device) for each in published.get(node.name, ()) for device in each.spec.devices or ()
        ]
        for card in recorded_cards(node) if devices else ():
            identities = {each.lower() for each in (card.pci_address, card.uuid) if each}
            for driver, device in devices:
                if card.healthy and (same := identities & device.texts):
                    yield problem(
                        f"gas-plugin and the DRA driver {driver} both give {card.card} away, each without knowing the"
                        " pods of the other",
                        fix.kubectl(
                            "label", "node", node.name, "KEY=VALUE", note="keep one of them off it, docs/dra.md"
                        ),
                        where=f"node {node.name}",
                        expected=f"{card.card} from one of them",
                        found=f"{card.card} is {device.name} of {driver}, by {', '.join(sorted(same))}",
                    )
                    break


CHECKS = (Check(name="dra-drivers", title="DRA drivers", findings=check_dra_drivers, gather=_gather),)
