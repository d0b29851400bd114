"""What runs the containers of one node: nothing really, but what each was given can be seen as in a real one."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from gas.plugin.kubelet_api import deviceplugin_v1beta1_pb2 as api

RUN_SECONDS = "gas-sandbox/run-seconds"
"""Annotation of a pod: how long its containers run."""
STOP_SECONDS = "gas-sandbox/stop-seconds"
"""Annotation of a pod: how long its containers take to end when asked to; no longer than the grace period."""
RESTART_SECONDS = "gas-sandbox/restart-seconds"
"""Annotation of a pod: after how long its containers fail once, to be started again."""

# With ``.NAME`` behind it each annotation is about one container of the pod.


@dataclass(frozen=True, slots=True)
class KubeletPace:
    """How long things take, in seconds, for pods that do not say it themselves.

    init        each init container
    run         the containers; None: until they are deleted
    stop        from being asked to end to the end
    status      how often it writes the status of its node
    connecting  how long it tries to connect to a plugin that registers
    sources     from its start until it knows of any pod
    teardown    from the end of a pod's last container until the pod is over and its devices are free
    removal     from then until a deleted pod is gone
    """

    init: float = 0.05
    run: float | None = None
    stop: float = 0.1
    status: float = 0.1
    connecting: float = 10
    sources: float = 0.3
    teardown: float = 0.2
    removal: float = 0.1


def container_seconds(pod: dict[str, Any], container: str, otherwise: float | None) -> float | None:
    """How long a container runs; None: until it is ended."""
    return _seconds(pod, RUN_SECONDS, container, otherwise)


def restart_seconds(pod: dict[str, Any], container: str) -> float | None:
    """After how long it fails for the first time; None: it does not."""
    return _seconds(pod, RESTART_SECONDS, container, None)


def stop_seconds(pod: dict[str, Any], otherwise: float) -> float:
    """How long a pod takes to end once it is asked to."""
    return _seconds(pod, STOP_SECONDS, "", otherwise) or 0


def _seconds(pod: dict[str, Any], annotation: str, container: str, otherwise: float | None) -> float | None:
    """The number in the annotation; one that cannot be read counts as not given."""
    annotations = pod["metadata"].get("annotations") or {}
    for name in (f"{annotation}.{container}", annotation):
        try:
            return max(float(annotations[name]), 0)
        except (KeyError, ValueError):
            continue
    return otherwise


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
