"""Commands that mend something, for copying into a shell: every word from outside is quoted."""

from __future__ import annotations

import shlex

from gas.objects import Pod

INSTALL_TOOLS = "python -m pip install 'gas[tools]'   # or '.[tools]' in a checkout"
"""Brings the libraries that only the administrator's programs need."""


def kubectl(*words: str, namespace: str | None = None, note: str = "") -> str:
    """A kubectl command; ``note`` is the step that no command can do."""
    return command("kubectl", *((f"--namespace={namespace}",) if namespace else ()), *words, note=note)


def of_pod(pod: Pod, *words: str, note: str = "") -> str:
    """A kubectl command about a pod, its name at the end: ``kubectl --namespace=NS delete pod NAME``."""
    return kubectl(*words, pod.metadata.name, namespace=pod.metadata.namespace or "default", note=note)


def of_daemonset(pod: Pod, *words: str, note: str = "") -> str:
    """A kubectl command about the DaemonSet of a pod, as far as the pod's own name tells which it is."""
    name = pod.metadata.name.rpartition("-")[0] or pod.metadata.name
    return kubectl(*words, "daemonset", name, namespace=pod.metadata.namespace or "default", note=note)


def pods_of(node: str, note: str = "") -> str:
    """The command that shows what runs on a node."""
    return kubectl("get", "pods", "--all-namespaces", f"--field-selector=spec.nodeName={node}", note=note)


def command(*words: str, note: str = "") -> str:
    return shlex.join(words) + (f"   # {note}" if note else "")
