"""Decisions about pods: which nodes have room, which cards a pod gets, and what is booked. No I/O; time is passed in.

A filter and a bind take their facts from what the watches brought in before. The callers do the rest: they decode
requests, write to the API server, count and log.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from gas.decision.names import TIMESTAMP
from gas.errors import GasError
from gas.extender.host_resources import HostResources
from gas.extender.nodes import Nodes
from gas.extender.pods import Observer, Pods
from gas.extender.refusals import MOST_NODES, PodRefusal, Refusals
from gas.extender.verdicts import FITS, FITS_PREFERRED, Turns, Verdict, Verdicts
from gas.extender.wire import BindingArgs, FilterArgs
from gas.ledger import Ledger
from gas.objects import Pod
from gas.placement.choice import footprint
from gas.placement.detail import card_details
from gas.placement.need import PodNeed
from gas.placement.place import DEFAULT_STEP_LIMIT
from gas.placement.refusal import PreferredElsewhere, Refusal, UnknownNode, UnreadableNeed
from gas.vocabulary import BadNeed, NeedOptions, NodeFacts, Vocabularies

NANOSECONDS = 10**9

LATEST_MOMENT = 2**63 - 1
"""Nanoseconds since the epoch, in the year 2262. A later timestamp on a pod was not written by an extender: it does not
fit the 64 bits in which programs keep such a time."""


class CannotBind(GasError):
    """The pod is not bound and nothing was changed; the sentence goes into the response's ``Error``.

    refusal  why placement found no cards, None if that is not the reason
    """

    def __init__(self, sentence: str, refusal: Refusal | None = None) -> None:
        super().__init__(sentence)
        self.refusal = refusal


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The administrator's choices that decisions depend on.

    vocabularies  in which pods, nodes and annotations are read and written
    need          what pods may ask for
    step_limit    most steps of one search for cards
    count_hosts   whether free CPU, memory and pod slots of nodes are counted as well
    """

    vocabularies: Vocabularies
    need: NeedOptions = field(default_factory=NeedOptions)
    step_limit: int = DEFAULT_STEP_LIMIT
    count_hosts: bool = False


@dataclass(frozen=True, slots=True)
class FilterDecision:
    """The result of a filter.

    passing    names of the nodes that pass, in the order in which they were asked about
    failed     the other nodes, with the reason
    gets_cards whether a bind of the pod will book cards
    refusals   how many nodes were refused, by kind of refusal
    refusal    what is remembered of the pod if no node passes, else None
    """

    passing: Sequence[str]
    failed: Mapping[str, str] = field(default_factory=dict)
    gets_cards: bool = False
    refusals: Mapping[str, int] = field(default_factory=dict)
    refusal: PodRefusal | None = None


class Decider:
    """The decisions, and the facts that they are made from.

    Watches feed `nodes`, `pods` and `hosts`. What follows from that for others goes to the observer.

    hosts  None unless ``count_hosts`` is chosen
    clock  returns seconds, for the time that one filter may take
    """

    def __init__(
        self,
        options: Options,
        observer: Observer | None = None,
        *,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._options = options
        self._vocabularies = options.vocabularies
        self._observer = observer or Observer()
        self._last_moment: dict[str, int] = {}
        self.refusals = Refusals()
        self.ledger = Ledger(on_change=self._changed)
        self.nodes = Nodes(options.vocabularies, on_change=self._node_changed)
        self.pods = Pods(
            self.ledger,
            options.vocabularies,
            facts=self.nodes.facts,
            observer=self._observer,
            on_gone=self.refusals.drop,
        )
        self.hosts = HostResources() if options.count_hosts else None
        self.verdicts = Verdicts(self.nodes, self.ledger, step_limit=options.step_limit, clock=clock)

    def filter(self, args: FilterArgs, *, now: float) -> Turns[FilterDecision]:
        """Decide which of the named nodes have room for a pod, card by card. Books nothing.

        now  seconds since the epoch
        """
        names = args.node_names or [] if args.nodes is None else [sent.node.name for sent in args.nodes]
        try:
            need = self._vocabularies.need(args.pod, self._options.need)
        except BadNeed as bad:
            return self._refuse_everywhere(args.pod, names, str(bad), now)
        if not need.wants_cards:
            return FilterDecision(names)
        if args.nodes is None:
            verdicts = yield from self.verdicts.of(need, names)
            facts: Callable[[str], NodeFacts | None] = self.nodes.facts
        else:
            # Believed as sent: an autoscaler asks about nodes that do not exist yet.
            sent = self.nodes.as_sent(each.node for each in args.nodes)
            verdicts = yield from self.verdicts.as_sent(need, sent)
            names = list(sent)
            facts = sent.get
        different = set(verdicts)
        if different == {FITS}:
            return FilterDecision(names, gets_cards=True)
        by_name = dict(zip(names, verdicts, strict=True))
        failed = {name: verdict.sentence for name, verdict in by_name.items() if verdict.refusal is not None}
        refusals = _kinds(verdicts) if failed else {}
        if len(failed) == len(by_name):
            refusal = self._pod_refusal(args.pod, need, by_name, facts, now)
            self.refusals.keep(args.pod.uid, refusal)
            return FilterDecision([], failed, refusals=refusals, refusal=refusal)
        if FITS_PREFERRED not in different:
            passing = [name for name, verdict in by_name.items() if verdict.refusal is None]
        else:
            passing = [name for name, verdict in by_name.items() if verdict.preferred]
            elsewhere = str(PreferredElsewhere())
            failed.update((name, elsewhere) for name, verdict in by_name.items() if verdict is FITS)
        return FilterDecision(passing, failed, gets_cards=True, refusals=refusals)

    def reserve(self, args: BindingArgs, pod: Pod | None, *, now: float) -> dict[str, str]:
        """Choose cards for a pod from what is booked now, reserve them, and return the annotations to bind it with.

        Nothing is reserved for a pod that needs no cards.

        pod  the pod that the request names, as last seen, None if it does not exist
        now  seconds since the epoch

        Raises CannotBind, and BadNeed if the pod's need cannot be read.
        """
        pod = self._bindable(args, pod)
        need = self._vocabularies.need(pod, self._options.need)
        choice = self.verdicts.choose(need, args.node)
        if isinstance(choice, UnknownNode):
            raise CannotBind(f"node {args.node} is not known, so pod {args.key} cannot be bound to it")
        if isinstance(choice, Refusal):
            raise CannotBind(f"node {args.node} no longer has room for pod {args.key}: {choice}", choice)
        facts = self.nodes.facts(args.node)
        moment = self._next_moment(args.node, now)
        annotations = self._vocabularies.write_choice(pod, need, choice, moment, facts)
        if need.wants_cards:
            self._last_moment[args.node] = moment
            capacity = facts.inventory.capacity if facts is not None else {}
            self.ledger.reserve(args.pod_uid, args.key, args.node, footprint(need, choice, capacity))
        if self.hosts is not None:
            self.hosts.pods.assume(pod, args.node)
        return annotations

    def cancel(self, uid: str) -> None:
        """Take a reservation back: the pod was not bound. A pod that is held keeps its cards."""
        if self.hosts is not None:
            self.hosts.pods.cancel(uid)
        booking = self.ledger.booking(uid)
        if booking is not None and self.ledger.cancel(uid):
            self._observer.cards_freed(booking.node)

    def _changed(self, node: str) -> None:
        self.verdicts.forget(node)
        if self.nodes.facts(node) is None and not self.ledger.on_node(node):
            self._last_moment.pop(node, None)
        self._observer.node_changed(node)

    def _node_changed(self, node: str) -> None:
        self.pods.node_changed(node)
        self._changed(node)
        self._observer.cards_freed(node)  # a label that is gone or a larger resource makes room, too
        facts = self.nodes.facts(node)
        if facts is not None and facts.problems:
            self._observer.node_is_invalid(node, facts.problems)

    def _refuse_everywhere(self, pod: Pod, names: Sequence[str], sentence: str, now: float) -> FilterDecision:
        failed = dict.fromkeys(names, sentence)
        refusal = PodRefusal(pod.key, now, {sentence: len(failed)}, {}, is_final=True)
        self.refusals.keep(pod.uid, refusal)
        return FilterDecision([], failed, refusals={UnreadableNeed.kind: 1}, refusal=refusal)

    def _pod_refusal(
        self,
        pod: Pod,
        need: PodNeed,
        verdicts: Mapping[str, Verdict],
        facts: Callable[[str], NodeFacts | None],
        now: float,
    ) -> PodRefusal:
        seen_by_cards = [
            name for name, verdict in verdicts.items() if verdict.refusal and verdict.refusal.only_per_card
        ]
        details: dict[str, tuple[str, ...]] = {}
        for name in seen_by_cards[:MOST_NODES]:
            known = facts(name)
            details[name] = card_details(need, known.inventory, self.ledger.usage(name)) if known is not None else ()
        return PodRefusal(
            pod=pod.key,
            time=now,
            reasons=Counter(verdict.sentence for verdict in verdicts.values()),
            details=details,
            only_seen_by_cards=bool(seen_by_cards),
        )

    def _bindable(self, args: BindingArgs, pod: Pod | None) -> Pod:
        """Return the pod if it may be bound. Raises CannotBind."""
        if (booked := self.ledger.booking(args.pod_uid)) is not None:
            raise CannotBind(f"pod {args.key} already has its cards on node {booked.node} and keeps them")
        if pod is None:
            raise CannotBind(f"pod {args.key} no longer exists")
        if pod.uid != args.pod_uid:
            raise CannotBind(
                f"pod {args.key} is another pod of that name: its UID is {pod.uid}, the request names {args.pod_uid}"
            )
        if pod.node_name:
            raise CannotBind(f"pod {args.key} is already bound to node {pod.node_name}")
        if pod.is_over:
            raise CannotBind(f"pod {args.key} has already terminated")
        return pod

    def _next_moment(self, node: str, now: float) -> int:
        """Return a timestamp, in nanoseconds, later than that of every pod on the node.

        The device plugin orders the pods of its node by it, so it must rise even if the clock was set back, or another
        replica with another clock led before.
        """
        latest = self._last_moment.get(node, 0)
        booked = (self.pods.bound_pod(uid) for uid in self.ledger.on_node(node))
        for bound in (*booked, *self.pods.in_trouble.values()):  # a pod whose cards cannot be read is not booked
            if bound is not None and bound.object.node_name == node:
                text = bound.object.annotations.get(TIMESTAMP, "")
                if text.isascii() and text.isdigit() and len(text) <= len(str(LATEST_MOMENT)):
                    latest = max(latest, int(text) if int(text) <= LATEST_MOMENT else 0)
        return max(int(now * NANOSECONDS), latest + 1)


def _kinds(verdicts: Sequence[Verdict]) -> Counter[str]:
    kinds: Counter[str] = Counter()
    for verdict, count in Counter(verdicts).items():
        if verdict.refusal is not None:
            kinds[verdict.refusal.kind] += count
    return kinds
