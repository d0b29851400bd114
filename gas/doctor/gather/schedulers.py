"""Find every kube-scheduler in this machine's files and among the pods, and read its configuration."""

import platform
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote

import msgspec

from configurator.scheduler_configuration import (
    NotAConfiguration,
    SchedulerConfiguration,
    parse_scheduler_configuration,
)
from configurator.scheduler_container import CONFIG, Mounts, SchedulerFlags
from gas.cluster.connection import ApiServer
from gas.cluster.objects import get_object
from gas.doctor import fix
from gas.doctor.findings import Unseen, probe
from gas.doctor.host_files import AS_ROOT, HostFiles
from gas.doctor.objects import ConfigMap
from gas.doctor.snapshot import SeenScheduler
from gas.objects.stored import DetailedContainer, DetailedPod
from gas.programs import SCHEDULER, containers_with
from gas.values.yaml_text import InvalidYaml, parse_yaml

MANIFEST = "manifests/kube-scheduler.yaml"
NO_CONFIGURATION = "no --config"


async def find_schedulers(
    api: ApiServer,
    files: HostFiles,
    running: Sequence[tuple[DetailedPod, DetailedContainer]],
    *,
    manifest: Path | None,
    configuration: Path | None,
) -> list[SeenScheduler]:
    """Return the scheduler of the named configuration; else that of the manifest here, and those that run in pods."""
    if configuration is not None:
        return [_here(str(configuration), _parsed(files.read_here(configuration), str(configuration)))]
    here = _of_manifest(files, manifest)
    own_pods = [] if here is None else _own_pods(here, running)
    others = [await _of_pod(api, pod, container, here) for pod, container in running if pod not in own_pods]
    return others if here is None else [here, *others]


def _own_pods(here: SeenScheduler, running: Sequence[tuple[DetailedPod, DetailedContainer]]) -> list[DetailedPod]:
    """Return the static pods of the manifest here, which are named after this machine.

    If the node has another name, it is the only static pod with the manifest's command. If there are several, one of
    them may belong to another control-plane node, so none is returned.
    """
    static = [(pod, container) for pod, container in running if pod.is_mirror]
    named = [pod for pod, _ in static if pod.metadata.name.endswith(f"-{platform.node().lower()}")]
    alike = [pod for pod, container in static if _command(container) == here.command]
    return named or (alike if len(alike) == 1 else [])


def _command(container: DetailedContainer) -> tuple[str, ...]:
    return (*(container.command or ()), *(container.args or ()))


def _here(file: str, configuration: SchedulerConfiguration | Unseen) -> SeenScheduler:
    return SeenScheduler(name=file, file=file, configuration=configuration, is_here=True)


def _of_manifest(files: HostFiles, manifest: Path | None) -> SeenScheduler | None:
    file = manifest or files.control_plane / MANIFEST
    content = files.read_here(file)
    if isinstance(content, Unseen):
        return None if manifest is None and _is_absent(file) else _here(str(file), content)
    try:
        documents = [each for each in parse_yaml(content) if each is not None]
        pod = msgspec.convert(documents[0] if documents else None, DetailedPod)
    except (InvalidYaml, msgspec.ValidationError) as error:
        check = fix.command("kubectl", "create", "--dry-run=client", "-f", str(file))
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


def _of_files(files: HostFiles, name: str, pod: DetailedPod, container: DetailedContainer) -> SeenScheduler:
    seen = _without_configuration(name, pod, container)
    path = _configuration_path(seen)
    if path is None or seen.mounts is None:
        return replace(seen, is_here=True)
    on_host = seen.mounts.host_path(path)
    found: SchedulerConfiguration | Unseen
    if on_host is None:
        fix = "gas-configurator   # adds the volumes to the manifest"
        found = Unseen(f"{name} has --config={path}, but mounts no hostPath there", fix)
    else:
        found = _parsed(files.read(on_host), on_host)
    return replace(seen, file=on_host or path, configuration=found, is_here=True)


async def _of_pod(
    api: ApiServer, pod: DetailedPod, container: DetailedContainer, here: SeenScheduler | None
) -> SeenScheduler:
    seen = _without_configuration(f"pod {pod.key}", pod, container)
    path = _configuration_path(seen)
    if path is None or seen.mounts is None:
        return seen
    if (source := seen.mounts.config_map(path)) is not None:
        return await _of_config_map(api, seen, pod.metadata.namespace or "default", *source)
    why = f"its configuration {path} is a file on node {pod.node_name}, which cannot be read from here"
    is_like_here = here is not None and pod.is_mirror and seen.command == here.command
    return replace(seen, file=path, configuration=Unseen(why, AS_ROOT), is_like_here=is_like_here)


def _without_configuration(name: str, pod: DetailedPod, container: DetailedContainer) -> SeenScheduler:
    mounts = Mounts.of(pod.spec.volumes or (), container.volume_mounts or ())
    return SeenScheduler(
        name=name, file=NO_CONFIGURATION, configuration=None, command=_command(container), mounts=mounts
    )


def _configuration_path(scheduler: SeenScheduler) -> str | None:
    return SchedulerFlags.read(scheduler.command).values.get(CONFIG)


async def _of_config_map(api: ApiServer, seen: SeenScheduler, namespace: str, name: str, key: str) -> SeenScheduler:
    where = f"ConfigMap {namespace}/{name}, key {key}"
    path = f"/api/v1/namespaces/{quote(namespace, safe='')}/configmaps/{quote(name, safe='')}"
    found: SchedulerConfiguration | Unseen
    config_map = await probe(get_object(api, path, ConfigMap))
    if isinstance(config_map, Unseen):
        found = config_map
    elif config_map is None:
        list_all = fix.kubectl("get", "configmaps", namespace=namespace)
        found = Unseen(f"ConfigMap {namespace}/{name} does not exist", list_all)
    elif (text := (config_map.data or {}).get(key)) is None:
        found = Unseen(f"{where}: the key does not exist", fix.kubectl("edit", "configmap", name, namespace=namespace))
    else:
        found = _parsed(text.encode(), where)
    return replace(seen, file=where, configuration=found, config_map=(namespace, name))


def _parsed(content: bytes | Unseen, where: str) -> SchedulerConfiguration | Unseen:
    if isinstance(content, Unseen):
        return content
    try:
        return parse_scheduler_configuration(content)
    except NotAConfiguration as error:
        return Unseen(f"{where} cannot be read: {error}", "gas-configurator   # writes a valid one")
