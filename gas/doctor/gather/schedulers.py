"""Every kube-scheduler that can be seen in this machine's files or among the pods, and its configuration."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import msgspec

from gas.cluster.connection import ApiServer
from gas.doctor.commands import INSTALL_TOOLS, command, kubectl
from gas.doctor.gather.cluster import get_object
from gas.doctor.gather.mounts import Mounts
from gas.doctor.host_files import AS_ROOT, HostFiles
from gas.doctor.looked import Unseen, looked
from gas.doctor.objects import ConfigMap, Container, Details, SeenPod
from gas.doctor.programs import Program, containers_with, flag_value
from gas.doctor.scheduler_configuration import (
    NotAConfiguration,
    SchedulerConfiguration,
    parse_scheduler_configuration,
)
from gas.doctor.snapshot import Scheduler
from gas.doctor.yaml_text import NotYaml, NoYamlReader, parse_yaml

MANIFEST = "manifests/kube-scheduler.yaml"
NO_CONFIGURATION = "no --config"


@dataclass(frozen=True, slots=True)
class Found:
    """A scheduler, and where the paths in its configuration lead to."""

    scheduler: Scheduler
    mounts: Mounts


async def find_schedulers(
    api: ApiServer,
    files: HostFiles,
    pods: Sequence[SeenPod],
    *,
    manifest: Path | None,
    configuration: Path | None,
    machine: str | None = None,
) -> list[Found]:
    """The one whose configuration file was named; else that of the manifest on this machine, and those of the pods.

    manifest, configuration  files that were named on the command line
    machine                  the name of this one, by which the manifest's own pod is known
    """
    if configuration is not None:
        found = _parsed(files.read_here(configuration), str(configuration))
        return [
            Found(
                Scheduler(name=str(configuration), file=str(configuration), configuration=found, is_here=True), Mounts()
            )
        ]
    schedulers = []
    here = _of_manifest(files, manifest)
    if here is not None:
        schedulers.append(here)
    own_pods = _own_pods(here, pods, (machine or platform.node()).lower()) if here is not None else ()
    for seen in pods:
        if seen in own_pods:
            continue
        for container in containers_with(seen.details, Program.SCHEDULER):
            is_like_here = here is not None and _is_static(seen) and _is_like(container, here)
            schedulers.append(await _of_pod(api, seen, container, is_like_here=is_like_here))
    return schedulers


def _own_pods(here: Found, pods: Sequence[SeenPod], machine: str) -> list[SeenPod]:
    """What the cluster shows of the manifest that is here: the static pods that are named after this machine.

    Where the node has another name, it is the only static pod with the manifest's command; one of several could be
    another control plane's as well.
    """
    static = [
        (seen, each) for seen in pods if _is_static(seen) for each in containers_with(seen.details, Program.SCHEDULER)
    ]
    named = [seen for seen, _ in static if seen.pod.metadata.name.endswith(f"-{machine}")]
    alike = [seen for seen, container in static if _is_like(container, here)]
    return named or (alike if len(alike) == 1 else [])


def _is_static(seen: SeenPod) -> bool:
    return seen.pod.metadata.annotations is not None and "kubernetes.io/config.mirror" in seen.pod.annotations


def _is_like(container: Container, here: Found) -> bool:
    return _command(container) == _command(here.mounts.container)


def _command(container: Container | None) -> list[str] | None:
    return None if container is None else [*(container.command or ()), *(container.args or ())]


def _of_manifest(files: HostFiles, manifest: Path | None) -> Found | None:
    file = manifest or files.control_plane / MANIFEST
    content = files.read_here(file)
    if isinstance(content, Unseen):
        if manifest is None and _is_absent(file):
            return None
        return Found(Scheduler(name=str(file), file=str(file), configuration=content, is_here=True), Mounts())
    try:
        documents = [each for each in parse_yaml(content) if each is not None]
        pod = msgspec.convert(documents[0] if documents else None, Details)
    except NoYamlReader as error:
        unread = Unseen(str(error), INSTALL_TOOLS)
        return Found(Scheduler(name=str(file), file=str(file), configuration=unread, is_here=True), Mounts())
    except (NotYaml, msgspec.ValidationError) as error:
        damaged = Unseen(
            f"{file} is no manifest of a pod: {error}",
            command("kubectl", "create", "--dry-run=client", "-f", str(file)),
        )
        return Found(Scheduler(name=str(file), file=str(file), configuration=damaged, is_here=True), Mounts())
    containers = containers_with(pod, Program.SCHEDULER)
    if not containers:
        damaged = Unseen(f"{file} holds no kube-scheduler", "gas doctor --manifest=FILE   # that of kube-scheduler")
        return Found(Scheduler(name=str(file), file=str(file), configuration=damaged, is_here=True), Mounts())
    return _of_files(files, str(file), pod, containers[0])


def _is_absent(file: Path) -> bool:
    """A directory into which one may not look is no sign of that."""
    try:
        file.stat()
    except OSError as error:
        return isinstance(error, (FileNotFoundError, NotADirectoryError))
    return False


def _of_files(files: HostFiles, name: str, pod: Details, container: Container) -> Found:
    mounts = Mounts(pod=pod, container=container)
    path = flag_value(container, "config")
    if path is None:
        return Found(Scheduler(name=name, file=NO_CONFIGURATION, configuration=None, is_here=True), mounts)
    on_host = mounts.host_path(path)
    if on_host is None:
        lost = Unseen(
            f"{name} says --config={path}, and no hostPath of it is mounted there",
            "gas-configurator   # writes the manifest's volumes anew",
        )
        return Found(Scheduler(name=name, file=path, configuration=lost, is_here=True), mounts)
    found = _parsed(files.read(on_host), on_host)
    return Found(Scheduler(name=name, file=on_host, configuration=found, is_here=True), mounts)


async def _of_pod(api: ApiServer, seen: SeenPod, container: Container, *, is_like_here: bool) -> Found:
    mounts = Mounts(pod=seen.details, container=container)
    path = flag_value(container, "config")
    if path is None:
        return Found(Scheduler(name=seen.where, file=NO_CONFIGURATION, configuration=None), mounts)
    if (source := mounts.config_map(path)) is not None:
        name, key = source
        return Found(await _of_config_map(api, seen, name, key), mounts)
    node = seen.pod.node_name
    elsewhere = Unseen(f"its configuration {path} is a file of node {node}, which cannot be read from here", AS_ROOT)
    scheduler = Scheduler(name=seen.where, file=path, configuration=elsewhere, is_like_here=is_like_here)
    return Found(scheduler, mounts)


async def _of_config_map(api: ApiServer, seen: SeenPod, name: str, key: str) -> Scheduler:
    namespace = seen.pod.metadata.namespace or "default"
    where = f"ConfigMap {namespace}/{name}, key {key}"
    found: SchedulerConfiguration | Unseen
    config_map = await looked(
        get_object(api, f"/api/v1/namespaces/{quote(namespace, safe='')}/configmaps/{quote(name, safe='')}", ConfigMap)
    )
    if isinstance(config_map, Unseen):
        found = config_map
    elif (text := (config_map.data or {}).get(key)) is None:
        found = Unseen(f"{where}: there is no such key", kubectl("edit", "configmap", name, namespace=namespace))
    else:
        found = _parsed(text.encode(), where)
    return Scheduler(name=seen.where, file=where, configuration=found, config_map=(namespace, name))


def _parsed(content: bytes | Unseen, where: str) -> SchedulerConfiguration | Unseen:
    if isinstance(content, Unseen):
        return content
    try:
        return parse_scheduler_configuration(content)
    except NoYamlReader as error:
        return Unseen(str(error), INSTALL_TOOLS)
    except NotAConfiguration as error:
        return Unseen(f"{where} cannot be understood: {error}", "gas-configurator   # writes one that can")
