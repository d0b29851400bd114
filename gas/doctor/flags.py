"""The flags of ``gas doctor``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

from gas.daemon import flag_values as values
from gas.daemon.flags import CommandFlags, UsageError, flag, read_flags, switch


def positive_duration(value: str) -> float:
    """Parse a time over 0 into seconds."""
    if (seconds := values.duration(value)) <= 0:
        raise ValueError("a time over 0")
    return seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Flags(CommandFlags):
    """The command line of ``gas doctor``. Empty names select the usual kubeconfig, its context, and every node."""

    program: ClassVar[str] = "gas doctor"
    summary: ClassVar[str] = (
        "Checks a cluster, reports what GPU scheduling still needs, each with the command that fixes it, and changes "
        "nothing. Exit code 0: all checks passed; 1: a check failed; 2: something could not be checked."
    )

    kubeconfig: str = flag(
        "kubeconfig",
        values.text,
        "",
        "FILE",
        "Kubeconfig with which to reach the cluster.",
        group="Where to look",
        unset="$KUBECONFIG, else ~/.kube/config; in a pod its service account",
    )
    context: str = flag(
        "context", values.text, "", "NAME", "Context of the kubeconfig.", unset="the kubeconfig's current context"
    )
    control_plane: Path = flag(
        "control-plane",
        values.directory,
        "/etc/kubernetes",
        "DIR",
        "Where /etc/kubernetes of the control-plane node is found, on this machine or mounted.",
    )
    manifest: Path | None = flag(
        "manifest",
        values.file,
        None,
        "FILE",
        "Static pod manifest of kube-scheduler.",
        unset="manifests/kube-scheduler.yaml in --control-plane",
    )
    scheduler_config: Path | None = flag(
        "scheduler-config",
        values.file,
        None,
        "FILE",
        "Configuration of a kube-scheduler that is not a static pod. Cannot be combined with --manifest.",
        unset="the file that --config in the manifest names",
    )
    node: str = flag("node", values.object_name, "", "NAME", "Check only this node.", unset="every node")

    no_dry_pod: bool = switch(
        "no-dry-pod", "Do not ask the extender about a pod that does not exist.", group="What to do"
    )
    timeout: float = flag(
        "timeout", positive_duration, "10s", "TIME", "How long to wait for each request or file that does not respond."
    )

    output: Literal["text", "json"] = flag(
        "o", values.text_or_json, "text", "FORMAT", "Format of the report: text or json.", group="What to show"
    )
    show_all: bool = switch("all", "Also show each passed check in the text.")

    @property
    def dry_pod(self) -> bool:
        """True if the extender is asked about a pod that does not exist."""
        return not self.no_dry_pod


def parse_flags(argv: Sequence[str]) -> Flags:
    """Parse the arguments after ``gas doctor``. Raises UsageError."""
    flags = read_flags(Flags, argv)
    if flags.manifest is not None and flags.scheduler_config is not None:
        raise UsageError("flags --manifest and --scheduler-config: expected one of them")
    return flags
