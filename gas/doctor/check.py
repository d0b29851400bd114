"""Declare a check of the doctor and what it gathers."""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass

from gas.cluster.connection import ApiServer
from gas.cluster.credentials import Credentials
from gas.doctor.findings import Finding
from gas.doctor.host_files import HostFiles
from gas.doctor.snapshot import Snapshot
from gas.programs import Program


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """The sources from which a check gathers what only it needs. ``files`` are the control plane's."""

    credentials: Credentials
    api: ApiServer
    files: HostFiles
    timeout: float  # in seconds for each request or connection
    snapshot: Snapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One check. It yields no finding if there is nothing to check."""

    name: str  # for programs; checks of several features may share one
    findings: Callable[[Snapshot], Iterable[Finding]]
    title: str = ""  # for people; empty if another check of this name has it
    # reads what the check finds in `Snapshot.gathered`, and changes nothing
    gather: Callable[[Sources], Awaitable[Mapping[str, object]]] | None = None
    programs: tuple[Program, ...] = ()  # whose pods it looks at, in addition to those that all checks know
