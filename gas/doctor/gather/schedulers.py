"""Find every kube-scheduler in this machine's files and among the pods, and read its configuration."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import msgspec

from configurator.scheduler_configuration import (
    InvalidYaml,
    NotAConfiguration,
    SchedulerConfiguration,
    parse_scheduler_configuration,
    parse_yaml,
)
from configurator.scheduler_container import CONFIG, Mounts, SchedulerFlags
from gas.cluster.connection import ApiServer
from gas.cluster.objects import get_object
from gas.doctor.findings import Unseen, command, kubectl, probe
from gas.doctor.host_files import AS_ROOT, HostFiles
from gas.doctor.objects import ConfigMap
from gas.doctor.programs import SCHEDULER, containers_with
from gas.doctor.snapshot import SeenScheduler
from gas.objects.stored import DetailedContainer, DetailedPod

MANIFEST = "manifests/kube-scheduler.yaml"
NO_CONFIGURATION = "no --config"


@dataclass(frozen=True, slots=True)
class Found:
    """A scheduler, and how to find the files that its configuration names.

    mounts   of its container; None if the paths are those of this machine
    command  of its container
    """

    scheduler: SeenScheduler
    mounts: Mounts | None = None
    command: tuple[str, ...] = ()

    def host_path(self, path: str) -> str | None:
        """Return the path on the scheduler's machine; None if it is not in a directory of that machine."""
        return path if self.mounts is None else self.mounts.host_path(path)


async def find_schedulers(
    api: ApiServer,
    files: HostFiles,
    pods: Sequence[DetailedPod],
    *,
    manifest: Path | None,
    configuration: Path | None,
    machine: str | None = None,
) -> list[Found]:
    """Return the scheduler of the named configuration; else that of the manifest here, and those of the pods.

    manifest, configuration  files named on the command line
    machine                  name of this machine, by which the pod of its manifest is recognised
    """
    if configuration is not None:
        found = _parsed(files.read_here(configuration), str(configuration))
        return [_here(str(configuration), found)]
    here = _of_manifest(files, manifest)
    schedulers = [] if here is None else [here]
    own_pods = [] if here is None else _own_pods(here, pods, (machine or platform.node()).lower())
    for pod in pods:
        if pod in own_pods:
            continue
        for container in containers_with(pod, SCHEDULER):
            is_like_here = here is not None and _is_static(pod) and _command(container) == here.command
            schedulers.append(await _of_pod(api, pod, container, is_like_here=is_like_here))
    return schedulers


def _own_pods(here: Found, pods: Sequence[DetailedPod], machine: str) -> list[DetailedPod]:
    """Return the pods that the cluster shows for the manifest here: static pods that are named after this machine.

    If the node has another name, it is the only static pod with the manifest's command. If there are several, one of
    them may belong to another control-plane node, so none is returned.
    """
    static = [(pod, container) for pod in pods if _is_static(pod) for container in containers_with(pod, SCHEDULER)]
    named = [pod for pod, _ in static if pod.metadata.name.endswith(f"-{machine}")]
    alike = [pod for pod, container in static if _command(container) == here.command]
    return named or (alike if len(alike) == 1 else [])


def _is_static(pod: DetailedPod) -> bool:
    return "kubernetes.io/config.mirror" in pod.annotations


def _command(container: DetailedContainer) -> tuple[str, ...]:
    return (*(container.command or ()), *(container.args or ()))


def _here(file: str, configuration: SchedulerConfiguration | Unseen) -> Found:
    return Found(SeenScheduler(name=file, file=file, configuration=configuration, is_here=True))


def _of_manifest(files: HostFiles, manifest: Path | None) -> Found | None:
    file = manifest or files.control_plane / MANIFEST
    content = files.read_here(file)
    if isinstance(content, Unseen):
        return None if manifest is None and _is_absent(file) else _here(str(file), content)
    try:
        documents = [each for each in parse_yaml(content) if each is not None]
        pod = msgspec.convert(documents[0] if documents else None, DetailedPod)
    except (InvalidYaml, msgspec.ValidationError) as error:
        check = command("kubectl", "create", "--dry-run=client", "-f", str(file))
        return _here(str(file), Unseen(f"{file} is not the manifest of a pod: {error}", check))
    containers = containers_with(pod, SCHEDULER)
    if not containers:
        other = "gas doctor --manifest=FILE   # the manifest of kube-scheduler"
        return _here(str(file), Unseen(f"{file} has no container that runs kube-scheduler", other))
    return _of_files(files, str(file), pod, containers[0])


def _is_absent(file: Path) -> bool:
    """Return whether the file does not exist. In a directory that may not be read it may well exist."""
    try:
        file.stat()
    except OSError as error:
        return isinstance(error, (FileNotFoundError, NotADirectoryError))
    return False


def _of_files(files: HostFiles, name: str, pod: DetailedPod, container: DetailedContainer) -> Found:
    words = _command(container)
    mounts = Mounts.of(pod.spec.volumes or (), container.volume_mounts or ())
    path = SchedulerFlags.read(words).values.get(CONFIG)
    configuration: SchedulerConfiguration | Unseen | None
    if path is None:
        file, configuration = NO_CONFIGURATION, None
    elif (on_host := mounts.host_path(path)) is None:
        file = path
        configuration = Unseen(
            f"{name} has --config={path}, but mounts no hostPath there",
            "gas-configurator   # adds the volumes to the manifest",
        )
    else:
        file, configuration = on_host, _parsed(files.read(on_host), on_host)
    return Found(SeenScheduler(name=name, file=file, configuration=configuration, is_here=True), mounts, words)


async def _of_pod(api: ApiServer, pod: DetailedPod, container: DetailedContainer, *, is_like_here: bool) -> Found:
    name, words = f"pod {pod.key}", _command(container)
    mounts = Mounts.of(pod.spec.volumes or (), container.volume_mounts or ())
    path = SchedulerFlags.read(words).values.get(CONFIG)
    if path is None:
        return Found(SeenScheduler(name=name, file=NO_CONFIGURATION, configuration=None), mounts, words)
    if (source := mounts.config_map(path)) is not None:
        return Found(await _of_config_map(api, pod, *source), mounts, words)
    elsewhere = Unseen(
        f"its configuration {path} is a file on node {pod.node_name}, which cannot be read from here", AS_ROOT
    )
    scheduler = SeenScheduler(name=name, file=path, configuration=elsewhere, is_like_here=is_like_here)
    return Found(scheduler, mounts, words)


async def _of_config_map(api: ApiServer, pod: DetailedPod, name: str, key: str) -> SeenScheduler:
    namespace = pod.metadata.namespace or "default"
    where = f"ConfigMap {namespace}/{name}, key {key}"
    path = f"/api/v1/namespaces/{quote(namespace, safe='')}/configmaps/{quote(name, safe='')}"
    found: SchedulerConfiguration | Unseen
    config_map = await probe(get_object(api, path, ConfigMap))
    edit = kubectl("edit", "configmap", name, namespace=namespace)
    if isinstance(config_map, Unseen):
        found = config_map
    elif config_map is None:
        found = Unseen(
            f"ConfigMap {namespace}/{name} does not exist", kubectl("get", "configmaps", namespace=namespace)
        )
    elif (text := (config_map.data or {}).get(key)) is None:
        found = Unseen(f"{where}: the key does not exist", edit)
    else:
        found = _parsed(text.encode(), where)
    return SeenScheduler(name=f"pod {pod.key}", file=where, configuration=found, config_map=(namespace, name))


def _parsed(content: bytes | Unseen, where: str) -> SchedulerConfiguration | Unseen:
    if isinstance(content, Unseen):
        return content
    try:
        return parse_scheduler_configuration(content)
    except NotAConfiguration as error:
        return Unseen(f"{where} cannot be read: {error}", "gas-configurator   # writes a valid one")
