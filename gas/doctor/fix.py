"""Make the commands that fix what a check has found, to copy into a shell."""

import shlex

from gas.objects.stored import Pod


def command(*words: str, note: str = "") -> str:
    """Return a command to copy into a shell, with every word quoted. ``note`` is a step that no command can do."""
    return shlex.join(words) + (f"   # {note}" if note else "")


def kubectl(*words: str, namespace: str | None = None, note: str = "") -> str:
    return command("kubectl", *((f"--namespace={namespace}",) if namespace else ()), *words, note=note)


def pod(of: Pod, *words: str, note: str = "") -> str:
    """Return a kubectl command about a pod, its name at the end: ``kubectl --namespace=NS delete pod NAME``."""
    return kubectl(*words, of.metadata.name, namespace=of.metadata.namespace or "default", note=note)


def daemonset(of: Pod, *words: str, note: str = "") -> str:
    """Return a kubectl command about the DaemonSet that owns a pod, whose name is the pod's without the last part."""
    name = of.metadata.name.rpartition("-")[0] or of.metadata.name
    return kubectl(*words, "daemonset", name, namespace=of.metadata.namespace or "default", note=note)


def pods_on(node: str, note: str = "") -> str:
    return kubectl("get", "pods", "--all-namespaces", f"--field-selector=spec.nodeName={node}", note=note)
