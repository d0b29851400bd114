"""Everything that was looked at, at one moment: what the checks think about. Nothing here does I/O."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from gas.doctor.looked import Unseen
from gas.doctor.objects import Container, Lease, SeenNode, SeenPod
from gas.doctor.programs import Program, containers_with
from gas.doctor.scheduler_configuration import ExtenderEntry, SchedulerConfiguration


@dataclass(frozen=True, slots=True, kw_only=True)
class Clock:
    """The two clocks around one request, in seconds since the epoch. The API server tells whole seconds."""

    before: float
    server: float
    after: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Scheduler:
    """One kube-scheduler.

    name           for people: a pod, or the file of a manifest
    file           where its configuration was found, or should be
    configuration  None: it is started without any
    is_here        whether its files are those of this machine
    is_like_here   whether it is another static pod, started with the same command as the one whose files are here
    config_map     namespace and name, when it is no file
    """

    name: str
    file: str
    configuration: SchedulerConfiguration | Unseen | None
    is_here: bool = False
    is_like_here: bool = False
    config_map: tuple[str, str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """The extender's answer to the question for the dry pod.

    error   why there is none, or the answer's own ``Error``; empty when it was decided
    failed  node -> reason
    """

    passed: tuple[str, ...] = ()
    failed: Mapping[str, str] = field(default_factory=dict)
    error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One extender as one scheduler's configuration names it, and what came of calling it.

    scheduler           whose configuration it is
    entry               of the configuration
    client, key, ca     PEM files on this machine: what is in them, or why not; None: not configured
    files               ``client``, ``key``, ``ca`` -> where that file is on the scheduler's machine, as far as known
    key_mode            permission bits of the key's file; None: not known
    tried               addresses that were called
    connected           the one that answered; empty: none
    failure             why no connection came about
    server_certificate  DER of what it showed; None: nothing
    not_verified        why kube-scheduler would not believe that certificate; empty: it does
    reply               None: it was not asked, for the reason in ``not_asked``
    service             of the name in ``urlPrefix``; None: it is no Service's name
    """

    scheduler: Scheduler
    entry: ExtenderEntry
    client: bytes | Unseen | None = None
    key: bytes | Unseen | None = None
    ca: bytes | Unseen | None = None
    files: Mapping[str, str] = field(default_factory=dict)
    key_mode: int | None = None
    tried: tuple[str, ...] = ()
    connected: str = ""
    failure: str = ""
    server_certificate: bytes | None = None
    not_verified: str = ""
    reply: Reply | None = None
    not_asked: str = ""
    service: ServiceSeen | Unseen | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceSeen:
    """A Service: ``exists``, and the addresses of its endpoints that are ready."""

    name: str
    namespace: str
    exists: bool
    cluster_address: tuple[str, int] | None = None
    ready: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True, order=True)
class Permission:
    """What an account must be allowed. ``resource`` with its subresource; an empty namespace is the whole cluster.

    name    of the only object that it is about; empty: every one
    needed  False: it works without, but says less
    """

    verb: str
    resource: str
    group: str = ""
    namespace: str = ""
    name: str = ""
    needed: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """A service account that a program runs under, and whether it has each permission."""

    program: Program
    namespace: str
    name: str
    allowed: Mapping[Permission, bool | Unseen]

    @property
    def user(self) -> str:
        return f"system:serviceaccount:{self.namespace}:{self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """The cluster, as far as it could be seen.

    now              seconds since the epoch
    nodes            all of them
    pods             those that ask for GPUs, and those of the programs that matter
    undecodable      objects that could not be read and are missing in nodes and pods
    node_leases      heartbeats of the kubelets
    feature_objects  how many NodeFeature objects of NFD there are; None: the kind is not known
    only_node        check this node alone; empty: all
    dry_pod          whether the extender was to be asked about a pod that is not there
    """

    now: float
    api_url: str
    version: str | Unseen
    clock: Clock | Unseen
    nodes: tuple[SeenNode, ...] | Unseen
    pods: tuple[SeenPod, ...] | Unseen
    undecodable: int = 0
    node_leases: Mapping[str, Lease] | Unseen = field(default_factory=dict)
    feature_objects: int | Unseen | None = None
    schedulers: tuple[Scheduler, ...] = ()
    calls: tuple[Call, ...] = ()
    accounts: tuple[Account, ...] = ()
    only_node: str = ""
    dry_pod: bool = True
    control_plane: Path = Path("/etc/kubernetes")

    def running(self, program: Program) -> list[tuple[SeenPod, Container]]:
        """The containers that run a program, in pods that are not over; none when pods could not be seen."""
        if isinstance(self.pods, Unseen):
            return []
        return [
            (seen, container)
            for seen in self.pods
            if not seen.pod.is_over
            for container in containers_with(seen.details, program)
        ]
