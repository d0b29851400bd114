"""The command line of ``gas-plugin``: flags of Intel's plugin where they mean the same, in Go's spelling, and ours."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Literal

from gas.daemon.flag_values import object_name
from gas.daemon.go_flags import GoFlag, UsageError, boolean, describe_flags, read_go_flags
from gas.daemon.klog_flags import KLOG_FLAGS, ignored_klog_flags
from gas.plugin.devices.allocation_policy import AllocationPolicy
from gas.plugin.devices.container_answer import ByPath, Cdi
from gas.plugin.devices.device_lists import Monitoring
from gas.plugin.discovery.pci_ids import AllowedAndDenied, MalformedPciId, parse_id_lists
from gas.plugin.flag_table import FLAG_GROUPS, WriteNode

_TABLE = (
    *(flag for group in FLAG_GROUPS.values() for flag in group),
    GoFlag("h", boolean, False, "", ""),
    *KLOG_FLAGS,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Flags:
    """What the command line asks for.

    shared_dev_num        ids per card, 1 to 1000
    resource_manager      whether annotations are obeyed and anything is written to the cluster
    prefix                before /sys and /dev
    allow_ids, deny_ids   PCI device ids in the form of `gas.plugin.discovery.pci_ids`; one of the two is empty
    node_name             of the node in the cluster
    kubelet_dir           kubelet's own directory
    write_node            NONE without resource_manager
    kube_config           a kubeconfig's path when --kubeConfig was given, else None
    metrics_port          0 is any free one
    metrics_address       an IP address; empty is every address of the machine
    verbosity             klog's -v
    uninstall             clear the node, and exit
    show_version, show_help   print that, and exit with 0
    warnings              sentences to log once logging is set up: flags that were given and are not obeyed
    """

    shared_dev_num: int
    allocation_policy: AllocationPolicy
    resource_manager: bool
    monitoring: Monitoring
    by_path: ByPath
    cdi: Cdi
    cdi_file: Path
    prefix: Path
    allow_ids: frozenset[str]
    deny_ids: frozenset[str]
    node_name: str
    kubelet_dir: Path
    write_node: WriteNode
    nfd_file: Path
    uninstall: bool
    kube_config: str | None
    metrics_port: int
    metrics_address: str
    verbosity: int
    log_format: Literal["text", "json"]
    show_version: bool
    show_help: bool
    warnings: tuple[str, ...]


def parse_flags(argv: Sequence[str], *, environ: Mapping[str, str] = os.environ, host_name: str | None = None) -> Flags:
    """The arguments after the program's name as Flags. Raises UsageError.

    ``environ`` and ``host_name`` (the machine's) give the default of --node-name.
    """
    values, given = read_go_flags(argv, _TABLE)
    try:
        allow_ids, deny_ids = parse_id_lists(values["allow-ids"], values["deny-ids"])
    except (MalformedPciId, AllowedAndDenied) as error:
        raise UsageError(str(error)) from error
    warnings = ignored_klog_flags(given)
    monitoring = Monitoring.NONE
    if values["enable-monitoring"]:
        monitoring = Monitoring.SPLIT if values["split-monitoring"] else Monitoring.ONE
    elif values["split-monitoring"]:
        warnings.append("ignored: --split-monitoring; it needs --enable-monitoring")
    write_node = values["write-node"]
    if not values["resource-manager"]:
        if "write-node" in given and write_node is not WriteNode.NONE:
            warnings.append(f"ignored: --write-node={write_node}; with --resource-manager=false nothing is written")
        write_node = WriteNode.NONE
    return Flags(
        shared_dev_num=values["shared-dev-num"],
        allocation_policy=values["allocation-policy"],
        resource_manager=values["resource-manager"],
        monitoring=monitoring,
        by_path=values["bypath"],
        cdi=values["cdi"],
        cdi_file=values["cdi-file"],
        prefix=values["prefix"],
        allow_ids=allow_ids,
        deny_ids=deny_ids,
        node_name=values["node-name"] or _own_node_name(environ, host_name or socket.gethostname()),
        kubelet_dir=values["kubelet-dir"],
        write_node=write_node,
        nfd_file=values["nfd-file"],
        uninstall=values["uninstall"],
        kube_config=values["kubeConfig"] or None,
        metrics_port=values["metrics-port"],
        metrics_address=values["metrics-address"],
        verbosity=values["v"],
        log_format=values["log-format"],
        show_version=values["version"],
        show_help=values["help"] or values["h"],
        warnings=tuple(warnings),
    )


def help_text() -> str:
    """What --help prints."""
    return (
        "Usage: gas-plugin [flags]\n\n"
        "Hands each container exactly the Intel GPUs that were chosen for it, and describes them on the node.\n"
        "Flags take one dash or two, and =VALUE or a VALUE of their own: -v=4, --shared-dev-num 10.\n"
        f"{describe_flags(FLAG_GROUPS)}\n\n"
        "Environment: NODE_NAME, GPU_MEMORY_OVERRIDE (bytes of a card whose memory cannot be read),\n"
        "GPU_MEMORY_RESERVED (bytes of each card that pods do not get), GPU_PCI_GROUPING_LEVEL (how many folders of\n"
        "their sysfs paths cards of one PCI group share).\n"
    )


def own_version() -> str:
    """The version of the installed package."""
    return version("gas")


def _own_node_name(environ: Mapping[str, str], host_name: str) -> str:
    """As kubelet names its node: the host's name in lower case, unless told otherwise."""
    name = environ.get("NODE_NAME", "").strip()
    try:
        return object_name(name or host_name.strip().lower())
    except ValueError as wrong:
        source = "environment variable NODE_NAME" if name else "the host's name"
        raise UsageError(f"{source}: expected {wrong}, found {(name or host_name)[:80]!r}; give --node-name") from None
