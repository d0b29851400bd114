"""Wire the plugin of one node by hand from its core and the parts that are switched on."""

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from gas.cluster.connection import ApiServer
from gas.plugin.devices.allocation import Allocation, gpus_of, monitoring_allocation
from gas.plugin.devices.device_ids import AllocateRequest, short_name
from gas.plugin.devices.device_lists import monitored, monitoring_resources
from gas.plugin.discovery.card_source import CardProcess, CardRules, CardSource, read_all
from gas.plugin.discovery.scanner import IN_A_THREAD, Scanner, ScanOnce
from gas.plugin.discovery.sysfs import SOURCE, SysfsCards, fake_tree_warning
from gas.plugin.flags import Environment, Flags
from gas.plugin.kubelet.device_server import Allocate, CallTracker, DeviceServer, Outcome
from gas.plugin.kubelet.plugin_socket import FileIdentity
from gas.plugin.kubelet.pod_resources import PodResources
from gas.plugin.kubelet.registration import Phase, Registration
from gas.plugin.metrics import Metrics
from gas.plugin.own_node import OwnNode, WatchedNode
from gas.plugin.part import Core, Part, Sample
from gas.plugin.parts import PARTS
from gas.plugin.publisher import Losses, PluginReadiness, Publisher, log_scan, unknown_memory
from gas.values.card_facts import CardFacts, Scan
from gas.values.timing import SYSTEM_TIMING, Timing
from gas.vocabularies.combined import Vocabularies
from gas.vocabularies.protocol import DeviceOptions

logger = logging.getLogger(__name__)

RECORDED_WITHIN = 1.0  # seconds to wait for the first list of pods before devices are offered without it


def sysfs_cards(flags: Flags, environment: Environment) -> tuple[CardSource, ...]:
    """Return the core's sources of this node's cards."""
    return (SysfsCards(flags.prefix, _card_rules(flags, environment)),) if SOURCE in flags.card_sources else ()


def _card_rules(flags: Flags, environment: Environment) -> CardRules:
    return CardRules(
        allow_ids=flags.allow_ids,
        deny_ids=flags.deny_ids,
        memory_override=environment.memory_override,
        memory_reserved=environment.memory_reserved,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeInterfaces:
    """The plugin's interfaces to its machine, which tests and simulations replace."""

    resources: Callable[..., PodResources] = PodResources
    registration: Callable[..., Registration] = Registration
    off_loop: ScanOnce = IN_A_THREAD  # runs the scan of the cards
    cards: Callable[[Flags, Environment], Sequence[CardSource]] = sysfs_cards  # makes the core's sources of cards
    timing: Timing = SYSTEM_TIMING


class Plugin:
    """The plugin of one node. Nothing runs before `run`."""

    def __init__(
        self,
        # None with --resource-manager=false: then no pod is looked up, and kubelet's choice stands
        api: ApiServer | None,
        flags: Flags,
        environment: Environment,
        metrics: Metrics,
        *,
        parts: Sequence[Part[Any]] = PARTS,  # those that can be switched on
        interfaces: NodeInterfaces | None = None,
    ) -> None:
        interfaces = interfaces or NodeInterfaces()
        self._flags = flags
        self._metrics = metrics
        self._vocabularies = Vocabularies(flags.vocabularies)
        self._calls = CallTracker(interfaces.timing.monotonic)
        self._resources = interfaces.resources(
            flags.kubelet_dir / "pod-resources" / "kubelet.sock", self._vocabularies.resources
        )
        self.node = OwnNode(flags, self._vocabularies, interfaces.timing, self._gpus)
        if api is not None:
            self.node = WatchedNode(
                api,
                flags,
                self._vocabularies,
                metrics,
                interfaces.timing,
                gpus=self._gpus,
                resources=self._resources,
                calls=self._calls,
            )
        core = Core(
            flags=flags,
            presentation=flags.presentation,
            card_rules=_card_rules(flags, environment),
            gpus=self._gpus,
            processes=self._processes,
            pods=self.node.pods,
            events=self.node.events,
        )
        self.hooks = [part.hooks(core) for part in parts if part.runs_with(flags)]
        self.node.environments.additions = [add for hooks in self.hooks for add in hooks.additions]
        of_parts = (source for hooks in self.hooks for source in hooks.sources)
        self._sources = [*interfaces.cards(flags, environment), *of_parts]
        self.scanner = Scanner(
            partial(read_all, self._sources), self._scanned, clock=self._calls.clock, off_loop=interfaces.off_loop
        )
        self._kubelet: FileIdentity | None = None
        self.registrations = {server: self._register(server, interfaces) for server in self._servers()}
        self.readiness = PluginReadiness(self.scanner, self.registrations)
        self.publisher = Publisher(
            self.scanner,
            self.node,
            self._vocabularies,
            flags,
            DeviceOptions(shared_dev_num=flags.shared_dev_num, pci_grouping_level=environment.pci_grouping_level),
            drivers={driver for source in self._sources for driver in source.drivers},
            servers=self.registrations.keys(),
            describe=(self.node.describe, *(hooks.on_description for hooks in self.hooks)),
        )
        self.node.subscribe(
            on_pods=self._pods_changed, on_links=self.publisher.publish, on_recorded=self.publisher.recorded_changed
        )
        self.losses = Losses(self.node.events)
        metrics.read(self._samples)

    async def run(self) -> None:
        """Run until cancelled, then remove the sockets."""
        if (warning := fake_tree_warning(self._flags.prefix)) is not None:
            logger.warning(warning)
            self.node.events.set_states("FakeGPUs", [warning])
        part_tasks = (task for hooks in self.hooks for task in hooks.tasks)
        try:
            async with asyncio.TaskGroup() as tasks:
                for task in (self.scanner.run, *part_tasks, *self.node.tasks):
                    tasks.create_task(task())
                comparing = tasks.create_task(self._compare_numbers())
                await asyncio.wait((comparing,), timeout=RECORDED_WITHIN)
                if not comparing.done():
                    self.publisher.compare_numbers()
                await self.node.catch_up()
                for hooks in self.hooks:
                    await hooks.before_serving()
                # Registrations end before the rest, so that calls for the pod in the middle are still served.
                async with asyncio.TaskGroup() as serving:
                    for registration in self.registrations.values():
                        serving.create_task(registration.run())
        finally:
            await self._resources.close()
            for hooks in self.hooks:
                await hooks.at_end()

    def documents(self, parts: Sequence[Part[Any]] = PARTS) -> dict[str, Callable[[], bytes]]:
        """Return the documents of the plain port by path, with those of parts that are off."""
        while_off = {path: partial(bytes, text) for part in parts for path, text in part.documents.items()}
        return while_off | {path: read for hooks in self.hooks for path, read in hooks.documents.items()}

    def _gpus(self) -> tuple[CardFacts, ...]:
        return self.scanner.scan.gpus

    def _processes(self) -> tuple[Sequence[CardProcess], Sequence[str]]:
        found = [ask() for hooks in self.hooks for ask in hooks.processes]
        return [each for processes, _ in found for each in processes], [each for _, faults in found for each in faults]

    def _scanned(self, scan: Scan) -> None:
        for hooks in self.hooks:
            hooks.on_cards(scan.gpus)
        log_scan(scan)
        self.node.gpu_pods.cards_changed()
        self.node.events.set_states("GPUMemoryUnknown", unknown_memory(scan))
        self.losses.update(scan)
        self.publisher.publish()

    async def _compare_numbers(self) -> None:
        self.publisher.compare_numbers(await self.node.recorded_cards())

    def _pods_changed(self) -> None:
        self.publisher.pods_changed()
        for hooks in self.hooks:
            hooks.on_pods()

    def _servers(self) -> Iterator[DeviceServer]:
        before_start = [each for hooks in self.hooks for each in hooks.before_start]
        for resource in self._vocabularies.resources:
            yield DeviceServer(
                resource,
                prefer=self.node.prefer,
                allocate=partial(self._edited, self.node.allocate),
                fallback=partial(self._edited, self.node.allocate_to_any),
                before_start=before_start,
                on_reply=partial(self._count_reply, short_name(resource)),
                calls=self._calls,
            )
        for resource in monitoring_resources(self._vocabularies, self._flags.monitoring):
            yield DeviceServer(
                resource,
                allocate=self._all_cards,
                fallback=self._all_cards,
                on_reply=partial(self._count_reply, short_name(resource)),
                calls=self._calls,
            )

    def _register(self, server: DeviceServer, interfaces: NodeInterfaces) -> Registration:
        return interfaces.registration(
            server,
            self._flags.device_plugins_dir or self._flags.kubelet_dir / "device-plugins",
            allocatable=self._resources.allocatable,
            on_kubelet=self._kubelet_found,
            on_state=self._registration_changed,
        )

    def _edited(self, allocate: Allocate, request: AllocateRequest) -> Allocation:
        allocation = allocate(request)
        for edit in (edit for hooks in self.hooks for edit in hooks.edits):
            allocation = edit(allocation, request.resource, gpus_of(request.counts, self._gpus()))
        return allocation

    def _all_cards(self, request: AllocateRequest) -> Allocation:
        gpus = monitored(self._gpus(), self._vocabularies, self._flags.monitoring).get(request.resource, ())
        return monitoring_allocation(gpus, self._flags.presentation)

    def _count_reply(self, resource: str, method: str, outcome: Outcome, seconds: float) -> None:
        self._metrics.answers.labels(resource, method, outcome.value).inc()
        self._metrics.answer_seconds.labels(method).observe(seconds)

    def _kubelet_found(self, kubelet: FileIdentity) -> None:
        """Note a restart of kubelet. Every resource's registration calls this; only the first call matters."""
        if kubelet != self._kubelet:
            self.node.pods.kubelet_restarted()
        self._kubelet = kubelet

    def _registration_changed(self) -> None:
        """Report what other plugins serve. Write no files and no node while they serve all that this plugin has."""
        standing_back = [each for each in self.registrations.values() if each.state is Phase.STANDING_BACK]
        self.node.events.set_states("GPUResourceOfAnotherPlugin", [each.trouble or "" for each in standing_back])
        states = [each.state for each in self.registrations.values() if each.state is not Phase.NO_CARDS]
        held = bool(states) and all(state is Phase.STANDING_BACK for state in states)
        for writer in (*self.node.writers, *(writer for hooks in self.hooks for writer in hooks.writers)):
            if held:
                writer.hold()
            else:
                writer.resume()

    def _samples(self) -> Iterator[Sample]:
        scan = self.scanner.scan
        for driver in (driver for source in self._sources for driver in source.drivers):
            for state, healthy in (("healthy", True), ("unhealthy", False)):
                number = sum(gpu.driver == driver and gpu.healthy is healthy for gpu in scan.gpus)
                yield "gas_plugin_cards", (driver, state), number
            yield "gas_plugin_card_losses_total", (driver,), self.losses.lost[driver]
            yield "gas_plugin_card_returns_total", (driver,), self.losses.returned[driver]
        yield "gas_plugin_container_fault", (), bool(scan.container_fault)
        for gpu in scan.gpus:
            yield "gas_plugin_card_memory_bytes", (str(gpu.card), gpu.memory_source), gpu.memory or 0
        yield "gas_plugin_scan_problems", (), len(scan.problems)
        yield "gas_plugin_scans_total", (), self.scanner.finished
        for server, registration in self.registrations.items():
            resource = (short_name(server.resource),)
            yield "gas_plugin_registrations_total", resource, registration.registrations
            yield "gas_plugin_registered", resource, registration.state is Phase.WATCHED
        yield "gas_plugin_fake_gpus", (), fake_tree_warning(self._flags.prefix) is not None
        yield "gas_plugin_ready", (), self.readiness.why_not() is None
        yield from self.node.samples()
        for hooks in self.hooks:
            yield from hooks.samples()
