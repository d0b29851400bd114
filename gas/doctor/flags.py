"""The command line of ``gas doctor``, in the spelling of the other programs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from gas.daemon import flag_values
from gas.daemon.go_flags import GoFlag, UsageError, boolean, describe_flags, read_go_flags


def _output(value: str) -> Literal["text", "json"]:
    return flag_values.log_format(value)


FLAG_GROUPS = {
    "Where to look": (
        GoFlag(
            "kubeconfig",
            flag_values.text,
            "",
            "FILE",
            "how to reach the cluster ($KUBECONFIG, else ~/.kube/config; in a pod its service account)",
        ),
        GoFlag("context", flag_values.text, "", "NAME", "of the kubeconfig (its current one)"),
        GoFlag(
            "control-plane",
            flag_values.file,
            Path("/etc/kubernetes"),
            "DIR",
            "what /etc/kubernetes is on the control-plane node, here or mounted (/etc/kubernetes)",
        ),
        GoFlag(
            "manifest",
            flag_values.file,
            None,
            "FILE",
            "kube-scheduler's static pod (manifests/kube-scheduler.yaml in --control-plane)",
        ),
        GoFlag(
            "scheduler-config",
            flag_values.file,
            None,
            "FILE",
            "kube-scheduler's configuration, where it is no static pod (what --config in the manifest says)",
        ),
        GoFlag("node", flag_values.object_name, "", "NAME", "look at this node alone (every node)"),
    ),
    "What to do": (
        GoFlag("no-dry-pod", boolean, False, "", "do not ask the extender about a pod that is not there (false)"),
        GoFlag("timeout", flag_values.duration, 10.0, "TIME", "patience with each thing that does not answer (10s)"),
    ),
    "What to show": (
        GoFlag("o", _output, "text", "FORMAT", "text or json (text)"),
        GoFlag("all", boolean, False, "", "show in the text what is well one by one, too (false)"),
        GoFlag("version", boolean, False, "", "print the version and exit"),
        GoFlag("help", boolean, False, "", "print this text and exit; also -h"),
    ),
}

_TABLE = (*(flag for group in FLAG_GROUPS.values() for flag in group), GoFlag("h", boolean, False, "", ""))


@dataclass(frozen=True, slots=True, kw_only=True)
class Flags:
    """What the command line asks for.

    kubeconfig, context  empty: the usual ones
    node                 empty: every node
    timeout              seconds
    """

    kubeconfig: str = ""
    context: str = ""
    control_plane: Path = Path("/etc/kubernetes")
    manifest: Path | None = None
    scheduler_config: Path | None = None
    node: str = ""
    dry_pod: bool = True
    timeout: float = 10.0
    output: Literal["text", "json"] = "text"
    show_all: bool = False
    show_version: bool = False
    show_help: bool = False


def parse_flags(argv: Sequence[str]) -> Flags:
    """The arguments after ``gas doctor``. Raises UsageError."""
    values, _ = read_go_flags(argv, _TABLE)
    if values["timeout"] <= 0:
        raise UsageError("flag --timeout: expected a time over 0, found '0'")
    if values["manifest"] is not None and values["scheduler-config"] is not None:
        raise UsageError("flags --manifest and --scheduler-config: expected one of them")
    return Flags(
        kubeconfig=values["kubeconfig"],
        context=values["context"],
        control_plane=values["control-plane"],
        manifest=values["manifest"],
        scheduler_config=values["scheduler-config"],
        node=values["node"],
        dry_pod=not values["no-dry-pod"],
        timeout=values["timeout"],
        output=values["o"],
        show_all=values["all"],
        show_version=values["version"],
        show_help=values["help"] or values["h"],
    )


def help_text() -> str:
    """What --help prints."""
    return (
        "Usage: gas doctor [flags]\n\n"
        "Looks at a cluster and says what is missing for GPUs by the card, each with the command that mends it.\n"
        "Changes nothing. Exit code 0: all is well; 1: something is not; 2: something could not be looked at.\n"
        f"{describe_flags(FLAG_GROUPS)}\n"
    )
