"""Planted faults: single changes to the product that the simulation must find, kept as data.

A fault replaces one piece of text in one module. It is planted in a fresh process, before the module is imported, so
that nothing of it can stay behind.
"""

from __future__ import annotations

import difflib
import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, ModuleType

from gas.values.errors import GasError

ROOT = Path(__file__).parents[1]


class UnknownFault(GasError):
    """There is no planted fault of this name."""

    def __init__(self, name: str) -> None:
        near = difflib.get_close_matches(name, [each.name for each in PLANTED], 3, 0.5)
        rather = f"did you mean {' or '.join(map(repr, near))}" if near else "docs/simulation.md lists the names"
        super().__init__(f"no planted fault has the name {name!r}; {rather}")


class CannotPlant(GasError):
    """A fault does not fit the product any more."""

    def __init__(self, name: str, problem: str) -> None:
        super().__init__(f"planted fault {name!r}: {problem}")


@dataclass(frozen=True, slots=True)
class PlantedFault:
    """One change.

    name    of the fault
    module  that is changed
    before  the text that is replaced, which occurs exactly once
    after   the text in its place
    within  number of seeds in which it must be found
    """

    name: str
    module: str
    before: str
    after: str
    within: int

    @property
    def path(self) -> Path:
        """The file of the module."""
        return ROOT / f"{self.module.replace('.', '/')}.py"

    def changed(self) -> str:
        """Return the text of the module with the fault. Raises CannotPlant."""
        text = self.path.read_text()
        if (found := text.count(self.before)) != 1:
            raise CannotPlant(
                self.name,
                f"{self.module} has the text that it replaces {found} times, expected 1. "
                "Change the fault in simulation/planted.py so that it fits the module",
            )
        return text.replace(self.before, self.after)


class _Loader(importlib.machinery.SourceFileLoader):
    def __init__(self, fault: PlantedFault) -> None:
        super().__init__(fault.module, str(fault.path))
        self._fault = fault

    def get_code(self, fullname: str) -> CodeType:
        return compile(self._fault.changed(), str(self._fault.path), "exec")


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(self, fault: PlantedFault) -> None:
        self._fault = fault

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != self._fault.module:
            return None
        return importlib.util.spec_from_loader(fullname, _Loader(self._fault))


def planted_fault(name: str) -> PlantedFault:
    """Return the fault of a name. Raises UnknownFault."""
    fault = next((each for each in PLANTED if each.name == name), None)
    if fault is None:
        raise UnknownFault(name)
    return fault


def plant(fault: PlantedFault) -> None:
    """Plant a fault in this process. Raises RuntimeError if its module has been imported already, and CannotPlant."""
    fault.changed()
    if fault.module in sys.modules:
        raise RuntimeError(f"{fault.module} has been imported already, so nothing can be planted in it")
    sys.meta_path.insert(0, _Finder(fault))


PLANTED: tuple[PlantedFault, ...] = (
    PlantedFault(
        "book in filter",
        "gas.extender.filter",
        "            self._pending_binds.passed(args.pod.uid)\n",
        "            self._pending_binds.passed(args.pod.uid)\n"
        "            from gas.extender.wire import BindingArgs as B\n"
        "            pod = args.pod\n"
        "            names = B(pod.metadata.name, pod.metadata.namespace or '', pod.uid, decision.passing[0])\n"
        "            import contextlib\n"
        "            with contextlib.suppress(Exception):\n"
        "                self._decider.reserve(names, pod, now=0.0)\n",
        30,
    ),
    PlantedFault(
        "no UID in the Binding",
        "gas.cluster.objects",
        '"namespace": namespace, "uid": uid,',
        '"namespace": namespace,',
        90,
    ),
    PlantedFault(
        "cards released when a pod is deleted, before it has ended",
        "gas.extender.pods",
        "        elif pod.is_over:\n            self._forget(pod.uid)",
        "        elif pod.is_over or pod.metadata.deletion_timestamp:\n            self._forget(pod.uid)",
        30,
    ),
    PlantedFault(
        "a lost 410",
        "gas.cluster.watch",
        "                if error.status not in (401, 429):\n                    self._version = None",
        "                if error.status not in (401, 410, 429):\n                    self._version = None",
        30,
    ),
    PlantedFault(
        "settled at the first read",
        "gas.extender.bind",
        "                if seen_waiting or pod is None or pod.uid != uid or pod.is_over:\n",
        "                if True:\n",
        190,
    ),
    PlantedFault(
        "a Binding without a response counts as failed",
        "gas.extender.bind",
        "        except OutcomeUnknown:\n            self._start_settling(args.pod_uid, args.pod_namespace, args.pod_name)\n",
        "        except OutcomeUnknown:\n            self._decider.cancel(args.pod_uid)\n",
        130,
    ),
    PlantedFault(
        "a Binding that is given up counts as failed",
        "gas.extender.bind",
        "        except TimeoutError:\n            self._start_settling(args.pod_uid, args.pod_namespace, args.pod_name)\n",
        "        except TimeoutError:\n            self._decider.cancel(args.pod_uid)\n",
        60,
    ),
    PlantedFault(
        "two leaders for a second",
        "gas.cluster.lease",
        "self._clock() - self._renewed < self._deadline",
        "self._clock() - self._renewed < self._duration + 1.0",
        600,
    ),
    PlantedFault(
        "a Lease that expires too early",
        "gas.cluster.lease",
        ">= (lease.spec.lease_duration_seconds or self._duration)",
        ">= 7.0",
        30,
    ),
    PlantedFault(
        "a new leader that does not catch up",
        "gas.extender.leadership.leadership",
        "        await self._catch_up_with_others()\n        self._has_caught_up = True",
        "        self._has_caught_up = True",
        30,
    ),
    PlantedFault(
        "a leader that does not give its writes up",
        "gas.extender.assembly",
        "write_timeout=LEADERS_WRITE_TIMEOUT if election.leader_elect else None",
        "write_timeout=None",
        320,
    ),
    PlantedFault(
        "pods that are missing in a list are kept",
        "gas.extender.pods",
        "        for uid in [uid for uid in (*self.waiting, *self._bound) if uid not in there]:\n            self._forget(uid)\n",
        "",
        40,
    ),
    PlantedFault(
        "a deletion taken for a change",
        "gas.cluster.watch",
        'self._handler.deleted if event.type == "DELETED" else self._handler.changed',
        "self._handler.changed",
        30,
    ),
    PlantedFault(
        "bookings of ended pods are kept",
        "gas.extender.pods",
        "        elif pod.is_over:\n            self._forget(pod.uid)",
        "        elif pod.is_over:\n            pass",
        30,
    ),
    PlantedFault(
        "half of what is booked counts as free",
        "gas.placement.free_capacity",
        "            row = [have - booked.get(name, 0) if",
        "            row = [have - booked.get(name, 0) // 2 if",
        30,
    ),
    PlantedFault(
        "the verdict of a node is not forgotten when it changes",
        "gas.extender.verdicts",
        "        self.states.forget(node)\n",
        "",
        30,
    ),
    PlantedFault(
        "refused pods are not requeued",
        "gas.extender.requeuing.requeuer",
        "        return refused or self._decider.filtering > 0 or not self._found_waiting.isdisjoint(waiting)",
        "        return False",
        30,
    ),
    PlantedFault(
        "a new leader requeues nothing",
        "gas.extender.requeuing.requeuer",
        "        self._freed.add(*(name for name, _ in self._decider.nodes))",
        "        pass",
        70,
    ),
    PlantedFault(
        "a reviewed Binding that does not demand the pod's version",
        "gas.extender.binding_reviews.bindings",
        '            version=pod.metadata.resource_version or "",\n',
        '            version="",\n',
        130,
    ),
    PlantedFault(
        "cards of a review taken back without changing the pod's version",
        "gas.extender.binding_reviews.bindings",
        '        if (pod.metadata.resource_version or "") in review.versions and clock - review.since < LATEST_WRITE:',
        "        if False:",
        130,
    ),
    PlantedFault(
        "reviews of the previous leader are not ended",
        "gas.extender.leadership.catching_up",
        "        if self._change_version is not None:\n            await self._end_reviews",
        "        if False:\n            await self._end_reviews",
        330,
    ),
    PlantedFault(
        "a pod bound elsewhere by others keeps its reservation",
        "gas.extender.pods",
        "        if booked is not None and booked.node != pod.node_name:",
        "        if False:",
        140,
    ),
    PlantedFault(
        "an older read is believed over the watch",
        "gas.extender.pods",
        "        if pod.uid in self._gone:\n            return\n",
        "",
        140,
    ),
    PlantedFault(
        "cards chosen before the wait for the API server",
        "gas.extender.bind",
        "                annotations = self._decider.reserve(args, pod, now=self._timing.seconds())\n",
        "                annotations = self._decider.reserve(args, pod, now=self._timing.seconds())\n"
        "                self._decider.ledger.cancel(args.pod_uid)\n",
        30,
    ),
    PlantedFault(
        "a renewal counts from its response",
        "gas.cluster.lease",
        "        self._renewed = started\n",
        "        self._renewed = self._clock() + 4.0\n",
        30,
    ),
    PlantedFault(
        "a leader that never stops when it cannot renew",
        "gas.cluster.lease",
        "self._renewed is not None and self._clock() - self._renewed < self._deadline",
        "self._renewed is not None",
        30,
    ),
    PlantedFault(
        "exclusion is left out when needs are compared",
        "gas.placement.company",
        '    exclusion: str = ""\n',
        '    import dataclasses\n    exclusion: str = dataclasses.field(default="", compare=False)\n',
        30,
    ),
    PlantedFault(
        "exclusion matters only to pods that have one",
        "gas.placement.card_rules",
        "            if need.company.exclusion or usage.company\n",
        "            if need.company.exclusion\n",
        30,
    ),
    PlantedFault(
        "affinity with any pod",
        "gas.placement.company",
        "any(other.affinity == self.affinity for other in others)",
        "any(other.affinity for other in others)",
        160,
    ),
    PlantedFault(
        "the name of a card is not booked",
        "gas.extender.decider",
        "        if of_card := names.get(card):\n            return replace(need, named=min(of_card))\n",
        "",
        60,
    ),
    PlantedFault(
        "pods of the same priority are evicted",
        "gas.extender.preemption.preemption",
        "seen.priority >= pod.priority:",
        "seen.priority > pod.priority:",
        40,
    ),
    PlantedFault(
        "all less important pods are evicted",
        "gas.extender.preemption.preemption",
        "must_go=not has_cards or uid in in_the_way,",
        "must_go=True,",
        600,
    ),
    PlantedFault(
        "no receipts",
        "gas.plugin.receipts.receipt_writer",
        "                missing.append((pod, found))\n",
        "                pass\n",
        160,
    ),
    PlantedFault(
        "receipts are not believed",
        "gas.extender.written_cards",
        "    if receipt is not None:\n",
        "    if False and receipt is not None:\n",
        160,
    ),
    PlantedFault(
        "not ready counts as ready",
        "gas.extender.readiness",
        "    if (sentence := why_not()) is not None:\n        raise NotReady(sentence)",
        "    return",
        80,
    ),
    PlantedFault(
        "init containers are not booked",
        "gas.placement.choice",
        "            for name, amount in now.items():\n",
        "            for name, amount in (now if container.role is not Role.INIT else base).items():\n",
        30,
    ),
    PlantedFault(
        "parts of cards are rounded down",
        "gas.vocabularies.intel.need",
        "-(-amount // request.count)",
        "(amount // request.count)",
        80,
    ),
    PlantedFault(
        "tiles of ended pods are kept",
        "gas.ledger.ledger",
        "            for index in indexes:\n                _discount(self.tiles, card, index)\n",
        "            pass\n",
        60,
    ),
    PlantedFault(
        "whole cards are shared",
        "gas.vocabularies.vendor.vocabulary",
        "company=ALONE if wants_cards else Company()",
        "company=Company()",
        120,
    ),
    PlantedFault(
        "Aliyun's pods take no compute",
        "gas.vocabularies.aliyun.vocabulary",
        ", (Ratio(MILLICORES, memory, of=MEMORY_MAX),))",
        ")",
        30,
    ),
    PlantedFault(
        "a percentage of memory is divided twice",
        "gas.vocabularies.koordinator.vocabulary",
        "(Ratio(MEMORY_MAX, share.memory_ratio),)",
        "(Ratio(MEMORY_MAX, share.memory_ratio // share.cards),)",
        120,
    ),
    PlantedFault(
        "Koordinator's annotation names the next card",
        "gas.vocabularies.koordinator.allocated",
        "_Device(int(card), ",
        "_Device(int(card) + 1, ",
        30,
    ),
    PlantedFault(
        "a leader that comes back does not catch up",
        "gas.extender.leadership.leadership",
        "        self._has_caught_up = False\n        self._stop_catching_up()\n        if leads",
        "        self._stop_catching_up()\n        if leads and not self._has_caught_up",
        220,
    ),
    PlantedFault(
        "the devices that were decided are not preferred",
        "gas.plugin.matching.matcher",
        "        ids = ids_for_cards(target.decided.cards, target.demand.per_card, request) if target and target.decided else ()\n",
        "        ids = ()\n",
        240,
    ),
    PlantedFault(
        "anti-affinity is ignored",
        "gas.placement.company",
        "return not self.anti_affinity or all(other.anti_affinity != self.anti_affinity for other in others)",
        "return True",
        60,
    ),
    PlantedFault(
        "a lost race for the Lease counts as won",
        "gas.cluster.lease",
        '            logger.debug("another replica was faster to take the lease")\n            return\n',
        '            logger.debug("another replica was faster to take the lease")\n',
        30,
    ),
    PlantedFault(
        "reservations that vanish from a list are kept",
        "gas.extender.pods",
        "                self._observer.reservation_vanished(uid, booking.pod)\n",
        "                pass\n",
        80,
    ),
    PlantedFault(
        "all pages of a list but the last are forgotten",
        "gas.cluster.listing",
        "            remembered += take(",
        "            remembered = take(",
        90,
    ),
    PlantedFault(
        "the times of decisions go back with the clock",
        "gas.extender.decider",
        "        return max(int(now * NANOSECONDS), latest + 1)\n",
        "        return int(now * NANOSECONDS)\n",
        60,
    ),
    PlantedFault(
        "names of ended pods are kept",
        "gas.ledger.ledger",
        "                _discount(self.names, card, footprint.named)\n",
        "                pass\n",
        390,
    ),
    PlantedFault(
        "shares of cards are rounded down",
        "gas.vocabularies.kubeshare.request",
        "to_integral_value(ROUND_CEILING)",
        'to_integral_value("ROUND_FLOOR")',
        30,
    ),
    PlantedFault(
        "containers get the device nodes of the next card",
        "gas.plugin.devices.allocation",
        "    found = tuple(sorted((gpu for gpu in gpus if gpu.card in wanted), key=lambda gpu: gpu.card))\n",
        "    gpus = sorted(gpus, key=lambda gpu: gpu.card)\n"
        "    following = zip(gpus, [*gpus[1:], *gpus[:1]], strict=True)\n"
        "    found = tuple(other for gpu, other in following if gpu.card in wanted)\n",
        30,
    ),
    PlantedFault(
        "no room is kept for nominated pods",
        "gas.extender.decider",
        "return NOTHING_KEPT if self.preemption is None else self.preemption.nominations.kept_from(pod)",
        "return NOTHING_KEPT",
        150,
    ),
    PlantedFault(
        "a receipt for another pod of that name",
        "gas.cluster.objects",
        '    metadata = {"uid": uid, "annotations": annotations}\n',
        '    metadata = {"annotations": annotations}\n',
        320,
    ),
    PlantedFault(
        "the webhook for new pods states no memory for shares",
        "gas.vocabularies.kubeshare.admission",
        "names.MEMORY: str(share.memory * cards)}",
        'names.MEMORY: "0"}',
        60,
    ),
    PlantedFault(
        "containers of a pod share tiles",
        "gas.placement.tiles",
        "                    held.update(dict.fromkeys(tiles, position))\n",
        "",
        60,
    ),
    PlantedFault(
        "earlier reviews that cannot be ended are left open",
        "gas.extender.leadership.catching_up",
        "                left.append(pod)\n",
        "                pass\n",
        330,
    ),
    PlantedFault(
        "the labels of a card's pods are left out when nodes are compared",
        "gas.ledger.ledger",
        "            if card in company:\n",
        "            if False:\n",
        860,
    ),
    PlantedFault(
        "refused pods that the watch has not shown are not requeued",
        "gas.extender.requeuing.requeuer",
        "(uid in waiting or refusal.time > latest)",
        "uid in waiting",
        220,
    ),
    PlantedFault(
        "nodes with free cards are forgotten when a write fails",
        "gas.extender.requeuing.requeuer",
        "                    self._freed.put_back(freed)\n",
        "                    pass\n",
        60,
    ),
    PlantedFault(
        "a reservation that is taken back requeues nothing",
        "gas.extender.decider",
        "            self._observer.cards_freed(booking.node)\n",
        "            pass\n",
        60,
    ),
    PlantedFault(
        "a replica binds when it leads no more",
        "gas.extender.bind",
        "                check_ready(self._why_not_ready)  # another replica may lead by now\n",
        "",
        370,
    ),
    PlantedFault(
        "silent watches are never noticed",
        "gas.cluster.connection",
        "sock_read=silence)",
        "sock_read=None)",
        200,
    ),
    PlantedFault(
        "a repeated review forgets its version",
        "gas.extender.binding_reviews.bindings",
        "                review.versions.add(version)\n",
        "                pass\n",
        150,
    ),
    PlantedFault(
        "earlier reviews are left open if pods cannot be listed",
        "gas.extender.leadership.catching_up",
        '                logger.warning("cannot list the pods that wait: %s", error)\n',
        "                return\n",
        400,
    ),
    PlantedFault(
        "a Binding of a pod without cards may bind the next one",
        "gas.extender.binding_reviews.reviews",
        "    return ALLOWED if wire.metadata.uid else ReviewResult(",
        "    return ALLOWED if True else ReviewResult(",
        210,
    ),
    PlantedFault(
        "a write that took the API server too long counts as refused",
        "gas.cluster.errors",
        "    kind = OutcomeUnknown if is_write else ApiUnavailable",
        "    kind = ApiUnavailable",
        400,
    ),
    PlantedFault(
        "the rest of a part of a watch is dropped",
        "gas.cluster.watch_events",
        "            self._pieces.append(rest)\n",
        "            pass\n",
        60,
    ),
    PlantedFault(
        "annotations that a pod was created with are not cleared",
        "gas.vocabularies.combined",
        "        return outdated | fresh",
        "        return fresh",
        400,
    ),
    PlantedFault(
        "a booking that is replaced stays in the sums",
        "gas.ledger.ledger",
        "        if booked is not None:\n            self._take(uid)\n        self._put(uid, booking)",
        "        self._put(uid, booking)",
        400,
    ),
    PlantedFault(
        "deleted pods go on waiting",
        "gas.extender.pods",
        "        if self._vocabularies.is_gpu_pod(pod) or self.knows(pod.uid):\n            self._forget(pod.uid)",
        "        if pod.node_name:\n            self._forget(pod.uid)",
        30,
    ),
)
"""All of them."""
