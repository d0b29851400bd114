"""What runs the containers of one node: nothing really, but what each was given can be seen as in a real one."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from gas.plugin.kubelet_api import deviceplugin_v1beta1_pb2 as api


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerChoice:
    """What plugins gave a container, beside what its pod says.

    device_nodes  path in the container -> path on the host
    mounts        the same for files and directories
    """

    env: Mapping[str, str] = field(default_factory=dict)
    device_nodes: Mapping[str, str] = field(default_factory=dict)
    mounts: Mapping[str, str] = field(default_factory=dict)
    cdi_devices: tuple[str, ...] = ()


def read_answers(answers: Iterable[bytes]) -> ContainerChoice:
    """Of all plugins together; of two that give the same thing, the first counts."""
    env: dict[str, str] = {}
    nodes: dict[str, str] = {}
    mounts: dict[str, str] = {}
    cdi: dict[str, None] = {}
    for encoded in answers:
        answer = api.ContainerAllocateResponse.FromString(encoded)
        env = {**answer.envs, **env}
        nodes = {**{node.container_path: node.host_path for node in answer.devices}, **nodes}
        mounts = {**{mount.container_path: mount.host_path for mount in answer.mounts}, **mounts}
        cdi |= {device.name: None for device in answer.cdi_devices}
    return ContainerChoice(env=env, device_nodes=nodes, mounts=mounts, cdi_devices=tuple(cdi))


@dataclass(slots=True, eq=False)
class Container:
    """One start of a container. ``ended`` is set when it has ended."""

    given: ContainerChoice
    restarts: int
    id: str = field(default_factory=lambda: f"sandbox://{secrets.token_hex(32)}")
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    succeeded: bool = True

    @property
    def is_running(self) -> bool:
        return not self.ended.is_set()


class Containers:
    """The containers of one node. They run on while kubelet is away; a reboot ends them all."""

    def __init__(self) -> None:
        self._last: dict[tuple[str, str], Container] = {}

    def get(self, uid: str, name: str) -> Container | None:
        """The last start of a container, running or ended."""
        return self._last.get((uid, name))

    def start(
        self, uid: str, name: str, given: ContainerChoice, seconds: float | None, *, fails: bool = False
    ) -> Container:
        """Start a container, or start it again; it ends by itself after some seconds, if any are given."""
        before = self._last.get((uid, name))
        container = Container(given, restarts=before.restarts + 1 if before else 0)
        self._last[uid, name] = container
        if seconds is not None:
            asyncio.get_running_loop().call_later(seconds, _end, container, not fails)
        return container

    def stop(self, uid: str) -> None:
        """End all containers of a pod."""
        for (owner, _), container in self._last.items():
            if owner == uid:
                _end(container, succeeded=True)

    def forget(self, uid: str) -> None:
        """The pod is gone; its containers leave no trace."""
        self.stop(uid)
        self._last = {key: container for key, container in self._last.items() if key[0] != uid}

    def reboot(self) -> None:
        """End all of them at once."""
        for container in self._last.values():
            _end(container, succeeded=False)


def _end(container: Container, succeeded: bool) -> None:  # noqa: FBT001 -- `call_later` passes no keywords
    if container.is_running:
        container.succeeded = succeeded
        container.ended.set()
