"""The flags of ``gas-plugin``: those of Intel's plugin where they mean the same, and those that are new here."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import ClassVar

from gas.daemon import flag_values as values
from gas.daemon.flags import KLOG_FLAGS, IgnoredFlags, MeasuredDaemonFlags, UsageError, flag, read_flags, switch
from gas.plugin.cdi.cdi_file import DEFAULT_PATH as CDI_FILE
from gas.plugin.devices.allocation import ByPath, Cdi
from gas.plugin.devices.allocation_policy import AllocationPolicy
from gas.plugin.devices.device_lists import Monitoring
from gas.plugin.discovery.card_source import Source, parse_sources
from gas.plugin.discovery.pci_ids import parse_pci_ids
from gas.plugin.environment import VARIABLES
from gas.plugin.limits.memory_limits import MemoryLimitsOf
from gas.plugin.nfd.nfd_file import DEFAULT_PATH as NFD_FILE
from gas.plugin.nvml.nvml_cards import Access
from gas.values.amounts import MemoryUnit
from gas.vocabularies.known import Settings, aliyun_unit_flag, unused_settings, vocabularies_flag, with_settings
from gas.vocabularies.protocol import Vocabulary


class WriteNode(StrEnum):
    """How the node's labels and resources are written."""

    PATCH = "patch"  # the plugin writes labels, annotation and resources on its node
    NFD = "nfd"  # the plugin writes a feature file, and Node Feature Discovery writes the node
    NONE = "none"


MOST_IDS = 1000
"""Most devices that one card can be. Kubelet accepts lists of up to 4 MiB, which is about 127,000 devices of a driver:
over a hundred cards with this many devices each. No kubelet runs this many containers on a card."""


LEVEL_ZERO_FLAGS = IgnoredFlags(
    switches=("health-management", "wsl"),
    with_value=("temp-limit", "gpu-temp-limit", "memory-temp-limit"),
    reason="there is no Level-Zero sidecar, and a card is healthy if the kernel shows it completely",
)
"""The flags of Intel's plugin that need its Level-Zero sidecar."""


def ids_per_card(value: str) -> int:
    """Parse the number of devices that a card is offered as."""
    try:
        number = values.positive(value)
    except ValueError:
        number = 0
    if not 1 <= number <= MOST_IDS:
        raise ValueError(f"a whole number from 1 to {MOST_IDS}")
    return number


def root_directory(value: str) -> Path:
    """Parse the directory before absolute paths; the empty text, Intel's default, is the root directory."""
    return values.directory(value or "/")


@dataclass(frozen=True, slots=True, kw_only=True)
class Flags(MeasuredDaemonFlags):
    """The command line of ``gas-plugin``. `parse_flags` checks combinations and finds the node's name.

    allow_ids, deny_ids  PCI device ids in the form of `gas.plugin.discovery.pci_ids`; at most one of the two is set
    write_node           NONE without resource_manager
    """

    program: ClassVar[str] = "gas-plugin"
    summary: ClassVar[str] = (
        "Gives each container exactly the GPUs that were chosen for it, and describes the GPUs on the node."
    )
    variables: ClassVar[Mapping[str, str]] = {
        "NODE_NAME": "Name of the node, unless --node-name is given.",
        **VARIABLES,
    }
    ignored: ClassVar[tuple[IgnoredFlags, ...]] = (KLOG_FLAGS, LEVEL_ZERO_FLAGS)

    shared_dev_num: int = flag(
        "shared-dev-num",
        ids_per_card,
        "1",
        "N",
        f"How many containers may share one card, up to {MOST_IDS}. Each card is offered as this many devices.",
        group="Allocating cards",
    )
    allocation_policy: AllocationPolicy = flag(
        "allocation-policy",
        values.one_of(AllocationPolicy),
        AllocationPolicy.NONE,
        "POLICY",
        "Which cards a container gets if no annotation names cards for it: none (kubelet chooses), balanced (the cards "
        "with the most free devices) or packed (those with the fewest).",
    )
    resource_manager: bool = switch(
        "resource-manager",
        "Allocate the cards that the pods' annotations name, write receipts on pods, and describe the cards on the "
        "node. If false, the cluster's API is not used at all.",
        default=True,
    )
    enable_monitoring: bool = switch(
        "enable-monitoring",
        "Offer gpu.intel.com/monitoring, which gives monitoring programs access to all cards.",
    )
    split_monitoring: bool = switch(
        "split-monitoring",
        "With --enable-monitoring: offer i915_monitoring and xe_monitoring instead of monitoring.",
    )
    by_path: ByPath = flag(
        "bypath",
        values.one_of(ByPath),
        ByPath.SINGLE,
        "MODE",
        "Which links of /dev/dri/by-path containers get: single (those of their cards), none or all.",
    )
    topology_hints: bool = switch(
        "topology-hints",
        "Send kubelet the NUMA node of each card. Under every Topology Manager policy but none, kubelet then gives "
        "containers only cards of the NUMA node that it chooses, whichever cards were decided.",
    )
    cdi: Cdi = flag(
        "cdi",
        values.one_of(Cdi),
        Cdi.NONE,
        "MODE",
        "Also name the cards for CDI: none, names (in the field of kubelet's API) or annotations.",
    )
    cdi_file: Path = flag(
        "cdi-file", values.file, str(CDI_FILE), "FILE", "The CDI file that describes the cards, with --cdi."
    )

    vocabularies: tuple[Vocabulary, ...] = vocabularies_flag("gas-extender")
    aliyun_unit: MemoryUnit = aliyun_unit_flag("gas-extender")

    card_sources: frozenset[Source] = flag(
        "card-sources",
        parse_sources,
        Source.SYSFS,
        "NAME,…",
        "Where cards are found: sysfs (Intel's) or nvml (NVIDIA's, by the library of their driver), or both.",
        group="Finding cards",
    )
    nvidia_access: Access = flag(
        "nvidia-access",
        values.one_of(Access),
        Access.VARIABLE,
        "MODE",
        "How containers get NVIDIA's cards: variable (NVIDIA_VISIBLE_DEVICES, for NVIDIA's container runtime), nodes "
        "(the variable and the device nodes) or cdi (the CDI names of NVIDIA's container toolkit).",
    )
    prefix: Path = flag(
        "prefix",
        root_directory,
        "/",
        "DIR",
        "Directory under which the plugin finds /sys, /dev and, with --usage, /proc; containers never see it.",
    )
    allow_ids: frozenset[str] = flag(
        "allow-ids", parse_pci_ids, "", "0xhhhh,…", "Use only cards with these PCI device ids.", unset="all cards"
    )
    deny_ids: frozenset[str] = flag(
        "deny-ids",
        parse_pci_ids,
        "",
        "0xhhhh,…",
        "Leave out cards with these PCI device ids. Cannot be combined with --allow-ids.",
        unset="none",
    )

    usage: bool = switch(
        "usage",
        "Measure how much memory and engine time of the cards the pods of this node really use, and show it beside "
        "what they requested. The plugin must see the node's processes.",
        group="Use of the cards",
    )

    memory_limits: MemoryLimitsOf = flag(
        "memory-limits",
        values.one_of(MemoryLimitsOf),
        MemoryLimitsOf.NONE,
        "WHAT",
        "Memory limits that the kernel enforces on shared cards: none, or pod (a pod can use no more memory of a card "
        "than it requested). Needs the cgroup controller dmem and the right to write in /sys/fs/cgroup.",
    )

    node_name: str = flag(
        "node-name",
        values.object_name,
        "",
        "NAME",
        "Name of the node in the cluster.",
        group="The node",
        unset="$NODE_NAME, else the name of the host",
    )
    kubelet_dir: Path = flag(
        "kubelet-dir",
        values.directory,
        "/var/lib/kubelet",
        "DIR",
        "Directory of kubelet, which contains device-plugins/ and pod-resources/.",
    )
    write_node: WriteNode = flag(
        "write-node",
        values.one_of(WriteNode),
        WriteNode.PATCH,
        "MODE",
        "How the cards are described on the node: patch (the plugin writes labels, an annotation and resources on its "
        "node), nfd (it writes a feature file for Node Feature Discovery) or none.",
    )
    nfd_file: Path = flag("nfd-file", values.file, str(NFD_FILE), "FILE", "The feature file, with --write-node=nfd.")
    uninstall: bool = switch(
        "uninstall",
        "Remove everything that the plugin has written from the node, and exit. Use it when no plugin runs on the node "
        "any more.",
    )

    metrics_port: int = flag(
        "metrics-port",
        values.port,
        "9003",
        "N",
        "Port of /healthz, /readyz and /metrics; 0 picks a free port.",
        group="Health and metrics (plain HTTP)",
    )

    @property
    def monitoring(self) -> Monitoring:
        """The monitoring resources that are offered."""
        if not self.enable_monitoring:
            return Monitoring.NONE
        return Monitoring.SPLIT if self.split_monitoring else Monitoring.ONE


def parse_flags(argv: Sequence[str], *, environ: Mapping[str, str] = os.environ, host_name: str | None = None) -> Flags:
    """Parse the arguments after the program's name. Raises UsageError.

    ``environ`` and ``host_name`` (the machine's) give the default of --node-name.
    """
    flags = read_flags(Flags, argv)
    if flags.allow_ids and flags.deny_ids:
        raise UsageError("--allow-ids and --deny-ids exclude each other: give one of them")
    warnings = list(flags.warnings)
    if "nvidia-access" in flags.given and Source.NVML not in flags.card_sources:
        warnings.append(f"ignored: --nvidia-access={flags.nvidia_access}; it needs nvml among --card-sources")
    if flags.split_monitoring and not flags.enable_monitoring:
        warnings.append("ignored: --split-monitoring; it needs --enable-monitoring")
    if "nfd-file" in flags.given and not (flags.uninstall or flags.write_node is WriteNode.NFD):
        warnings.append("ignored: --nfd-file; it needs --write-node=nfd")
    if "cdi-file" in flags.given and not (flags.uninstall or flags.cdi is not Cdi.NONE):
        warnings.append("ignored: --cdi-file; it needs --cdi=names or --cdi=annotations")
    write_node = flags.write_node
    if not flags.resource_manager:
        if flags.usage:
            warnings.append("ignored: --usage; with --resource-manager=false the plugin does not know the pods")
        if flags.memory_limits is not MemoryLimitsOf.NONE:
            warnings.append(
                f"ignored: --memory-limits={flags.memory_limits}; "
                "with --resource-manager=false the plugin does not know the pods"
            )
        if "write-node" in flags.given and write_node is not WriteNode.NONE:
            warnings.append(f"ignored: --write-node={write_node}; with --resource-manager=false nothing is written")
        write_node = WriteNode.NONE
    return replace(
        flags,
        node_name=flags.node_name or _own_node_name(environ, host_name or socket.gethostname()),
        write_node=write_node,
        usage=flags.usage and flags.resource_manager,
        memory_limits=flags.memory_limits if flags.resource_manager else MemoryLimitsOf.NONE,
        vocabularies=with_settings(flags.vocabularies, Settings(aliyun_unit=flags.aliyun_unit)),
        warnings=(*warnings, *unused_settings(flags.given, flags.vocabularies)),
    )


def _own_node_name(environ: Mapping[str, str], host_name: str) -> str:
    """Return NODE_NAME, or else the name that kubelet gives its node by default: the host's name in lower case."""
    name = environ.get("NODE_NAME", "").strip()
    try:
        return values.object_name(name or host_name.strip().lower())
    except ValueError as expected:
        source = "environment variable NODE_NAME" if name else "the host's name"
        found = (name or host_name)[:80]
        raise UsageError(f"{source}: expected {expected}, found {found!r}; set --node-name") from None
