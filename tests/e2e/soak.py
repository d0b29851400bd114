"""Let pods come and go for hours on a real control plane while programs fail: ``python -m tests.e2e.soak HOURS``.

See docs/development.md. A table is printed at the end, also after Ctrl-C. The exit code is 1 if a law was broken or a
program grows without end.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import json
import os
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from functools import partial
from heapq import heappop, heappush
from itertools import count
from typing import Any

import aiohttp
import grpc

from sandbox.api.kinds import NODES, PODS
from sandbox.hardware.fake_sysfs import Model, fake_gpus
from sandbox.kubelet.containers import RUN_SECONDS
from simulation import objects
from simulation.chance import Chance
from simulation.observed import LawBroken
from simulation.plan import REPLICAS, Plan
from simulation.plans import make_plan
from tests.e2e.cell import CellProgram
from tests.e2e.cluster import Cluster
from tests.e2e.gpu_node import NEEDED_HERE, GpuNode
from tests.e2e.growth import Outcome, measured, megabytes
from tests.e2e.images import BUSYBOX
from tests.e2e.node_cell import running_node
from tests.e2e.pod_resources import listed_ids
from tests.e2e.pods import PODS as WORKLOADS
from tests.e2e.programs import Program, running
from tests.e2e.release import pinned_version, program_directory
from tests.e2e.replay import LONGEST_PAUSE, PACE, Replay

ROUND = 600.0
"""Seconds. After each round nothing fails and no pod comes until the laws of a quiet cluster hold."""
BETWEEN_PODS, BETWEEN_FAULTS, BETWEEN_SAMPLES = 1.5, 40.0, 60.0
LIVES, ENDS = REPLICAS
"""The replica that lives through the whole run, so that its growth shows, and the one that is killed."""
NODES_WITHOUT_MACHINE = ((0, 1, 2, 3), (0, 1), (0,))
CARDS = fake_gpus(Model(device_id="0x56c0", driver="i915", memory=objects.MEMORY), 2)
EXTENDER_FLAGS = (
    "--vocabularies=intel,aliyun,koordinator,vendor,kubeshare",
    "--enableAllowlist",
    "--enableDenylist",
)
OTHER_NODES = frozenset({"NUMA nodes", "host resources", "plugins"})
"""Features of plans whose pods need other nodes than these."""
PLUGIN_FLAGS = ("--shared-dev-num=10", "--vocabularies=intel,koordinator,kubeshare")


def endless_pods(seed: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the pods of the simulation's plans in which several vocabularies meet, and in whose words each is."""
    for plan in map(make_plan, count(seed * 1_000_000)):
        for step in plan.steps if plan.mixed and OTHER_NODES.isdisjoint(plan.features) else ():
            if step.act == "create_pod":
                name, containers, init, _, *annotations = step.args
                yield "Intel's", objects.pod(name, containers, init, {"annotations": dict(*annotations)})
            elif step.act == "create_share":
                name, thousandths, memory, labels, _ = step.args
                yield "KubeShare's", objects.share(name, thousandths, memory, labels, {})
            elif step.act == "create_in_words":
                name, containers, _ = step.args
                yield "other", objects.pod(name, containers, [], {}, prefix="")


class Soak(Replay):
    """Carry out pods and faults of a seed until the hours are over. The laws read the history in etcd, all of it."""

    def __init__(self, gpu_node: GpuNode, outcome: Outcome, hours: float) -> None:
        plan = Plan(outcome.seed, NODES_WITHOUT_MACHINE, webhooks=True, steps=())
        super().__init__(gpu_node.cluster, plan, *EXTENDER_FLAGS)
        self.outcome = outcome
        self.figures = outcome.figures
        self.figures["revisions of etcd audited"] = 1  # that of an empty store
        self._start, self._seconds = time.monotonic(), hours * 3600
        self._node = gpu_node.node
        self._plugin = gpu_node.plugin.program
        self._chance = Chance(outcome.seed, "soak")
        self._pods = endless_pods(outcome.seed)
        self._ends: list[tuple[float, str]] = []

    def _background(self) -> tuple[Coroutine[Any, Any, None], ...]:
        return self._audit(), self._watch_leaders(), self._keep_scheduler(), self._sample()

    async def _carry_out(self) -> None:
        self._end = self._start + self._seconds
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, setattr, self, "_end", 0.0)
        while time.monotonic() < self._end:
            await self._round()
        self.outcome.hours = self._hours()

    def _hours(self) -> float:
        return (time.monotonic() - self._start) / 3600

    async def _round(self) -> None:
        end, fault = time.monotonic() + ROUND, time.monotonic() + self._chance.delay(BETWEEN_FAULTS)
        while (now := time.monotonic()) < min(end, self._end):
            while self._ends and self._ends[0][0] < now:
                await self._insist(partial(self.delete_pod, heappop(self._ends)[1], at_once=self._chance.happens(0.2)))
            if now > fault:
                await self._fail()
                fault = now + self._chance.delay(BETWEEN_FAULTS)
            await self._create()
            await asyncio.sleep(self._chance.delay(BETWEEN_PODS))
        await self._settle()
        self._cluster.control_plane.compact()  # the laws have seen all of it
        self.figures["rounds"] += 1
        print(f"{self._hours():.2f} h: {dict(self.figures)}", flush=True)

    # Pods and faults

    async def _create(self) -> None:
        words, pod = next(self._pods)
        name, run = f"p{self.figures['pods']}", self._chance.whole(5, 40)
        annotations = {**objects.annotations_of(pod), RUN_SECONDS: str(run)}
        pod["metadata"] |= {"name": name, "annotations": annotations}
        pod["spec"] |= {**NEEDED_HERE, "terminationGracePeriodSeconds": 1, "restartPolicy": "Never"}
        for each in (*pod["spec"].get("initContainers", ()), *pod["spec"]["containers"]):
            seconds = "1" if each["name"].startswith("init") else str(run)
            each |= {"image": BUSYBOX.name, "imagePullPolicy": "Never", "command": ["/bin/sleep", seconds]}
        await self._insist(partial(self._api.post, WORKLOADS, pod))
        self.figures.update(("pods", f"pods in {words} words"))
        left = self._chance.between(1.0, run) if self._chance.happens(0.4) else run + 30.0
        heappush(self._ends, (time.monotonic() + left, name))

    async def _fail(self) -> None:
        away = self._chance.between(1.0, 12.0)
        acts: tuple[tuple[float, Callable[[], Awaitable[None]]], ...] = (
            (4, partial(self.kill_extender, ENDS, away / PACE)),
            (2, partial(self.stop_extender, ENDS, away / PACE)),
            (4, partial(self.pause_extender, LIVES, LONGEST_PAUSE)),
            (1, partial(self.pause_extender, LIVES, away)),
            (1, partial(self.pause_extender, ENDS, LONGEST_PAUSE)),
            (1, partial(self.api_outage, away / PACE)),
            (1, partial(self.restart_scheduler, away / PACE)),
            (1, partial(self.restart_kubelet, "n0", away / PACE)),
            (1, self._restart_real_kubelet),
        )
        await self._insist(self._chance.weighted(acts))

    async def _restart_real_kubelet(self) -> None:
        self._node.kubelet.program.kill()
        self._node.kubelet.program.start()
        self.figures["restarts of the real kubelet"] += 1

    # The audit

    def node_becomes(self, node: dict[str, Any]) -> None:
        """Do nothing: the history says it, in order."""

    async def _audit(self) -> None:
        """Read what etcd stores, from its first revision on, and check the laws. Raises LawBroken."""
        request = {"create_request": {"key": "AA==", "range_end": "AA==", "start_revision": "1"}}  # of all keys
        url = f"http://127.0.0.1:{self._cluster.control_plane.etcd_port}/v3/watch"
        limits: dict[str, Any] = {"timeout": aiohttp.ClientTimeout(total=None), "read_bufsize": 2**26}
        async with aiohttp.ClientSession() as session, session.post(url, json=request, **limits) as response:
            async for line in response.content:
                for event in json.loads(line)["result"].get("events", ()):
                    self.see_event(event)
        raise LawBroken("whole history", "etcd has ended the watch")

    def see_event(self, event: dict[str, Any]) -> None:
        """Take in one change of a key, in etcd's words. Raises LawBroken."""
        revision = int(event["kv"]["mod_revision"])
        if revision not in ((audited := self.figures["revisions of etcd audited"]), audited + 1):
            raise LawBroken("whole history", f"revision {revision} comes after {audited}")
        self.figures["revisions of etcd audited"] = revision
        path = base64.b64decode(event["kv"]["key"]).decode(errors="replace")
        resource, _, key = path.removeprefix("/registry/").partition("/")
        if resource not in ("pods", "minions") and key != "default/gas-extender":
            return
        value = json.loads(base64.b64decode(event["kv"]["value"])) if event.get("type") != "DELETE" else None
        try:
            if resource == "pods":
                self._see_pod(key, value)
            elif resource == "leases" and value is not None:
                self.figures["changes of the leader"] = value["spec"].get("leaseTransitions", 0)
            elif value is not None:
                self._storage.put(NODES.plural, key, value)
                self._laws.check_writes("extender")
        except LawBroken as broken:
            raise LawBroken(broken.law, f"{broken.sentence}; revision {revision} of etcd") from None
        self._storage.compact()

    def _see_pod(self, key: str, after: dict[str, Any] | None) -> None:
        stored = self._storage.get(PODS.plural, key)
        before: Any = stored.value if stored is not None else None
        self.seen(before, after)
        if after is None and before is not None:
            self._laws.observed.created.pop(before["metadata"]["uid"], None)
        elif after is not None and objects.is_over(after) and not objects.is_over(before or {}):
            is_deleted, status = "deletionTimestamp" in after["metadata"], after["status"]
            end = "deleted" if is_deleted else f"{status['phase'].lower()} {status.get('reason', '')}"
            self.figures[f"pods {end}".strip()] += 1
            self.figures["pods with a receipt"] += objects.RECEIPT in objects.annotations_of(after)
            self.figures["pods of the real node"] += after["spec"].get("nodeName") == self._node.name

    async def _check_quiet(self) -> None:
        await super()._check_quiet()
        try:
            listed = await asyncio.to_thread(listed_ids, self._node.pod_resources)
        except grpc.RpcError as error:
            raise LawBroken("progress", f"kubelet does not list devices: {error}") from error
        given: dict[str, dict[str, set[str]]] = {}
        pods = {pod.name: pod.uid for pod in self._laws.observed.on(self._node.name)}
        for (pod, container), ids in listed.items():
            if pod in pods and ids:
                given.setdefault(pods[pod], {})[container] = {
                    each.partition("-")[0] for of in ids.values() for each in of
                }
        self._laws.check_devices(given, {})
        self.figures["pods whose cards kubelet listed"] += len(given)

    async def _sample(self) -> None:
        """Measure the programs. Raises LawBroken if one has logged an exception, or has ended by itself."""
        programs = {LIVES: self._extenders[LIVES].program, "plugin": self._plugin}
        places = (self._cluster.control_plane.directory, self._node.directory)
        while True:
            self.outcome.hours = self._hours()
            for program in (*programs.values(), self._node.kubelet.program):
                if not program.is_running:
                    raise LawBroken("no end by itself", f"{program.name} has ended")
            pids = {name: _pid(program) for name, program in programs.items()}
            for name, pid in {**pids, "this audit": os.getpid()}.items():
                self.outcome.samples[name].append((self.outcome.hours, measured(pid)))
            for program in (self._plugin, *(each.program for each in self._extenders.values())):
                text = program.log.read_bytes()
                self.outcome.log_bytes[program.name] = len(text)
                if b"Traceback (most recent call last)" in text:
                    raise LawBroken("no exception at the top", program.log_tail(60))
            used = await asyncio.to_thread(megabytes, *places)
            self.figures["MB on disk at most"] = max(self.figures["MB on disk at most"], used)
            await asyncio.sleep(BETWEEN_SAMPLES)


def _pid(program: Program) -> int:
    return program.inner_pid if isinstance(program, CellProgram) else program.pid


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.e2e.soak", allow_abbrev=False)
    parser.add_argument("hours", type=float, nargs="?", default=1.0, help="1 by default; a part of one is possible")
    parser.add_argument("--seed", type=int, default=1, help="of pods and faults; 1 by default")
    arguments = parser.parse_args(argv)
    if not 0 < arguments.hours < float("inf"):
        parser.error(f"hours: expected a number above 0, found {arguments.hours}")
    outcome, binaries = Outcome(arguments.seed, pinned_version()), program_directory()
    with running(Cluster, binaries) as cluster:
        # The audit reads JSON, and all of the history.
        cluster.control_plane.restart_api_server(
            "--storage-media-type=application/json", "--etcd-compaction-interval=0"
        )
        with running_node(binaries, cluster.api) as node:
            gpu_node = GpuNode(cluster, node)
            gpu_node.start_plugin(CARDS, *PLUGIN_FLAGS)
            try:
                Soak(gpu_node, outcome, arguments.hours).run()
            except LawBroken as broken:
                outcome.broken = str(broken)
                for program in (*cluster.programs, *node.programs):
                    sys.stderr.write(program.log_tail() + "\n")
            finally:
                print(outcome.table(), flush=True)
    return outcome.exit_code


if __name__ == "__main__":
    sys.exit(main())
