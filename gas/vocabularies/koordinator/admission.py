"""The defaults of new pods in Koordinator's vocabulary. What is refused, the need refuses at any time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from gas.objects.json_patch import Operation, Patch, pointer
from gas.objects.stored import Container, NewContainer, Pod, Quantity
from gas.values.amounts import MalformedQuantity, parse_quantity
from gas.values.quoted import did_you_mean, quoted
from gas.vocabularies.koordinator import names, rules
from gas.vocabularies.protocol import AdmissionChecks, NeedOptions


class KoordinatorAdmission(AdmissionChecks):
    """Rewrite the form of before, add the number of cards, and state requests and limits alike."""

    completed = names.ASKING

    def faults(self, pod: Pod) -> Sequence[str]:
        return list(_misspelt(pod))

    def warnings(self, pod: Pod, options: NeedOptions) -> Sequence[str]:
        return [
            f"annotation {name} has no effect; docs/from-koordinator.md lists what has"
            for name in names.WITHOUT_EFFECT
            if name in pod.annotations
        ]

    def complete(self, pod: Pod) -> Patch:
        return tuple(
            operation
            for field, containers in (("initContainers", pod.spec.init_containers), ("containers", pod.spec.containers))
            for index, container in enumerate(containers or ())
            for operation in _completed(container, pointer("spec", field, str(index), "resources"))
        )


def _completed(container: Container, where: str) -> Iterator[Operation]:
    """Yield what completes the resources of a container; nothing for amounts that cannot be read."""
    requests = container.requests
    limits = _limits(container)
    stated = {name: text for name, text in {**limits, **requests}.items() if name in _RESOURCES}
    try:
        asked = {_RESOURCES[name]: parse_quantity(text) for name, text in stated.items()}
    except MalformedQuantity:
        return
    if not asked:
        return
    wanted = rules.completed(asked)
    for field, present in (("requests", requests), ("limits", limits)):
        kept = {
            name: text for name, text in present.items() if _RESOURCES.get(name, "") in wanted or name not in stated
        }
        added = {
            full_name: stated.get(full_name, str(amount))
            for name, amount in wanted.items()
            if (full_name := names.full_name(name)) not in kept
        }
        if (complete := kept | added) != present:
            yield Operation("add", f"{where}/{field}", complete)


def _limits(container: Container) -> Mapping[str, Quantity]:
    resources = container.resources if isinstance(container, NewContainer) else None
    return (resources.limits if resources else None) or {}


def _misspelt(pod: Pod) -> Iterator[str]:
    """Yield a sentence for each resource that looks like one of Koordinator's and that no node has."""
    for container in (*(pod.spec.init_containers or ()), *(pod.spec.containers or ())):
        for name in container.requests:
            if name.startswith(names.BEGINNING) and name not in _RESOURCES:
                hint = did_you_mean(name, _RESOURCES, f"known are {', '.join(_RESOURCES)}")
                yield f"container {quoted(container.name)} asks for {quoted(name)}, which no node has; {hint}"


_RESOURCES = {names.full_name(name): name for name in names.RESOURCES}
