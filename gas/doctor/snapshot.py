"""The snapshot of a cluster that the checks work on. Nothing here does I/O."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from configurator.scheduler_configuration import ExtenderEntry, SchedulerConfiguration
from gas.doctor.objects import AdmissionRule, Lease
from gas.doctor.probe import Unseen
from gas.doctor.programs import Program, containers_with
from gas.objects.stored import DetailedContainer, DetailedNode, DetailedPod

BIND_PATH = "/bind"
"""The path of the webhook that gives bindings their cards."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Clock:
    """The time of this machine before and after a request, and the API server's in whole seconds.

    All are seconds since the epoch.
    """

    before: float
    server: float
    after: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Scheduler:
    """One kube-scheduler.

    name           for messages: a pod, or the file of a manifest
    file           where its configuration was found, or should be
    configuration  None if it runs without one
    is_here        whether its files are on this machine
    is_like_here   whether it is another static pod, with the same command as the one whose files are here
    config_map     namespace and name, if the configuration is in a ConfigMap
    """

    name: str
    file: str
    configuration: SchedulerConfiguration | Unseen | None
    is_here: bool = False
    is_like_here: bool = False
    config_map: tuple[str, str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """The extender's response to the filter request for the dry pod.

    passed  the nodes that have room
    failed  node -> reason
    error   why there is no usable response, or its own ``Error``; empty if the extender decided
    """

    passed: tuple[str, ...] = ()
    failed: Mapping[str, str] = field(default_factory=dict)
    error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One extender in one scheduler's configuration, and the outcome of calling it.

    scheduler           with this configuration
    entry               of the configuration
    client, key, ca     content of the PEM files on this machine; None if not configured
    files               ``client``, ``key``, ``ca`` -> path on the scheduler's machine, as far as known
    key_mode            permission bits of the key's file; None if unknown
    tried               addresses that were called
    connected           the address that responded; empty if none did
    failure             why there was no connection
    server_certificate  DER of the certificate that the server presented; None without one
    not_verified        why kube-scheduler would not trust that certificate; empty if it does
    reply               None if the filter request was not sent
    not_asked           why it was not sent
    service             the Service in ``urlPrefix``; None if that is not the name of a Service
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
    """A Service, if it exists.

    cluster_address  cluster IP and port; None if it is headless
    ready            addresses of the ready endpoints
    has_not_ready    whether it also leads to replicas that are not ready
    """

    name: str
    namespace: str
    exists: bool
    cluster_address: tuple[str, int] | None = None
    ready: tuple[tuple[str, int], ...] = ()
    has_not_ready: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Webhook:
    """One of the admission webhooks, as it is registered at the API server, and the outcome of connecting to it.

    kind                ``validatingwebhookconfiguration`` or ``mutatingwebhookconfiguration``
    configuration       name of the object that it is in
    path                of its URL
    policy              ``Fail`` or ``Ignore``
    reinvocation        ``IfNeeded`` or ``Never``; empty for a validating webhook
    timeout             seconds
    rules               one of which must match for a call
    conditions          CEL expressions that must all be true for a call
    selectors           ``namespaceSelector`` and ``objectSelector`` -> its content, if it leaves anything out
    bundle              the authorities that the API server trusts, as PEM; empty for those of its machine
    service             that is called; None if it is called by a URL
    connected           the address that responded; empty if none did
    failure             why there was no connection
    server_certificate  DER of the certificate that the server presented; None without one
    not_verified        why the API server would not trust that certificate; empty if it does
    """

    kind: str
    configuration: str
    name: str
    path: str
    policy: str
    timeout: int
    conditions: tuple[str, ...]
    bundle: bytes
    rules: tuple[AdmissionRule, ...]
    selectors: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    reinvocation: str = ""
    service: ServiceSeen | Unseen | None = None
    connected: str = ""
    failure: str = ""
    server_certificate: bytes | None = None
    not_verified: str = ""

    @property
    def is_for_bindings(self) -> bool:
        return self.path == BIND_PATH


@dataclass(frozen=True, slots=True, order=True)
class Permission:
    """A permission that an account should have.

    resource   with its subresource, ``pods/binding``
    group      API group
    namespace  empty for the whole cluster
    name       of the only object; empty for all
    needed     False if the program works without it, but reports less
    """

    verb: str
    resource: str
    group: str = ""
    namespace: str = ""
    name: str = ""
    needed: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """The service account of a program, and whether it has each permission."""

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
    pods             those that ask for GPUs, and those of the programs that the checks know
    undecodable      number of nodes and pods that could not be decoded and are left out
    node_leases      node -> heartbeat of its kubelet
    feature_objects  number of NodeFeature objects of NFD; None if the cluster does not have that kind
    webhooks         the admission webhooks of gas
    api_server_certificate  file and content (PEM) of the certificate that kube-apiserver presents to them; None if
                     this machine has none
    topology_policies  node with GPUs -> the policy of its kubelet's Topology Manager
    only_node        name of the only node to check; empty for all
    dry_pod          whether to ask the extender about the dry pod
    control_plane    directory that stands for /etc/kubernetes
    """

    now: float
    api_url: str
    version: str | Unseen
    clock: Clock | Unseen
    nodes: tuple[DetailedNode, ...] | Unseen
    pods: tuple[DetailedPod, ...] | Unseen
    undecodable: int = 0
    node_leases: Mapping[str, Lease] | Unseen = field(default_factory=dict)
    feature_objects: int | Unseen | None = None
    topology_policies: Mapping[str, str | Unseen] = field(default_factory=dict)
    schedulers: tuple[Scheduler, ...] = ()
    calls: tuple[Call, ...] = ()
    accounts: tuple[Account, ...] = ()
    webhooks: tuple[Webhook, ...] | Unseen = ()
    api_server_certificate: tuple[str, bytes] | None = None
    only_node: str = ""
    dry_pod: bool = True
    control_plane: Path = Path("/etc/kubernetes")

    def running(self, program: Program) -> list[tuple[DetailedPod, DetailedContainer]]:
        """Return the containers that run a program, in pods that are not over; none if pods could not be seen."""
        if isinstance(self.pods, Unseen):
            return []
        return [(pod, container) for pod in self.pods if not pod.is_over for container in containers_with(pod, program)]
