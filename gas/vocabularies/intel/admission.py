"""Checks of a new pod in Intel's vocabulary, beyond what its need refuses at any time."""

from __future__ import annotations

from collections.abc import Iterator

from gas.objects.stored import Pod
from gas.values.quoted import most_similar, quoted
from gas.vocabularies.intel import names
from gas.vocabularies.pod_parts import is_positive
from gas.vocabularies.protocol import AdmissionChecks, NeedOptions

_SWITCHES = (names.ALLOCATE_XELINK, names.ALLOCATE_SINGLE_NUMA)
"""Annotations that are in force whatever their value is."""
_OFF = frozenset({"false", "no", "off", "0"})


class IntelAdmission(AdmissionChecks):
    """Refuse amounts without a card, and warn of annotations without effect. There are no defaults."""

    def faults(self, pod: Pod) -> list[str]:
        return list(_amounts_without_cards(pod))

    def warnings(self, pod: Pod, options: NeedOptions) -> list[str]:
        return list(_without_effect(pod, options))


def _amounts_without_cards(pod: Pod) -> Iterator[str]:
    """Yield a sentence for each container that asks for parts of a card, and for no card.

    A filter lets such a pod pass, as the original does: nothing is booked for it, and it gets no card.
    """
    counts = [names.PREFIX + name for name in names.COUNT_RESOURCES]
    no_amounts = {*counts, *(names.PREFIX + name for name in names.MONITORING_RESOURCES)}
    for container in (*(pod.spec.init_containers or ()), *(pod.spec.containers or ())):
        requests = container.requests
        if any(is_positive(requests.get(name, 0), if_unreadable=True) for name in counts):
            continue
        amounts = [
            name
            for name in sorted(requests.keys() - no_amounts)
            if name.startswith(names.PREFIX) and is_positive(requests[name], if_unreadable=False)
        ]
        if amounts:
            who = f"container {quoted(container.name)} asks for"
            misspelt = next(((name, count) for name in amounts if (count := most_similar(name, counts))), None)
            if misspelt is not None:
                yield f"{who} {quoted(misspelt[0])} but for no card; did you mean {misspelt[1]}?"
            else:
                add = f"add {' or '.join(counts)} to the container, or remove the request"
                yield f"{who} {quoted(amounts[0])} but for no card; {add}"


def _without_effect(pod: Pod, options: NeedOptions) -> Iterator[str]:
    for name, is_obeyed, flag in (
        (names.ALLOW, options.allowlist, "--enableAllowlist"),
        (names.DENY, options.denylist, "--enableDenylist"),
    ):
        if pod.annotations.get(name) and not is_obeyed:
            yield f"annotation {name} has no effect, because the extender runs without {flag}"
    for name in _SWITCHES:
        if (text := pod.annotations.get(name, "")).strip().lower() in _OFF:
            yield f"annotation {name} is in force with every value, also {quoted(text)}; remove it to switch it off"
