"""Findings of the doctor, and the commands that mend them."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from enum import StrEnum

from gas.objects.stored import Pod


class Level(StrEnum):
    """How well something is.

    OK       as it should be
    WARNING  works, but not as it should
    PROBLEM  harms GPU pods, or will
    UNKNOWN  could not be checked
    """

    OK = "ok"
    WARNING = "warning"
    PROBLEM = "problem"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One result of a check. Texts from outside are kept as they are: escape them when you show them.

    check     name of the check, for programs: ``scheduler-configuration``
    where     object: a file, ``node gpu-1``, ``pod default/a``
    message   the whole sentence
    expected  empty if the sentence says it
    found     likewise
    mend      commands, or steps in a comment after ``#``; empty only if the level is OK
    """

    check: str
    level: Level
    where: str
    message: str
    expected: str = ""
    found: str = ""
    mend: tuple[str, ...] = ()


def ok(check: str, where: str, message: str) -> Finding:
    """Return a finding without a fault."""
    return Finding(check=check, level=Level.OK, where=where, message=message)


def warning(check: str, where: str, message: str, *mend: str, expected: str = "", found: str = "") -> Finding:
    """Return a finding about something that works, but not as it should."""
    return Finding(
        check=check, level=Level.WARNING, where=where, message=message, expected=expected, found=found, mend=mend
    )


def problem(check: str, where: str, message: str, *mend: str, expected: str = "", found: str = "") -> Finding:
    """Return a finding about something that harms GPU pods."""
    return Finding(
        check=check, level=Level.PROBLEM, where=where, message=message, expected=expected, found=found, mend=mend
    )


def unknown(check: str, where: str, message: str, *mend: str) -> Finding:
    """Return a finding about something that could not be checked."""
    return Finding(check=check, level=Level.UNKNOWN, where=where, message=message, mend=mend)


def command(*words: str, note: str = "") -> str:
    """Return a command to copy into a shell: every word is quoted. ``note`` is a step that no command can do."""
    return shlex.join(words) + (f"   # {note}" if note else "")


def kubectl(*words: str, namespace: str | None = None, note: str = "") -> str:
    """Return a kubectl command."""
    return command("kubectl", *((f"--namespace={namespace}",) if namespace else ()), *words, note=note)


def kubectl_pod(pod: Pod, *words: str, note: str = "") -> str:
    """Return a kubectl command about a pod, its name at the end: ``kubectl --namespace=NS delete pod NAME``."""
    return kubectl(*words, pod.metadata.name, namespace=pod.metadata.namespace or "default", note=note)


def kubectl_daemonset(pod: Pod, *words: str, note: str = "") -> str:
    """Return a kubectl command about the DaemonSet that owns a pod. Its name is the pod's without the last part."""
    name = pod.metadata.name.rpartition("-")[0] or pod.metadata.name
    return kubectl(*words, "daemonset", name, namespace=pod.metadata.namespace or "default", note=note)


def kubectl_pods_on(node: str, note: str = "") -> str:
    """Return the command that lists the pods of a node."""
    return kubectl("get", "pods", "--all-namespaces", f"--field-selector=spec.nodeName={node}", note=note)
