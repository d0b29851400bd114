"""Decide about pods: which nodes have room, which cards a pod gets, and what is booked. No I/O; time is passed in.

The facts come from the watches. The callers decode requests, write to the API server, count and log.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from string import ascii_lowercase
from typing import TYPE_CHECKING, Any

from cachetools import LRUCache

from gas.decision.annotations import LATEST_TIMESTAMP, parse_timestamp
from gas.decision.names import TIMESTAMP
from gas.extender.bookings import Bookings, SentBinding
from gas.extender.decisions import MOST_NODES, MOST_PODS, Decisions, PodRefusal
from gas.extender.hooks import (
    NO_HOOKS,
    Change,
    FilterDecision,
    Hooks,
    InvalidNode,
    Observer,
    Observers,
    PromisedCards,
)
from gas.extender.host_resources import HostResources
from gas.extender.nodes import Nodes
from gas.extender.pods import Pods
from gas.extender.promises import Promises
from gas.extender.unknown_memory import nodes_of_unknown_memory
from gas.extender.verdicts import FITS, FITS_PREFERRED, Turns, Verdict, Verdicts, all_fit
from gas.extender.wire import BindingArgs, FilterArgs
from gas.ledger.ledger import Ledger
from gas.objects.handler import Handlers
from gas.objects.stored import HostPod, Node, Pod
from gas.placement.choice import Choice, footprint
from gas.placement.need import PodNeed
from gas.placement.place import DEFAULT_STEP_LIMIT
from gas.placement.reason import card_details
from gas.placement.refusal import PreferredElsewhere, Refusal, UnknownNode, UnreadableNeed
from gas.placement.stranded import shapes_of
from gas.values.errors import GasError
from gas.values.timing import SYSTEM_TIMING
from gas.vocabularies.combined import Vocabularies
from gas.vocabularies.known import switched_off
from gas.vocabularies.protocol import BadNeed, NeedOptions, NodeFacts

if TYPE_CHECKING:
    from gas.extender.flags import Flags

NANOSECONDS = 10**9

PODS_A_TURN = 100  # waiting pods whose needs are read before others get their turn
BOUND_A_TURN = 1000  # bound pods, whose needs are known, before others get their turn

LENGTH = 5  # letters of a name, as KubeShare has it: 12 million names for the few cards of a node


def random_name(spread: Callable[[float, float], float] = SYSTEM_TIMING.spread) -> str:
    """Return five random lower-case letters. ``spread`` returns a random number between two others."""
    last = len(ascii_lowercase) - 1
    return "".join(ascii_lowercase[min(int(spread(0.0, last + 1.0)), last)] for _ in range(LENGTH))


class CannotBind(GasError):
    """The pod is not bound and nothing was changed; the sentence goes into the response's ``Error``.

    refusal  why placement found no cards, None if that is not the reason
    """

    def __init__(self, sentence: str, refusal: Refusal | None = None) -> None:
        super().__init__(sentence)
        self.refusal = refusal


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The administrator's choices that decisions depend on."""

    vocabularies: Vocabularies  # in which pods, nodes and annotations are read and written
    need: NeedOptions = field(default_factory=NeedOptions)  # what pods may ask for
    step_limit: int = DEFAULT_STEP_LIMIT  # most steps of one search for cards


def options_of(flags: Flags) -> Options:
    return Options(
        vocabularies=Vocabularies(flags.vocabularies),
        need=NeedOptions(
            allowlist=flags.allowlist,
            denylist=flags.denylist,
            card_order=flags.order_of_cards,
            order_for_all=flags.order_for_all,
            card_near=flags.card_near,
        ),
        step_limit=flags.search_steps or DEFAULT_STEP_LIMIT,
    )


class Decider:
    """The decisions, and the facts that they are made from.

    Watches feed `nodes`, `pods` and `hosts`. The observers learn what follows from that.

    clock     returns seconds, for the time that one filter may take
    new_name  returns a random name for a card
    on_stale  is called when `verdicts` has something to refresh
    """

    def __init__(
        self,
        options: Options,
        observer: Observer | None = None,
        *,
        clock: Callable[[], float] = time.perf_counter,
        new_name: Callable[[], str] = random_name,
        on_stale: Callable[[], None] = lambda: None,
    ) -> None:
        self.options = options
        self.clock = clock
        self._new_name = new_name
        self._vocabularies = options.vocabularies
        self.hooks = NO_HOOKS  # what parts add to decisions
        self.observers = Observers(*filter(None, (observer,)))
        self._last_timestamp: dict[str, int] = {}
        # the last refusal of each pod, by UID, until it is bound or gone
        self.refusals: LRUCache[str, PodRefusal] = LRUCache(MOST_PODS)
        self.filtering = 0  # how many filters are in progress: they may refuse a pod for cards that have become free
        self.decisions = Decisions()  # the last ones, as the verbs reported them
        self.ledger = Ledger(on_change=self._changed)
        self.bookings = Bookings(self.ledger, on_move=self.observers.moved, on_freed=self._freed)
        self.nodes = Nodes(options.vocabularies, on_change=self._node_changed)
        self.pods = Pods(
            self.ledger,
            self.bookings,
            options.vocabularies,
            off=switched_off(options.vocabularies),
            facts=self.nodes.identified,
            observer=self.observers,
            on_gone=lambda uid: self.refusals.pop(uid, None),
            follow_nomination=self._follow_nomination,
        )
        self.promises = Promises(
            self.bookings,
            self.ledger,
            self.nodes,
            self.pods.waiting,
            need=self.need,
            hooks=lambda: self.hooks,
            on_freed=self._freed,
            step_limit=options.step_limit,
            clock=clock,
        )
        self.observers.add(self.promises)
        self.hosts = HostResources(self._capacity_changed)  # fed only after `count_hosts`
        self.counts_hosts = False
        self.pod_handlers: Handlers[Any] = Handlers(self.pods)
        self.node_handlers: Handlers[Node] = Handlers(self.nodes)
        self.verdicts = Verdicts(self.nodes, self.ledger, step_limit=options.step_limit, clock=clock, on_stale=on_stale)

    def add(self, hooks: Hooks) -> None:
        """Add the hooks of a part. To be called before the first decision."""
        self.hooks += hooks
        self.observers.add(*hooks.observers)
        self.pod_handlers.add(*hooks.handlers)

    def count_hosts(self, describe: Callable[[HostPod], Any] | None = None) -> None:
        """Count free CPU, memory and pod slots of nodes as well. From then on, whole pods (`HostPod`) must be shown.

        To be called before the first object is shown. ``describe`` returns what `HostPods` retains of a pod that has a
        node; only one part can pass it.
        """
        if describe is not None:
            self.hosts.pods.describe_with(describe)
        if not self.counts_hosts:
            self.counts_hosts = True
            self.observers.add(self.hosts)
            self.pod_handlers.add(self.hosts.pods, first=True)
            self.node_handlers.add(self.hosts.nodes, first=True)

    def must_see(self, pod: Any) -> bool:
        """Return whether any handler must be shown a pod as it is now."""
        return any(handler.needs(pod) for handler in self.pod_handlers)

    def filter(self, args: FilterArgs, *, now: float) -> Turns[FilterDecision]:
        """Decide which of the named nodes have room for a pod, card by card. ``now`` is in seconds since the epoch."""
        self.filtering += 1
        try:
            return (yield from self._filter(args, now))
        finally:
            self.filtering -= 1

    def _filter(self, args: FilterArgs, now: float) -> Turns[FilterDecision]:
        names = args.node_names or [] if args.nodes is None else [sent.node.name for sent in args.nodes]
        try:
            need = self.need(args.pod)
        except BadNeed as bad:
            decision = self._refuse_everywhere(args.pod, names, str(bad), now)
            return (yield from self._restricted(args.pod, PodNeed(()), decision, lambda _node: None))
        if not need.wants_cards:
            return FilterDecision(names)
        self.observers.asked(args.pod, need, names)
        promised = self.promises.to_others(args.pod)
        if args.nodes is None:
            verdicts = yield from self.verdicts.of(need, names, promised)
            facts: Callable[[str], NodeFacts | None] = self.nodes.facts
        else:
            # Believed as sent: an autoscaler asks about nodes that do not exist yet.
            sent = self.nodes.as_sent(each.node for each in args.nodes)
            verdicts = yield from self.verdicts.as_sent(need, sent, promised)
            names = list(sent)
            facts = sent.get
        if own := args.pod.node_name:  # a bound pod, whose resize is asked about, keeps its cards on its node
            verdicts = [FITS if name == own else verdict for name, verdict in zip(names, verdicts, strict=True)]
        decision = self._decision(args.pod, need, names, verdicts, facts, promised=promised, now=now)
        return (yield from self._restricted(args.pod, need, decision, facts))

    def _restricted(
        self, pod: Pod, need: PodNeed, decision: FilterDecision, facts: Callable[[str], NodeFacts | None]
    ) -> Turns[FilterDecision]:
        for restrict in self.hooks.restricting:
            decision = yield from restrict(pod, need, decision, facts)
        if decision.refusal is not None:
            self.refusals[pod.uid] = decision.refusal
        return decision

    def _decision(
        self,
        pod: Pod,
        need: PodNeed,
        names: Sequence[str],
        verdicts: Sequence[Verdict],
        facts: Callable[[str], NodeFacts | None],
        *,
        promised: PromisedCards,
        now: float,
    ) -> FilterDecision:
        gets_cards = not pod.node_name
        if all_fit(verdicts):
            return FilterDecision(names, gets_cards=gets_cards)
        by_name = dict(zip(names, verdicts, strict=True))
        failed = {name: verdict.sentence for name, verdict in by_name.items() if verdict.refusal is not None}
        refusals = _kinds(verdicts) if failed else {}
        if len(failed) == len(by_name):
            kind = max(refusals, key=lambda each: refusals[each])
            refusal = self._pod_refusal(pod, need, by_name, facts, promised=promised, now=now, kind=kind)
            return FilterDecision([], failed, refusals=refusals, refusal=refusal)
        if FITS_PREFERRED not in set(verdicts):
            passing = [name for name, verdict in by_name.items() if verdict.refusal is None]
        else:
            passing = [name for name, verdict in by_name.items() if verdict.preferred]
            elsewhere = str(PreferredElsewhere())
            failed.update((name, elsewhere) for name, verdict in by_name.items() if verdict is FITS)
        return FilterDecision(passing, failed, gets_cards=gets_cards, refusals=refusals)

    def reserve(
        self, args: BindingArgs, pod: Pod, *, now: float, is_review: bool = False, dry_run: bool = False
    ) -> dict[str, str]:
        """Choose cards for a pod from what is booked now, reserve them, and return the annotations to bind it with.

        Nothing is reserved for a pod that needs no cards.

        pod        the pod that the request names, as last seen
        now        seconds since the epoch
        is_review  whether another client binds the pod
        dry_run    whether to change nothing and only return the annotations

        Raises CannotBind, and BadNeed if the pod's need cannot be read.
        """
        self._check_bindable(args, pod)
        need = self.need(pod)
        facts = self.nodes.identified(args.node)
        chosen = need
        if need.wants_cards:
            for choose in self.hooks.choosing:
                chosen = choose(pod, chosen, facts)
            if not chosen.wants_cards:
                need = chosen
        choice = self.verdicts.choose(chosen, args.node, self.promises.to_others(pod).get(args.node, ()))
        if isinstance(choice, UnknownNode):
            raise CannotBind(f"node {args.node} is not known, so pod {args.key} cannot be bound to it")
        if isinstance(choice, Refusal):
            raise CannotBind(f"node {args.node} no longer has room for pod {args.key}: {choice}", choice)
        timestamp = self._next_timestamp(args.node, now)
        need = self._with_name(pod, need, choice, args.node)
        annotations = self._vocabularies.write_choice(pod, need, choice, timestamp, facts)
        if dry_run:
            return annotations
        if need.wants_cards:
            self._last_timestamp[args.node] = timestamp
            capacity = facts.inventory.capacity if facts is not None else {}
            sent = SentBinding(args.node, annotations, {pod.metadata.resource_version or ""}, is_reviewed=is_review)
            self.bookings.reserve(args.pod_uid, args.key, footprint(need, choice, capacity), sent)
        if self.counts_hosts:
            self.hosts.pods.assume(pod, args.node)
        return annotations

    def together(self, pod: Pod) -> str:
        """Return a name that the pod shares with those that kube-scheduler binds together with it: its UID if none."""
        return next(filter(None, (of_pod(pod) for of_pod in self.hooks.together)), pod.uid)

    def asks_for_cards(self, pod: Pod) -> bool:
        return self._vocabularies.is_gpu_pod(pod)

    def waiting_for_unknown_memory(self) -> Turns[list[tuple[Pod, str]]]:
        """Return the pods that wait because no node states enough memory, and a sentence about it for each."""
        nodes = dict(self.nodes)
        if not any(facts.unknown_memory for facts in nodes.values()):
            return []
        needs: dict[str, PodNeed] = {}
        for at, (uid, pod) in enumerate(list(self.pods.waiting.items())):
            with suppress(BadNeed):
                if not pod.suspended:
                    needs[uid] = self.need(pod)
            if at % PODS_A_TURN == 0:
                yield
        found = yield from nodes_of_unknown_memory(dict.fromkeys(needs.values()), nodes, self.verdicts)
        waiting = self.pods.waiting
        return [(waiting[uid], found[need].sentence) for uid, need in needs.items() if need in found and uid in waiting]

    def shapes(self) -> Turns[frozenset[PodNeed]]:
        """Return what containers of all GPU pods take of one card, each shape once."""
        needs: dict[int, PodNeed] = {}  # by identity, since pods of one template share a need
        for at, (_, bound) in enumerate(list(self.pods.bound()), start=1):
            needs[id(bound.need)] = bound.need
            if at % BOUND_A_TURN == 0:
                yield
        for at, pod in enumerate(list(self.pods.waiting.values()), start=1):
            with suppress(BadNeed):
                need = self.need(pod)
                needs[id(need)] = need
            if at % PODS_A_TURN == 0:
                yield
        return frozenset(shapes_of(needs.values()))

    def need(self, pod: Pod) -> PodNeed:
        need = self._vocabularies.need(pod, self.options.need)
        self.nodes.distinguish(need.denied if need.allowed is None else need.allowed | need.denied)
        return need

    def faults(self, pod: Pod) -> str:
        """Return why the admission webhook would refuse a pod, such as memory of a card but no card; empty if not."""
        vocabulary = self._vocabularies.vocabulary_of(pod)
        return "; ".join(vocabulary.faults(pod)) if vocabulary is not None else ""

    def _with_name(self, pod: Pod, need: PodNeed, choice: Choice, node: str) -> PodNeed:
        """Return the need with the name of the chosen card, if the pod's vocabulary names cards and the pod does not.

        The name is booked with the card at once, so that the next pod on it gets the same.
        """
        vocabulary = self._vocabularies.vocabulary_of(pod)
        if vocabulary is None or not vocabulary.names_cards or need.named or not need.scope.is_one_card:
            return need
        card = next((card for each in choice.containers for card in each.cards), None)
        if card is None:
            return need
        names = self.ledger.usage(node).names
        if of_card := names.get(card):
            return replace(need, named=min(of_card))
        taken = frozenset[str]().union(*names.values())
        return replace(need, named=next(name for name in iter(self._new_name, "") if name not in taken))

    def _changed(self, node: str, change: Change = Change.PODS) -> None:
        self.verdicts.forget(node)
        self.promises.forget(node)
        if not self.ledger.on_node(node):
            self._last_timestamp.pop(node, None)
        self.observers.node_changed(node, change)

    def _follow_nomination(self, pod: Pod) -> None:
        self.promises.follow(pod)

    def _freed(self, node: str) -> None:
        self.promises.forget(node)
        self.observers.node_changed(node, Change.FREED)

    def _capacity_changed(self, node: str) -> None:
        self.observers.node_changed(node, Change.CAPACITY)

    def _node_changed(self, node: str) -> None:
        self.pods.node_changed(node)
        # a label that is gone or a larger resource makes room, too
        self._changed(node, Change.PODS | Change.FREED | Change.CAPACITY)
        facts = self.nodes.facts(node)
        if facts is not None and facts.problems:
            self.observers.found(InvalidNode(node, facts.problems))

    def _refuse_everywhere(self, pod: Pod, names: Sequence[str], sentence: str, now: float) -> FilterDecision:
        failed = dict.fromkeys(names, sentence)
        refusal = PodRefusal(pod.key, now, UnreadableNeed.kind, {sentence: len(failed)}, {}, is_final=True)
        return FilterDecision([], failed, refusals={UnreadableNeed.kind: 1}, refusal=refusal)

    def _pod_refusal(
        self,
        pod: Pod,
        need: PodNeed,
        verdicts: Mapping[str, Verdict],
        facts: Callable[[str], NodeFacts | None],
        *,
        promised: PromisedCards,
        now: float,
        kind: str,
    ) -> PodRefusal:
        seen_by_cards = [
            name for name, verdict in verdicts.items() if verdict.refusal and verdict.refusal.only_per_card
        ]
        details: dict[str, tuple[str, ...]] = {}
        for name in seen_by_cards[:MOST_NODES]:
            known = facts(name)
            usage = self.ledger.sums(name, promised.get(name, ())).usage()
            details[name] = card_details(need, known.inventory, usage) if known is not None else ()
        return PodRefusal(
            pod=pod.key,
            time=now,
            kind=kind,
            reasons=Counter(verdict.sentence for verdict in verdicts.values()),
            details=details,
            only_seen_by_cards=bool(seen_by_cards),
        )

    def _check_bindable(self, args: BindingArgs, pod: Pod) -> None:
        if (booked := self.ledger.booking(args.pod_uid)) is not None:
            raise CannotBind(f"pod {args.key} already has its cards on node {booked.node} and keeps them")
        if pod.uid != args.pod_uid:
            raise CannotBind(
                f"pod {args.key} is another pod of that name: its UID is {pod.uid}, the request names {args.pod_uid}"
            )
        bound = self.pods.bound_pod(args.pod_uid)  # which the watch may have shown while the pod was being read
        if node := pod.node_name or (bound.object.node_name if bound is not None else ""):
            raise CannotBind(f"pod {args.key} is already bound to node {node}")
        if pod.is_over:
            raise CannotBind(f"pod {args.key} has already terminated")

    def _next_timestamp(self, node: str, now: float) -> int:
        """Return a timestamp, in nanoseconds, later than that of every pod on the node.

        The device plugin orders the pods of its node by it, so it must rise even if the clock was set back, or a
        replica with another clock led before.
        """
        latest = self._last_timestamp.get(node, 0)
        booked = (self.pods.bound_pod(uid) for uid in self.ledger.on_node(node))
        for bound in (*booked, *self.pods.in_trouble.values()):  # a pod whose cards cannot be read is not booked
            if bound is not None and bound.object.node_name == node:
                written = parse_timestamp(bound.object.annotations.get(TIMESTAMP, ""))
                # A later one would leave no room for a billion pods that follow.
                if written is not None and written < LATEST_TIMESTAMP - NANOSECONDS:
                    latest = max(latest, written)
        return max(int(now * NANOSECONDS), latest + 1)


def _kinds(verdicts: Sequence[Verdict]) -> Counter[str]:
    kinds: Counter[str] = Counter()
    for verdict, count in Counter(verdicts).items():
        if verdict.refusal is not None:
            kinds[verdict.refusal.kind] += count
    return kinds
