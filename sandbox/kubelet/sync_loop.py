"""Run the part of kubelet that needs no sockets: admit the pods of a node, give them devices, run and end them."""

import asyncio
from collections.abc import Awaitable, Callable, Collection
from dataclasses import KW_ONLY, dataclass, field
from datetime import datetime
from typing import Any

from sandbox.api.client import API_FAILURES, ApiRequests, Mirror, Object, RefusedByApi, path_of
from sandbox.api.kinds import is_over, system_time, timestamp
from sandbox.kubelet.containers import (
    RESTART_SECONDS,
    RUN_SECONDS,
    STOP_SECONDS,
    Container,
    Containers,
    KubeletPace,
    annotated_seconds,
    container_devices,
)
from sandbox.kubelet.device_manager import DeviceManager, NoDevices, PluginFailed, requested_devices

_REJECTED = "UnexpectedAdmissionError"


@dataclass(eq=False)
class SyncLoop:
    """Run the pods of one node as kubelet does, as far as the API and device plugins can see.

    Cancelling `run` is like killing kubelet: containers keep running, and another SyncLoop with the same devices and
    containers takes over. All admissions, starts and ends wait while a plugin is called.
    """

    client: ApiRequests
    node: str
    devices: DeviceManager
    _: KW_ONLY
    containers: Containers
    pace: KubeletPace
    now: Callable[[], datetime] = system_time
    # pods, and whether they are gone
    _changes: asyncio.Queue[tuple[Object, bool]] = field(init=False, default_factory=asyncio.Queue)
    _turn: asyncio.Lock = field(init=False, default_factory=asyncio.Lock)
    _active: dict[str, Object] = field(init=False, default_factory=dict)
    _pod_tasks: dict[str, asyncio.Task[None]] = field(init=False, default_factory=dict)
    _rejected: set[str] = field(init=False, default_factory=set)
    _ending: set[str] = field(init=False, default_factory=set)
    _restarting: bool = field(init=False, default=True)

    async def run(self) -> None:
        path = f"/api/v1/pods?fieldSelector=spec.nodeName%3D{self.node}"
        async with asyncio.TaskGroup() as self._tasks:
            await asyncio.sleep(self.pace.sources)
            self._tasks.create_task(Mirror(self.client, path, self._pod_changed).run())
            await self._process_changes()

    def active_pods(self) -> Collection[Object]:
        """Return the pods that have been admitted and have not ended. The devices of all others become free."""
        if not self._restarting:
            self.devices.state.keep_only(self._active)
        return self._active.values()

    def _pod_changed(self, before: Object | None, after: Object | None) -> None:
        self._changes.put_nowait((after or before or {}, after is None))

    async def _process_changes(self) -> None:
        while True:
            changes = [await self._changes.get()]
            while not self._changes.empty():
                changes.append(self._changes.get_nowait())
            uids = self.devices.in_any_order({pod["metadata"]["uid"] for pod, _ in changes})
            order = {uid: number for number, uid in enumerate(uids)}
            async with self._turn:
                # Kubelet sorts the pods that it learns of at the same time by their creation, in whole seconds.
                for pod, is_gone in sorted(changes, key=lambda each: _age(each[0], order)):
                    await self._process(pod, is_gone=is_gone)
            self._restarting = False

    async def _process(self, pod: Object, *, is_gone: bool) -> None:
        uid = pod["metadata"]["uid"]
        if is_gone:
            self._remove(uid)
            return
        if uid in self._active:
            self._active[uid] = pod
        elif uid not in self._pod_tasks and uid not in self._rejected and not is_over(pod):
            await self._admit(pod)
        if "deletionTimestamp" not in pod["metadata"] or uid in self._ending:
            return
        if uid in self._pod_tasks:
            self._ending.add(uid)
            self._cancel_task(uid)
            self._pod_tasks[uid] = self._tasks.create_task(self._stop(pod))
        elif is_over(pod):
            self._ending.add(uid)
            self._pod_tasks[uid] = self._tasks.create_task(self._delete(pod))

    def _remove(self, uid: str) -> None:
        """Forget a pod that is gone from the API. Its devices are free at once, even if its containers still stop."""
        seconds = self.pace.stop if self._active.pop(uid, None) is not None else 0
        self.containers.later(seconds, self.containers.forget, uid)
        self._cancel_task(uid)
        self._ending.discard(uid)
        self._rejected.discard(uid)

    def _cancel_task(self, uid: str) -> None:
        if (task := self._pod_tasks.pop(uid, None)) is not None:
            task.cancel()

    async def _admit(self, pod: Object) -> None:
        """Allocate devices and run the pod, or reject it for good."""
        uid = pod["metadata"]["uid"]
        self._active[uid] = pod
        self.active_pods()
        try:
            await self.devices.allocate_pod(
                pod, runs_already=lambda name: self._restarting and self.containers.is_running(uid, name)
            )
        except (NoDevices, PluginFailed) as failure:
            del self._active[uid]
            self._rejected.add(uid)
            self.containers.stop(uid)
            message = f"Pod was rejected: Allocate failed due to {failure}, which is unexpected"
            self._tasks.create_task(self._reject(pod, message))
        else:
            self._pod_tasks[uid] = self._tasks.create_task(self._run(pod))

    async def _reject(self, pod: Object, message: str) -> None:
        now = timestamp(self.now())
        await self._set_status(pod, {"phase": "Failed", "reason": _REJECTED, "message": message, "startTime": now})

    async def _run(self, pod: Object) -> None:
        """Run a pod from the start of its first container to the end of its last."""
        await self.pace.wait(self.pace.start)
        for container in pod["spec"].get("initContainers") or ():
            started = await self._start(pod, container)
            if container.get("restartPolicy") != "Always":
                await started.ended.wait()
        for container in pod["spec"]["containers"]:
            await self._start(pod, container)
        await self._write_status(pod, "Running")
        async with asyncio.TaskGroup() as tasks:
            for container in pod["spec"]["containers"]:
                tasks.create_task(self._run_to_end(pod, container))
        self.containers.stop(pod["metadata"]["uid"])
        await self._tear_down(pod)

    async def _stop(self, pod: Object) -> None:
        seconds = annotated_seconds(pod, STOP_SECONDS, "", self.pace.stop) or 0
        await asyncio.sleep(min(self.pace.spread(seconds), pod["metadata"].get("deletionGracePeriodSeconds", 0)))
        self.containers.stop(pod["metadata"]["uid"])
        await self._tear_down(pod)
        await self.pace.wait(self.pace.removal)
        await self._delete(pod)

    async def _start(self, pod: Object, container: Object, *, again: bool = False) -> Container:
        """Start a container and return its run. A container from before kubelet's restart is left as it is."""
        uid, name = pod["metadata"]["uid"], container["name"]
        if (found := self.containers.get(uid, name)) is not None and not again:
            return found
        allocations = self.devices.state.allocations_of(uid, name)
        for resource, allocation in allocations.items():
            await self._pre_start(resource, allocation.ids)
        devices = container_devices(allocation.response for allocation in allocations.values())
        is_init = container in (pod["spec"].get("initContainers") or ())
        seconds = annotated_seconds(pod, RUN_SECONDS, name, self.pace.init if is_init else self.pace.run)
        if is_init and container.get("restartPolicy") == "Always":
            seconds = None
        if not again and (until_restart := annotated_seconds(pod, RESTART_SECONDS, name, None)) is not None:
            return self.containers.start(uid, name, devices, until_restart, fails=True)
        return self.containers.start(uid, name, devices, seconds)

    async def _pre_start(self, resource: str, ids: frozenset[str]) -> None:
        """Have the plugin prepare the devices, and repeat that if it fails, while the container waits."""
        while True:
            try:
                return await self.devices.plugins.pre_start(resource, ids)
            except PluginFailed:
                await asyncio.sleep(self.pace.retry)

    async def _run_to_end(self, pod: Object, container: Object) -> None:
        """Wait for the end of a container, restarting it by the pod's restart policy."""
        uid, name = pod["metadata"]["uid"], container["name"]
        while (run := self.containers.get(uid, name)) is not None:
            await run.ended.wait()
            if run.succeeded or pod["spec"].get("restartPolicy") == "Never":
                break
            await self._start(pod, container, again=True)
            await self._write_status(pod, "Running")
        await self._write_status(pod, "Running")

    async def _tear_down(self, pod: Object) -> None:
        """Release the devices some time after the last container ended, and write the last phase."""
        uid = pod["metadata"]["uid"]
        await self.pace.wait(self.pace.teardown)
        async with self._turn:
            self._active.pop(uid, None)
        runs = (self.containers.get(uid, container["name"]) for container in pod["spec"]["containers"])
        await self._write_status(pod, "Succeeded" if all(run is None or run.succeeded for run in runs) else "Failed")

    async def _write_status(self, pod: Object, phase: str) -> None:
        await self._set_status(pod, pod_status(pod, self.containers, phase, timestamp(self.now())))

    async def _set_status(self, pod: Object, status: Object) -> None:
        """Write the status of this pod, but not of another pod with the same name."""
        patch = {"metadata": {"uid": pod["metadata"]["uid"]}, "status": status}
        await insist(lambda: self.client.patch(f"{path_of(pod)}/status", patch), self.pace.retry)

    async def _delete(self, pod: Object) -> None:
        """Delete this pod at once, but not another pod with the same name."""
        options = {"gracePeriodSeconds": 0, "preconditions": {"uid": pod["metadata"]["uid"]}}
        await insist(lambda: self.client.delete(path_of(pod), options), self.pace.retry)


async def insist(send: Callable[[], Awaitable[Any]], pause: float) -> None:
    """Send a request until the API server responds, even by a refusal: the object is gone or was replaced."""
    while True:
        try:
            await send()
        except API_FAILURES as failure:
            if isinstance(failure, RefusedByApi) and failure.code < 500 and failure.code != 429:
                return
        else:
            return
        await asyncio.sleep(pause)


def _age(pod: Object, order: dict[str, int]) -> tuple[str, int]:
    return pod["metadata"]["creationTimestamp"], order[pod["metadata"]["uid"]]


def pod_status(pod: Object, containers: Containers, phase: str, now: str) -> Object:
    """Return the status of an admitted pod, with the current states of its containers."""

    def states(specified: list[Object]) -> list[Object]:
        uid = pod["metadata"]["uid"]
        return [_container_status(each, containers.get(uid, each["name"]), now) for each in specified]

    word = "True" if phase == "Running" else "False"
    conditions = {"PodScheduled": "True", "Initialized": word, "ContainersReady": word, "Ready": word}
    return {
        "phase": phase,
        "startTime": pod.get("status", {}).get("startTime") or now,
        "conditions": [
            {"type": name, "status": status, "lastTransitionTime": now} for name, status in conditions.items()
        ],
        "initContainerStatuses": states(pod["spec"].get("initContainers") or []),
        "containerStatuses": states(pod["spec"]["containers"]),
    }


def _container_status(specified: Object, container: Container | None, now: str) -> Object:
    resources = {name: str(amount) for name, amount in requested_devices(specified).items()}
    common = {"name": specified["name"], "image": specified["image"], "imageID": "", "allocatedResources": resources}
    if container is None:
        waiting = {"waiting": {"reason": "PodInitializing"}}
        return {**common, "ready": False, "started": False, "restartCount": 0, "state": waiting}
    state: Object = {"running": {"startedAt": now}}
    if not container.is_running:
        code, reason = (0, "Completed") if container.succeeded else (1, "Error")
        state = {"terminated": {"exitCode": code, "reason": reason, "finishedAt": now, "containerID": container.id}}
    return {
        **common,
        "ready": container.is_running,
        "started": container.is_running,
        "restartCount": container.restarts,
        "containerID": container.id,
        "state": state,
    }
