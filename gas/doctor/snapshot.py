"""The snapshot of a cluster that the checks work on. Nothing here does I/O."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from configurator.scheduler_configuration import ExtenderEntry, SchedulerConfiguration
from configurator.scheduler_container import Mounts
from gas.doctor.findings import Unseen
from gas.inspection.cluster import Cluster, settings_of
from gas.inspection.gather import unlogged
from gas.inspection.objects import InspectedNode, InspectedPod
from gas.objects.stored import DetailedContainer, DetailedPod
from gas.programs import Program, containers_with
from gas.vocabularies.combined import Vocabularies


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenScheduler:
    name: str  # for messages: a pod, or the file of a manifest
    file: str  # where its configuration was found, or should be
    configuration: SchedulerConfiguration | Unseen | None  # None if it runs without one
    is_here: bool = False  # its files are on this machine
    is_like_here: bool = False  # it is another static pod with the command of the one whose files are here
    config_map: tuple[str, str] | None = None  # namespace and name, if the configuration is in a ConfigMap
    command: tuple[str, ...] = ()
    mounts: Mounts | None = None  # of its container; None if the paths in its configuration are those of this machine

    @property
    def entries(self) -> list[ExtenderEntry]:
        """The extenders for GPUs in its configuration; none if that could not be seen."""
        seen = self.configuration
        listed = None if seen is None or isinstance(seen, Unseen) else seen.extenders
        return [entry for entry in listed or () if entry.is_about_gpus]

    def host_path(self, path: str) -> str | None:
        """Return the path on its machine; None if it is not in a directory of that machine."""
        return path if self.mounts is None else self.mounts.host_path(path)

    @property
    def names(self) -> frozenset[str]:
        """The ``schedulerName`` of its profiles; none if its configuration could not be seen."""
        if isinstance(self.configuration, Unseen):
            return frozenset()
        return self.configuration.scheduler_names if self.configuration else frozenset({"default-scheduler"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """The extender's response to the filter request for the dry pod."""

    passed: tuple[str, ...] = ()
    failed: Mapping[str, str] = field(default_factory=dict)  # by node, the reason
    error: str = ""  # why there is no usable response, or its own ``Error``; empty if the extender decided


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceSeen:
    name: str
    namespace: str
    exists: bool
    cluster_address: tuple[str, int] | None = None  # cluster IP and port; None if it is headless
    ready: tuple[tuple[str, int], ...] = ()  # addresses of the ready endpoints
    has_not_ready: bool = False  # it also leads to replicas that are not ready


@dataclass(frozen=True, slots=True, kw_only=True)
class Contact:
    """The outcome of connecting to an extender."""

    service: ServiceSeen | Unseen | None = None  # None if the address is not the name of a Service
    tried: tuple[str, ...] = ()
    connected: str = ""  # the address that responded; empty if none did
    failure: str = ""  # why there was no connection
    server_certificate: bytes | None = None  # DER; None without one
    not_verified: str = ""  # why the caller would not trust that certificate; empty if it does


@dataclass(frozen=True, slots=True, kw_only=True)
class Call(Contact):
    """One extender in one scheduler's configuration, and the outcome of calling it.

    client, key, ca  content of the PEM files on this machine; None if not configured
    files            by ``client``, ``key`` and ``ca``, the path on the scheduler's machine, as far as known
    key_mode         permission bits of the key's file; None if unknown
    reply            None if the filter request was not sent, because of ``not_asked``
    """

    scheduler: SeenScheduler
    entry: ExtenderEntry
    client: bytes | Unseen | None = None
    key: bytes | Unseen | None = None
    ca: bytes | Unseen | None = None
    files: Mapping[str, str] = field(default_factory=dict)
    key_mode: int | None = None
    reply: Reply | None = None
    not_asked: str = ""


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """The cluster, as far as it could be seen."""

    now: float  # seconds since the epoch
    api_url: str
    version: str
    nodes: tuple[InspectedNode, ...] | Unseen
    pods: tuple[InspectedPod, ...] | Unseen  # those that ask for GPUs, and those of the programs that the checks know
    undecodable: int = 0  # number of nodes and pods that could not be decoded and are left out
    schedulers: tuple[SeenScheduler, ...] = ()
    calls: tuple[Call, ...] = ()
    only_node: str = ""  # name of the only node to check; empty for all
    dry_pod: bool = True
    control_plane: Path = Path("/etc/kubernetes")  # directory that stands for /etc/kubernetes
    gathered: Mapping[str, Any] = field(default_factory=dict)  # by name, what a single check has gathered for itself

    _running: dict[Program, list[tuple[DetailedPod, DetailedContainer]]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def running(self, program: Program) -> list[tuple[DetailedPod, DetailedContainer]]:
        """Return the containers that run a program, in pods that are not over; none if pods could not be seen."""
        if program not in self._running:
            pods = () if isinstance(self.pods, Unseen) else self.pods
            self._running[program] = [
                (pod, container) for pod in pods if not pod.is_over for container in containers_with(pod, program)
            ]
        return self._running[program]

    @property
    def checked_nodes(self) -> Iterator[InspectedNode]:
        nodes = () if isinstance(self.nodes, Unseen) else self.nodes
        return (node for node in nodes if self.is_checked(node.name))

    def is_checked(self, node: str) -> bool:
        return not self.only_node or node == self.only_node

    @property
    def vocabularies(self) -> Vocabularies:
        """The vocabularies of the extender; those of the defaults if no extender, or no valid flag, is seen."""
        return settings_of(() if isinstance(self.pods, Unseen) else self.pods).options.vocabularies

    @cached_property
    def cluster(self) -> Cluster:
        """The cluster with the extender's own ledger; empty if nodes or pods could not be seen."""
        nodes = () if isinstance(self.nodes, Unseen) else self.nodes
        with unlogged():  # the findings say it
            return Cluster.of(nodes, () if isinstance(self.pods, Unseen) else self.pods, counts_hosts=True)
