"""The plugin's parts and their wiring, all of it by hand."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import PurePosixPath

from gas.cluster.connection import ApiServer
from gas.plugin.cdi.cdi_file import cdi_text, write_cdi_file
from gas.plugin.cluster_side import FIRST_LIST, ClusterSide
from gas.plugin.devices.allocation import (
    Allocation,
    Cdi,
    Presentation,
    card_allocation,
    gpus_of,
    monitoring_allocation,
)
from gas.plugin.devices.allocation_policy import AllocationPolicy, preferred_ids
from gas.plugin.devices.device_ids import AllocateRequest, DeviceId, PreferredRequest, short_name
from gas.plugin.devices.device_lists import (
    ListTooLong,
    check_lengths,
    device_lists,
    monitored,
    monitoring_resources,
)
from gas.plugin.discovery.card_source import CardSource, Source, read_all
from gas.plugin.discovery.local_memory import MemoryReader
from gas.plugin.discovery.render_node import Query, memory_regions
from gas.plugin.discovery.scanner import IN_A_THREAD, Scanner, ScanOnce
from gas.plugin.discovery.sysfs import SysfsCards, fake_tree_warning
from gas.plugin.environment import Environment
from gas.plugin.flags import Flags, WriteNode
from gas.plugin.kept_file import KeptFile
from gas.plugin.kubelet.device_server import Allocate, DeviceServer, Outcome, Prefer, PreStart
from gas.plugin.kubelet.plugin_socket import SocketIdentity
from gas.plugin.kubelet.pod_resources import PodResources
from gas.plugin.kubelet.registration import Registration, State
from gas.plugin.limits.dmem import DMEM, Controller
from gas.plugin.metrics import Metrics
from gas.plugin.nfd.nfd_file import feature_text, remove_feature_file, write_feature_file
from gas.plugin.node.renumbering import Renumbering
from gas.plugin.nvml.nvml_cards import FIRST_BESIDE_OTHERS, NvmlCards, NvmlOptions
from gas.plugin.readiness import Readiness
from gas.values.card_facts import Scan
from gas.values.card_records import ANNOTATION
from gas.values.cards import Card
from gas.values.timing import SYSTEM_TIMING, Timing
from gas.vocabularies.combined import Vocabularies
from gas.vocabularies.protocol import DeviceOptions

logger = logging.getLogger(__name__)

CDI_FILE_WITHIN = 1.0
"""Seconds to wait for the first CDI file before devices are offered without it. Runtimes look names up in it."""

_ANOTHER_CARD = "the number means another card than before; no container gets it until the pods that have it have ended"


def card_sources(flags: Flags, environment: Environment, *, query: Query = memory_regions) -> tuple[CardSource, ...]:
    """Return the sources of this node's cards. ``query`` asks a driver how much memory its card has."""
    sources: list[CardSource] = []
    if Source.SYSFS in flags.card_sources:
        memory = MemoryReader(environment.memory_override, environment.memory_reserved, query)
        sources.append(SysfsCards(flags.prefix, allow_ids=flags.allow_ids, deny_ids=flags.deny_ids, memory=memory))
    if Source.NVML in flags.card_sources:
        sources.append(_nvml_cards(flags, environment, is_alone=not sources))
    return tuple(sources)


def _nvml_cards(flags: Flags, environment: Environment, *, is_alone: bool) -> CardSource:
    from gas.plugin.nvml.nvml_library import Nvml  # 5 MB that other nodes need not load

    options = NvmlOptions(
        access=flags.nvidia_access,
        first_number=0 if is_alone else FIRST_BESIDE_OTHERS,
        allow_ids=flags.allow_ids,
        deny_ids=flags.deny_ids,
        memory_override=environment.memory_override,
        memory_reserved=environment.memory_reserved,
    )
    return NvmlCards(flags.prefix, Nvml(), options)


def _refusal_in(failed: BaseException) -> ListTooLong | None:
    """Return the reason why the plugin cannot offer its cards, if it is among the exceptions of a group."""
    if isinstance(failed, BaseExceptionGroup):
        return next(filter(None, map(_refusal_in, failed.exceptions)), None)
    return failed if isinstance(failed, ListTooLong) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """The ways in which a plugin reaches its machine, which a simulation replaces.

    resources     makes the client of kubelet's PodResources
    registration  makes what keeps a resource registered with kubelet
    off_loop      runs the scan of the cards
    """

    resources: Callable[..., PodResources] = PodResources
    registration: Callable[..., Registration] = Registration
    off_loop: ScanOnce = IN_A_THREAD


REAL_MACHINE = Machine()


class Plugin:
    """One node's plugin. Nothing runs before `run`.

    api      None with --resource-manager=false: then no pod is looked up, and kubelet's choice stands
    sources  where the cards of this node are found, see `card_sources`
    controller  of cgroups, for memory limits
    """

    def __init__(
        self,
        api: ApiServer | None,
        flags: Flags,
        environment: Environment,
        metrics: Metrics,
        sources: Sequence[CardSource],
        *,
        controller: Controller = DMEM,
        machine: Machine = REAL_MACHINE,
        timing: Timing = SYSTEM_TIMING,
    ) -> None:
        self._clock = timing.monotonic
        self._flags = flags
        self._sources = sources
        self._renumbering: Renumbering | None = Renumbering() if api is None else None
        self._vocabularies = vocabularies = Vocabularies(flags.vocabularies)
        self._options = DeviceOptions(
            shared_dev_num=flags.shared_dev_num, pci_grouping_level=environment.pci_grouping_level
        )
        self._metrics = metrics
        self._presentation = Presentation(
            host_root=PurePosixPath(flags.prefix.absolute()), by_path=flags.by_path, cdi=flags.cdi
        )
        self._kubelet: SocketIdentity | None = None
        self._resources = machine.resources(
            flags.kubelet_dir / "pod-resources" / "kubelet.sock", vocabularies.resources
        )
        self.scanner = Scanner(
            partial(read_all, sources),
            self._scanned,
            clock=self._clock,
            off_loop=machine.off_loop,
        )
        self.cluster = (
            ClusterSide(
                api,
                flags,
                metrics,
                self._resources,
                vocabularies,
                gpus=lambda: self.scanner.scan.gpus,
                presentation=self._presentation,
                on_pods=self._pods_changed,
                on_links=self._publish,
                controller=controller,
                timing=timing,
            )
            if api is not None
            else None
        )
        self._cdi_file = KeptFile(flags.cdi_file, write_cdi_file) if flags.cdi is not Cdi.NONE else None
        self._nfd_file = KeptFile(flags.nfd_file, write_feature_file) if flags.write_node is WriteNode.NFD else None
        node_writer = self.cluster.node_writer if self.cluster is not None else None
        self._writers = [each for each in (self._cdi_file, self._nfd_file, node_writer) if each is not None]
        servers = [self._card_server(resource) for resource in vocabularies.resources]
        servers += [
            self._monitoring_server(resource) for resource in monitoring_resources(vocabularies, flags.monitoring)
        ]
        self.registrations = {
            server: machine.registration(
                server,
                flags.kubelet_dir / "device-plugins",
                allocatable=self._resources.allocatable,
                on_kubelet=self._kubelet_found,
                on_state=self._registration_changed,
            )
            for server in servers
        }
        self.readiness = Readiness(self.scanner, self.registrations)
        self._show_metrics()

    async def run(self) -> None:
        """Run until cancelled; then remove the sockets and the NFD file. What is written on the node stays.

        Raises ListTooLong if kubelet would refuse a list of devices.
        """
        self._warn_of_fake_tree()
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self.scanner.run())
                for kept in (self._cdi_file, self._nfd_file):
                    if kept is not None:
                        tasks.create_task(kept.run())
                if self.cluster is not None:
                    self.cluster.start(tasks)
                    comparing = tasks.create_task(self._compare_numbers(self.cluster))
                    await asyncio.wait((comparing,), timeout=FIRST_LIST)
                    self._renumbering = self._renumbering or Renumbering()
                    self._publish()
                    await self.cluster.catch_up()
                if self._cdi_file is not None:
                    await self._cdi_file.first_check(CDI_FILE_WITHIN)
                # Registrations end before the rest, so that calls for the pod in the middle are still served.
                async with asyncio.TaskGroup() as serving:
                    for registration in self.registrations.values():
                        serving.create_task(registration.run())
        except BaseExceptionGroup as failed:
            if (refusal := _refusal_in(failed)) is not None:
                raise refusal from None
            raise
        finally:
            await self._resources.close()
            if self._nfd_file is not None:
                await self._nfd_file.end(remove_feature_file)

    @property
    def withheld(self) -> frozenset[Card]:
        """The cards that no container gets until the pods that had another card of that number have ended."""
        return frozenset(self._renumbering.withheld if self._renumbering is not None else ())

    def _scanned(self, scan: Scan) -> None:
        """Report the cards, which have changed, and publish them."""
        if self._cdi_file is not None:
            self._cdi_file.want(cdi_text(scan.gpus, self._presentation))
        logger.info(
            "this node has %d card(s)",
            len(scan.gpus),
            extra={
                "cards": ",".join(str(gpu.card) for gpu in scan.gpus),
                "unhealthy": ",".join(str(gpu.card) for gpu in scan.gpus if not gpu.healthy),
                "memory": ",".join(f"{gpu.card}:{gpu.memory_source}" for gpu in scan.gpus),
            },
        )
        self._report_unknown_memory(scan)
        self._publish()

    async def _compare_numbers(self, cluster: ClusterSide) -> None:
        """Compare the cards with what the node said about them before, once that and its pods are known."""
        await cluster.first_lists()
        self._renumbering = Renumbering(cluster.recorded_cards())
        self._publish()

    def _pods_changed(self) -> None:
        """Publish cards again that were withheld for pods that have ended now."""
        if self.withheld:
            self._publish()

    def _publish(self) -> None:
        """Show the cards to kubelet, on the node and in the NFD file, those as unhealthy that are withheld.

        Raises ListTooLong, which ends the plugin, if kubelet would refuse a list.

        The node is described once its pods are known, as far as they can be; kubelet asks for devices later still.
        """
        if not self.scanner.finished:
            return
        gpus = self.scanner.scan.gpus
        if self._renumbering is not None:
            before = self._renumbering.withheld
            gpus = self._renumbering.update(gpus, self.cluster.card_users() if self.cluster is not None else {})
            self._report_withheld(before, self._renumbering.withheld)
        lists = device_lists(
            gpus,
            self._vocabularies,
            self._options,
            self._flags.monitoring,
            topology_hints=self._flags.topology_hints,
        )
        check_lengths(lists, self._vocabularies)
        for server in self.registrations:
            server.show(lists.get(server.resource, ()))
        if self._renumbering is None:
            return
        writer = self.cluster.node_writer if self.cluster is not None else None
        if writer is not None:
            gpus = tuple(
                replace(gpu, links=tuple(sorted({*gpu.links, *writer.links.get(gpu.card, ())}))) for gpu in gpus
            )
        description = self._vocabularies.describe(gpus, self._options)
        if writer is not None:
            writer.want(description)
        if self._nfd_file is not None:
            self._nfd_file.want(feature_text(description.labels, description.resources))
            if any(name != ANNOTATION for name in description.annotations):
                logger.warning(
                    "the cards of this node differ, which an NFD feature file cannot express: the extender will count "
                    "each as an even share of their sum; use --write-node=patch on this node"
                )

    def _report_withheld(self, before: Mapping[Card, object], now: Mapping[Card, object]) -> None:
        """Log the cards that begin or end to be withheld, and keep the events of those that are."""
        if begun := sorted(now.keys() - before.keys()):
            logger.warning("%s: %s", ", ".join(map(str, begun)), _ANOTHER_CARD)
        if self.cluster is not None:
            self.cluster.node_events.keep("GPUCardsRenumbered", [f"{card}: {_ANOTHER_CARD}" for card in sorted(now)])
        if ended := sorted(before.keys() - now.keys()):
            logger.info("%s: the pods of before have ended", ", ".join(map(str, ended)))

    def _report_unknown_memory(self, scan: Scan) -> None:
        """Keep the events of the node about cards whose memory is unknown."""
        if self.cluster is None:
            return
        cards: dict[str, list[str]] = {}
        for gpu in scan.gpus:
            if gpu.memory_fault:
                cards.setdefault(gpu.memory_fault, []).append(str(gpu.card))
        self.cluster.node_events.keep(
            "GPUMemoryUnknown", [f"{', '.join(names)}: {fault}" for fault, names in cards.items()]
        )

    def _card_server(self, resource: str) -> DeviceServer:
        """Build the server of a driver's cards. Without the cluster, the policy or kubelet chooses."""
        allocate: Allocate = self._chosen_cards
        prefer: Prefer | None = None if self._flags.allocation_policy is AllocationPolicy.NONE else self._by_policy
        if self.cluster is not None:
            allocate, prefer = self.cluster.allocator.allocate, self.cluster.allocator.prefer
        before_start: PreStart | None = None
        if self.cluster is not None and self.cluster.limits is not None:
            before_start = self.cluster.limits.before_start
        return DeviceServer(
            resource,
            prefer=prefer,
            allocate=allocate,
            fallback=self._chosen_cards,
            before_start=before_start,
            on_reply=partial(self._count_reply, short_name(resource)),
            clock=self._clock,
        )

    def _monitoring_server(self, resource: str) -> DeviceServer:
        return DeviceServer(
            resource,
            allocate=self._all_cards,
            fallback=self._all_cards,
            on_reply=partial(self._count_reply, short_name(resource)),
            clock=self._clock,
        )

    async def _by_policy(self, request: PreferredRequest) -> Sequence[DeviceId]:
        return preferred_ids(self._flags.allocation_policy, request)

    def _chosen_cards(self, request: AllocateRequest) -> Allocation:
        return card_allocation(request.resource, gpus_of(request.ids, self.scanner.scan.gpus), self._presentation)

    def _all_cards(self, request: AllocateRequest) -> Allocation:
        gpus = monitored(self.scanner.scan.gpus, self._vocabularies, self._flags.monitoring).get(request.resource, ())
        return monitoring_allocation(gpus, self._presentation)

    def _count_reply(self, resource: str, method: str, outcome: Outcome, seconds: float) -> None:
        self._metrics.answers.labels(resource, method, outcome.value).inc()
        self._metrics.answer_seconds.labels(method).observe(seconds)

    def _kubelet_found(self, kubelet: SocketIdentity) -> None:
        """Note a restart of kubelet. Every resource's registration calls this; only the first call matters."""
        if kubelet != self._kubelet and self.cluster is not None:
            self.cluster.matcher.kubelet_restarted()
        self._kubelet = kubelet

    def _registration_changed(self) -> None:
        """Stop writing files and the node while another plugin serves every resource that this one has."""
        states = [each.state for each in self.registrations.values() if each.state is not State.NO_CARDS]
        held = bool(states) and all(state is State.STANDING_BACK for state in states)
        for writer in self._writers:
            if held:
                writer.hold()
            else:
                writer.resume()

    def _warn_of_fake_tree(self) -> None:
        if (warning := fake_tree_warning(self._flags.prefix)) is None:
            return
        self._metrics.fake.set(1)
        logger.warning("%s", warning)
        if self.cluster is not None:
            self.cluster.node_events.keep("FakeGPUs", [warning])

    def _show_metrics(self) -> None:
        metrics, scanner = self._metrics, self.scanner
        metrics.ready.set_function(lambda: self.readiness.why_not() is None)
        metrics.scan_problems.set_function(lambda: len(scanner.scan.problems))
        metrics.totals.follow_devices(
            cards=lambda: scanner.scan.gpus,
            scans=lambda: scanner.finished,
            registrations=lambda: {
                short_name(server.resource): registration.registrations
                for server, registration in self.registrations.items()
            },
        )
        for driver in (driver for source in self._sources for driver in source.drivers):
            for state, healthy in (("healthy", True), ("unhealthy", False)):
                metrics.cards.labels(driver, state).set_function(partial(self._count, driver, healthy=healthy))
        for server, registration in self.registrations.items():
            metrics.registered.labels(short_name(server.resource)).set_function(partial(_is_watched, registration))

    def _count(self, driver: str, *, healthy: bool) -> int:
        return sum(gpu.driver == driver and gpu.healthy is healthy for gpu in self.scanner.scan.gpus)


def _is_watched(registration: Registration) -> bool:
    return registration.state is State.WATCHED
