"""Declare the flags of ``gas-plugin``: those of Intel's plugin with their meaning, and new ones."""

import dataclasses
import os
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path, PurePosixPath
from typing import ClassVar, TypeVar

from gas.daemon import flag_values as values
from gas.daemon.flags import (
    KLOG_FLAGS,
    CommandLine,
    IgnoredFlags,
    UsageError,
    flag,
    read_flags,
    switch,
)
from gas.plugin.devices.allocation import ByPath, Presentation
from gas.plugin.devices.allocation_policy import AllocationPolicy
from gas.plugin.devices.device_lists import Monitoring
from gas.plugin.discovery.card_models import parse_pci_ids
from gas.plugin.discovery.sysfs import SOURCE
from gas.plugin.part import CoreFlags, FlagChoice
from gas.plugin.parts import PARTS
from gas.values.amounts import MalformedQuantity, parse_quantity
from gas.values.card_facts import MOST_MEMORY
from gas.values.errors import GasError, InvalidEntry
from gas.vocabularies.protocol import Vocabulary
from gas.vocabularies.selection import VOCABULARY_FLAGS, configured, unused_flags, vocabularies_flag

Number = TypeVar("Number", int, int | None)


class MalformedVariable(GasError):
    """The value of a variable is not a whole number."""


def _variable(name: str, default: Number, description: str) -> Number:
    return dataclasses.field(default=default, metadata={"name": name, "description": description})


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    memory_override: int | None = _variable(
        "GPU_MEMORY_OVERRIDE", None, "Memory of each card of which no other source states it, in bytes."
    )
    memory_reserved: int = _variable(
        "GPU_MEMORY_RESERVED",
        0,
        "Memory of each card that pods do not get, in bytes. It is subtracted from what sysfs or the driver "
        "says, never from the override.",
    )
    pci_grouping_level: int = _variable(
        "GPU_PCI_GROUPING_LEVEL",
        0,
        "How many directories the sysfs paths of cards in one group of the label pci-groups share, counted from the "
        "one that begins with pci. If it is not set, there is no such label.",
    )


VARIABLES: Mapping[str, str] = {
    field.metadata["name"]: field.metadata["description"] for field in dataclasses.fields(Environment)
}


class WriteNode(StrEnum):
    """The ways of the core to describe the cards on the node; parts add others."""

    PATCH = "patch"  # the plugin writes labels, annotation and resources on its node
    NONE = "none"


SOURCES = (
    FlagChoice(SOURCE, "Intel's"),
    *(part.card_source for part in PARTS if part.card_source is not None),
)
NODE_WRITERS = (
    FlagChoice(WriteNode.PATCH, "the plugin writes labels, an annotation and resources on its node"),
    *(part.node_writer for part in PARTS if part.node_writer is not None),
    FlagChoice(WriteNode.NONE, ""),
)

MOST_IDS = 1000
"""Most devices that one card can be. No kubelet runs this many containers on a card. Kubelet accepts lists of up to 4
MiB, about 127,000 devices of a driver: over a hundred cards with this many devices."""

LEVEL_ZERO_FLAGS = IgnoredFlags(
    switches=("health-management", "wsl"),
    with_value=("temp-limit", "gpu-temp-limit", "memory-temp-limit"),
    reason="there is no Level-Zero sidecar, and a card is healthy if the kernel shows it completely",
)

ALIYUN_FLAGS = IgnoredFlags(
    switches=("mps", "health-check", "query-kubelet"),
    with_value=("kubelet-address", "kubelet-port", "client-cert", "client-key", "token", "timeout"),
    reason="of Aliyun's plugin; health is always checked, pods come from the API server, and for MPS there is --fence",
)


def parse_sources(text: str) -> frozenset[str]:
    """Parse the value of ``--card-sources``: names with commas between them. Raises InvalidEntry."""
    known = [source.name for source in SOURCES]
    found: set[str] = set()
    for entry in text.split(","):
        name = entry.strip()
        if name not in known or name in found:
            raise InvalidEntry(f"sources with commas between them, each once, of these: {', '.join(known)}", entry)
        found.add(name)
    return frozenset(found)


def _described(choices: Sequence[FlagChoice]) -> str:
    *first, last = (f"{each.name} ({each.description})" if each.description else each.name for each in choices)
    return f"{', '.join(first)} or {last}" if first else last


@dataclass(frozen=True, slots=True, kw_only=True)
class Flags(CoreFlags):
    """The flags of the core of ``gas-plugin``. `parse_flags` checks combinations and finds the node's name.

    At most one of ``allow_ids`` and ``deny_ids`` is set. ``write_node`` is NONE without ``resource_manager``.
    """

    program: ClassVar[str] = "gas-plugin"
    summary: ClassVar[str] = (
        "Gives each container exactly the GPUs that were chosen for it, and describes the GPUs on the node."
    )
    variables: ClassVar[Mapping[str, str]] = {
        "NODE_NAME": "Name of the node, unless --node-name is given.",
        **VARIABLES,
    }
    ignored: ClassVar[tuple[IgnoredFlags, ...]] = (KLOG_FLAGS, LEVEL_ZERO_FLAGS, ALIYUN_FLAGS)

    shared_dev_num: int = flag(
        "shared-dev-num=N",
        values.whole_number(1, MOST_IDS, f"a whole number from 1 to {MOST_IDS}"),
        "1",
        f"How many containers may share one card, up to {MOST_IDS}. Each card is offered as this many devices.",
        group="Allocating cards",
    )
    allocation_policy: AllocationPolicy = flag(
        "allocation-policy=POLICY",
        values.one_of(AllocationPolicy),
        AllocationPolicy.NONE,
        "Which cards a container gets if no annotation names cards for it: none (kubelet chooses), balanced (the cards "
        "with the most free devices), near (as balanced, then those close to the first) or packed (those with the "
        "fewest).",
    )
    resource_manager: bool = switch(
        "resource-manager",
        "Allocate the cards that the pods' annotations name, write receipts on pods, and describe the cards on the "
        "node. If false, the cluster's API is not used at all.",
        default=True,
    )
    enable_monitoring: bool = switch(
        "enable-monitoring", "Offer gpu.intel.com/monitoring, which gives monitoring programs access to all cards."
    )
    split_monitoring: bool = switch(
        "split-monitoring", "With --enable-monitoring: offer i915_monitoring and xe_monitoring instead of monitoring."
    )
    by_path: ByPath = flag(
        "bypath=MODE",
        values.one_of(ByPath),
        ByPath.SINGLE,
        "Which links of /dev/dri/by-path containers get: single (those of their cards), none or all.",
    )
    topology_hints: bool = switch(
        "topology-hints",
        "Send kubelet the NUMA node of each card. Under every Topology Manager policy but none, kubelet then gives "
        "containers only cards of the NUMA node that it chooses, whichever cards were decided.",
    )
    vocabularies: tuple[Vocabulary, ...] = vocabularies_flag("gas-extender")

    card_sources: frozenset[str] = flag(
        "card-sources=NAME,…",
        parse_sources,
        SOURCE,
        f"Where cards are found, one or more of these: {_described(SOURCES)}.",
        group="Finding cards",
    )
    prefix: Path = flag(
        "prefix=DIR",
        lambda text: values.directory(text or "/"),  # Intel's default is the empty text
        "/",
        "Directory under which the plugin finds /sys, /dev and /proc; containers never see it.",
    )
    allow_ids: frozenset[str] = flag(
        "allow-ids=0xhhhh,…", parse_pci_ids, "", "Use only cards with these PCI device ids.", unset="all cards"
    )
    deny_ids: frozenset[str] = flag(
        "deny-ids=0xhhhh,…",
        parse_pci_ids,
        "",
        "Leave out cards with these PCI device ids. Cannot be combined with --allow-ids.",
        unset="none",
    )

    node_name: str = flag(
        "node-name=NAME",
        values.object_name,
        "",
        "Name of the node in the cluster.",
        group="The node",
        unset="$NODE_NAME, else the name of the host",
    )
    kubelet_dir: Path = flag(
        "kubelet-dir=DIR",
        values.directory,
        "/var/lib/kubelet",
        "Root directory of kubelet (its --root-dir), which contains pod-resources/.",
    )
    device_plugins_dir: Path | None = flag(
        "device-plugins-dir=DIR",
        values.directory,
        None,
        "Directory where plugins register. kubelet has it always at /var/lib/kubelet/device-plugins, whatever its "
        "--root-dir.",
        unset="device-plugins/ in --kubelet-dir",
    )
    write_node: str = flag(
        "write-node=MODE",
        values.one_of([writer.name for writer in NODE_WRITERS]),
        WriteNode.PATCH,
        f"How the cards are described on the node: {_described(NODE_WRITERS)}.",
    )
    uninstall: bool = switch(
        "uninstall",
        "Remove everything that the plugin has written from the node, and exit. Use it when no plugin runs on the node "
        "any more.",
    )

    metrics_port: int = flag(
        "metrics-port=N",
        values.port,
        "9003",
        "Port of /healthz, /readyz and /metrics; 0 picks a free port.",
        group="Health and metrics (plain HTTP)",
    )

    @property
    def monitoring(self) -> Monitoring:
        if not self.enable_monitoring:
            return Monitoring.NONE
        return Monitoring.SPLIT if self.split_monitoring else Monitoring.ONE

    @property
    def presentation(self) -> Presentation:
        return Presentation(host_root=PurePosixPath(self.prefix.absolute()), by_path=self.by_path)


COMMAND_LINE = CommandLine(Flags, (*VOCABULARY_FLAGS, *(part.flags for part in PARTS)))


def parse_flags(argv: Sequence[str], *, environ: Mapping[str, str] = os.environ, host_name: str | None = None) -> Flags:
    """Parse the arguments after the program's name. Raises UsageError.

    ``environ`` and ``host_name`` (the machine's) give the default of --node-name.
    """
    flags = read_flags(COMMAND_LINE, argv)
    if flags.allow_ids and flags.deny_ids:
        raise UsageError("--allow-ids and --deny-ids exclude each other: give one of them")
    warnings = list(flags.warnings)
    if flags.split_monitoring and not flags.enable_monitoring:
        warnings.append("ignored: --split-monitoring; it needs --enable-monitoring")
    write_node = flags.write_node
    if not flags.resource_manager:
        if "write-node" in flags.given and write_node != WriteNode.NONE:
            warnings.append(f"ignored: --write-node={write_node}; with --resource-manager=false nothing is written")
        write_node = WriteNode.NONE
    for part in PARTS:
        warnings += part.warnings(flags)
    return replace(
        flags,
        node_name=flags.node_name or _own_node_name(environ, host_name or socket.gethostname()),
        write_node=write_node,
        vocabularies=configured(flags.vocabularies, flags),
        warnings=(*warnings, *unused_flags(flags.vocabularies, flags)),
    )


def _own_node_name(environ: Mapping[str, str], host_name: str) -> str:
    """Return NODE_NAME, or else kubelet's default name of its node: the host's name in lower case."""
    name = environ.get("NODE_NAME", "").strip()
    try:
        return values.object_name(name or host_name.strip().lower())
    except ValueError as expected:
        source = "environment variable NODE_NAME" if name else "the host's name"
        found = (name or host_name)[:80]
        raise UsageError(f"{source}: expected {expected}, found {found!r}; set --node-name") from None


def read_environment(environ: Mapping[str, str]) -> Environment:
    """Return the values of the variables. Raises MalformedVariable.

    Empty variables and the value 0 count as not set. Numbers may be Kubernetes quantities (``16Gi``).
    """
    numbers = {field.name: _number(environ, field.metadata["name"]) for field in dataclasses.fields(Environment)}
    return Environment(**{name: number for name, number in numbers.items() if number})


def _number(environ: Mapping[str, str], name: str) -> int:
    text = environ.get(name, "").strip()
    if not text:
        return 0
    try:
        number = parse_quantity(text)
        if number > MOST_MEMORY:
            raise MalformedQuantity(text, f"expected at most {MOST_MEMORY}")
    except MalformedQuantity as malformed:
        raise MalformedVariable(f"environment variable {name}: {malformed}") from malformed
    return number
