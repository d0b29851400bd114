"""Simulate containers: the devices each was given, and how long each runs."""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from gas.plugin.kubelet_api import deviceplugin_v1beta1_pb2 as api

RUN_SECONDS = "gas-sandbox/run-seconds"  # Pod annotation: seconds that its containers run
STOP_SECONDS = "gas-sandbox/stop-seconds"
"""Pod annotation: seconds that its containers take to end when stopped, limited by the grace period."""
RESTART_SECONDS = "gas-sandbox/restart-seconds"
"""Pod annotation: seconds after which its containers fail once, to be started again."""

# An annotation with the suffix ``.NAME`` is about that container only.


@dataclass(frozen=True, slots=True)
class KubeletPace:
    """The times that a kubelet and its pods take, in seconds. Annotations of a pod override ``run`` and ``stop``."""

    start: float = 0  # from a pod's admission to the start of its first container
    init: float = 0.05  # run time of each init container
    run: float | None = None  # run time of the other containers; None until they are deleted
    stop: float = 0.1  # from asking containers to end to their end
    status: float = 0.1  # between two updates of the node's status
    connecting: float = 10  # limit for connecting to a plugin that registers
    sources: float = 0.3  # from the kubelet's start until it learns of any pod
    teardown: float = 0.2  # from the end of a pod's last container until the pod is over and its devices are free
    removal: float = 0.1  # from then until a deleted pod is gone
    retry: float = 0.2  # before repeating a request that the API server or a plugin did not carry out
    # returns the time of something that takes at most these seconds
    spread: Callable[[float], float] = lambda seconds: seconds

    async def wait(self, seconds: float) -> None:
        """Sleep for the time of something that takes at most these seconds."""
        if seconds:
            await asyncio.sleep(self.spread(seconds))


def annotated_seconds(pod: dict[str, Any], annotation: str, container: str, otherwise: float | None) -> float | None:
    """Return the number in a pod's annotation, for a container or for all; ``otherwise`` if there is none."""
    annotations = pod["metadata"].get("annotations") or {}
    for name in (f"{annotation}.{container}", annotation):
        with suppress(KeyError, ValueError):
            return max(float(annotations[name]), 0)
    return otherwise


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerDevices:
    """Everything that device plugins added to a container. Paths on the host are by path in the container."""

    env: Mapping[str, str] = field(default_factory=dict)
    device_nodes: Mapping[str, str] = field(default_factory=dict)
    mounts: Mapping[str, str] = field(default_factory=dict)
    cdi_devices: tuple[str, ...] = ()


def container_devices(responses: Iterable[bytes]) -> ContainerDevices:
    """Merge the encoded ContainerAllocateResponses of all plugins. If two set the same thing, the first one counts."""
    env: dict[str, str] = {}
    nodes: dict[str, str] = {}
    mounts: dict[str, str] = {}
    cdi: dict[str, None] = {}
    for encoded in responses:
        response = api.ContainerAllocateResponse.FromString(encoded)
        env = {**response.envs, **env}
        nodes = {**{node.container_path: node.host_path for node in response.devices}, **nodes}
        mounts = {**{mount.container_path: mount.host_path for mount in response.mounts}, **mounts}
        cdi |= {device.name: None for device in response.cdi_devices}
    return ContainerDevices(env=env, device_nodes=nodes, mounts=mounts, cdi_devices=tuple(cdi))


@dataclass(slots=True, eq=False)
class Container:
    """One run of a container. ``ended`` is set when it has ended."""

    devices: ContainerDevices
    restarts: int
    id: str
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    succeeded: bool = True

    @property
    def is_running(self) -> bool:
        return not self.ended.is_set()


class Containers:
    """The containers of one node. They keep running without a kubelet; a reboot ends them all.

    ``later`` calls a function after a number of seconds, by default on the running event loop.
    """

    def __init__(self, later: Callable[..., object] | None = None) -> None:
        self.later = later or (lambda *args: asyncio.get_running_loop().call_later(*args))
        self._last: dict[tuple[str, str], Container] = {}

    def get(self, uid: str, name: str) -> Container | None:
        return self._last.get((uid, name))

    def is_running(self, uid: str, name: str) -> bool:
        return (last := self.get(uid, name)) is not None and last.is_running

    def start(
        self, uid: str, name: str, devices: ContainerDevices, seconds: float | None, *, fails: bool = False
    ) -> Container:
        """Start or restart a container. It ends by itself after ``seconds``, unless that is None."""
        before = self._last.get((uid, name))
        restarts = before.restarts + 1 if before else 0
        container = Container(devices, restarts, f"sandbox://{uid}/{name}/{restarts}")
        self._last[uid, name] = container
        if seconds is not None:
            self.later(seconds, _end, container, not fails)
        return container

    def stop(self, uid: str) -> None:
        for (owner, _), container in self._last.items():
            if owner == uid:
                _end(container, succeeded=True)

    def forget(self, uid: str) -> None:
        self.stop(uid)
        self._last = {key: container for key, container in self._last.items() if key[0] != uid}

    def reboot(self) -> None:
        for container in self._last.values():
            _end(container, succeeded=False)


def _end(container: Container, succeeded: bool) -> None:  # noqa: FBT001 -- `call_later` passes no keywords
    if container.is_running:
        container.succeeded = succeeded
        container.ended.set()
