"""Which pods are about GPUs at all."""

from __future__ import annotations

from gas.intel import names
from gas.objects import Container, Pod


def asks_for_gpus(pod: Pod) -> bool:
    """Whether some container asks for a resource that is booked by card, or for monitoring."""
    return any(map(_asks_for_gpus, (*(pod.spec.containers or ()), *(pod.spec.init_containers or ()))))


def _asks_for_gpus(container: Container) -> bool:
    requests = (container.resources.requests if container.resources else None) or {}
    return any(name.startswith(names.PREFIX) for name in requests)
