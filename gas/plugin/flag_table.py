"""Every flag of ``gas-plugin`` with its default and its line of help."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import TypeVar

from gas.daemon import flag_values
from gas.daemon.go_flags import GoFlag, boolean
from gas.plugin.devices import cdi_file
from gas.plugin.devices.allocation_policy import AllocationPolicy
from gas.plugin.devices.container_answer import ByPath, Cdi
from gas.plugin.node import nfd_file

_Choice = TypeVar("_Choice", bound=StrEnum)


class WriteNode(StrEnum):
    """How the node comes to say what its cards are."""

    PATCH = "patch"  # the plugin writes labels, annotation and resources on its node
    NFD = "nfd"  # it writes a feature file, and Node Feature Discovery writes the node
    NONE = "none"


MOST_IDS = 1000
"""Devices that one card can be. Kubelet takes lists of up to 4 MiB, which is about 127,000 devices of a driver: at
this number those of over a hundred cards. No kubelet runs that many containers on a card."""


def ids_of_a_card(value: str) -> int:
    """How many devices a card is."""
    try:
        number = flag_values.positive(value)
    except ValueError:
        number = 0
    if not 1 <= number <= MOST_IDS:
        raise ValueError(f"a whole number from 1 to {MOST_IDS}")
    return number


def root_directory(value: str) -> Path:
    """What stands before absolute paths; the empty text, Intel's default, is the root itself."""
    return flag_values.file(value or "/")


def one_of(choices: type[_Choice]) -> Callable[[str], _Choice]:
    """The value that the text names; ValueError with all of them."""

    def parse(value: str) -> _Choice:
        try:
            return choices(value)
        except ValueError:
            *most, last = choices
            raise ValueError(f"{', '.join(most)} or {last}") from None

    return parse


FLAG_GROUPS = {
    "Handing out cards": (
        GoFlag(
            "shared-dev-num",
            ids_of_a_card,
            1,
            "N",
            f"how many containers may share one card, up to {MOST_IDS} (1)",
        ),
        GoFlag(
            "allocation-policy",
            one_of(AllocationPolicy),
            AllocationPolicy.NONE,
            "POLICY",
            "which cards a container gets that no annotation names cards for: none (kubelet chooses), balanced (those "
            "with most free places) or packed (those with fewest) (none)",
        ),
        GoFlag(
            "resource-manager",
            boolean,
            True,
            "",
            "hand out the cards that pods' annotations name, write receipts on pods, and describe the cards on the "
            "node; when false the cluster's API is not used at all (true)",
        ),
        GoFlag(
            "enable-monitoring",
            boolean,
            False,
            "",
            "offer gpu.intel.com/monitoring, access to all cards for programs that watch them (false)",
        ),
        GoFlag(
            "split-monitoring",
            boolean,
            False,
            "",
            "with --enable-monitoring: offer i915_monitoring and xe_monitoring in place of monitoring (false)",
        ),
        GoFlag(
            "bypath",
            one_of(ByPath),
            ByPath.SINGLE,
            "MODE",
            "which links of /dev/dri/by-path containers get: single (those of their cards), none or all (single)",
        ),
        GoFlag(
            "cdi",
            one_of(Cdi),
            Cdi.NONE,
            "MODE",
            "name the cards for CDI as well: none, names (kubelet's field for it) or annotations (none)",
        ),
        GoFlag("cdi-file", flag_values.file, cdi_file.DEFAULT_PATH, "FILE", f"with --cdi ({cdi_file.DEFAULT_PATH})"),
    ),
    "Finding cards": (
        GoFlag(
            "prefix",
            root_directory,
            Path("/"),
            "DIR",
            "what stands before /sys and /dev here; containers never see it (/)",
        ),
        GoFlag("allow-ids", flag_values.text, "", "0xhhhh,…", "take only cards with these PCI device ids (all)"),
        GoFlag("deny-ids", flag_values.text, "", "0xhhhh,…", "leave out cards with these PCI device ids (none)"),
    ),
    "The node": (
        GoFlag(
            "node-name",
            flag_values.object_name,
            "",
            "NAME",
            "the node's name in the cluster ($NODE_NAME, else the host's name)",
        ),
        GoFlag(
            "kubelet-dir",
            flag_values.file,
            Path("/var/lib/kubelet"),
            "DIR",
            "kubelet's directory, with device-plugins/ and pod-resources/ in it (/var/lib/kubelet)",
        ),
        GoFlag(
            "write-node",
            one_of(WriteNode),
            WriteNode.PATCH,
            "MODE",
            "how the node comes to say what its cards are: patch (labels, annotation and resources are written on it), "
            "nfd (by a feature file for Node Feature Discovery) or none (patch)",
        ),
        GoFlag(
            "nfd-file",
            flag_values.file,
            nfd_file.DEFAULT_PATH,
            "FILE",
            f"with --write-node=nfd ({nfd_file.DEFAULT_PATH})",
        ),
        GoFlag(
            "uninstall",
            boolean,
            False,
            "",
            "take everything that the plugin has written off the node and exit; for when no plugin runs there any more",
        ),
        GoFlag(
            "kubeConfig",
            flag_values.text,
            "",
            "FILE",
            "how to reach the cluster (the pod's service account, else $KUBECONFIG, else ~/.kube/config)",
        ),
    ),
    "Health and metrics (plain HTTP)": (
        GoFlag("metrics-port", flag_values.port, 9003, "N", "port of /healthz, /readyz and /metrics (9003)"),
        GoFlag("metrics-address", flag_values.address, "", "IP", "where to listen (every address, IPv4 and IPv6)"),
    ),
    "Logs and help": (
        GoFlag(
            "v",
            flag_values.whole,
            0,
            "N",
            "how much is logged: 0 what matters, 2 what each container got, 4 every decision (0)",
        ),
        GoFlag("log-format", flag_values.log_format, "text", "FORMAT", "text or json (text)"),
        GoFlag("version", boolean, False, "", "print the version and exit"),
        GoFlag("help", boolean, False, "", "print this text and exit; also -h"),
    ),
}
