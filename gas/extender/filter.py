"""The filter verb: which of the named nodes have room for the pod, card by card. Changes nothing."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from gas.daemon.logs import VERBOSE
from gas.extender.expected_binds import ExpectedBinds
from gas.extender.metrics import Metrics
from gas.extender.nodes import Nodes
from gas.extender.readiness import NotReady
from gas.extender.refusals import MOST_NODES, PodRefusal, Refusals
from gas.extender.verdicts import FITS, FITS_PREFERRED, Verdict, Verdicts
from gas.extender.wire import BadRequest, FilterArgs, decode_filter, encode_filter_result
from gas.intel.need import read_need
from gas.ledger import Ledger
from gas.objects import Pod
from gas.placement.detail import card_details
from gas.placement.need import PodNeed
from gas.placement.refusal import PreferredElsewhere, SearchLimitHit, UnreadableNeed
from gas.vocabulary import BadNeed, NeedOptions, NodeFacts

logger = logging.getLogger(__name__)

Facts = Callable[[str], NodeFacts | None]
"""Node name -> what is known of the node."""


class Filter:
    """Called with the body of a request, returns the body of the response.

    Raises Unreadable if the body is not JSON, and NotReady while this replica may not decide.

    why_not_ready  answers a sentence while nothing may be answered, None otherwise
    on_refused     is called with a pod that no node has room for when it took per-card books to see it
    """

    def __init__(
        self,
        verdicts: Verdicts,
        ledger: Ledger,
        refusals: Refusals,
        expected_binds: ExpectedBinds,
        metrics: Metrics,
        *,
        nodes: Nodes,
        allowlist: bool,
        denylist: bool,
        why_not_ready: Callable[[], str | None],
        on_refused: Callable[[Pod, PodRefusal], None],
    ) -> None:
        self._verdicts = verdicts
        self._ledger = ledger
        self._refusals = refusals
        self._expected_binds = expected_binds
        self._metrics = metrics
        self._nodes = nodes
        self._allowlist = allowlist
        self._denylist = denylist
        self._why_not_ready = why_not_ready
        self._on_refused = on_refused

    async def __call__(self, body: bytes) -> bytes:
        if (why_not := self._why_not_ready()) is not None:
            raise NotReady(why_not)
        try:
            args = decode_filter(body)
        except BadRequest as bad:
            self._metrics.requests.labels("filter", "bad-request").inc()
            return encode_filter_result(error=str(bad))
        await self._expected_binds.wait(args.pod.uid)
        passing, failed = await self._answer(args)
        logger.debug("%d nodes pass, %d do not", len(passing), len(failed), extra={"pod": args.pod.key})
        self._metrics.requests.labels("filter", "fits" if passing else "refused").inc()
        if args.nodes is None:
            return encode_filter_result(node_names=passing, failed=failed)
        wanted = set(passing)
        kept = [sent for sent in args.nodes if sent.node.name in wanted]
        return encode_filter_result(node_names=passing, nodes=kept, failed=failed)

    async def _answer(self, args: FilterArgs) -> tuple[list[str], dict[str, str]]:
        names = args.node_names if args.nodes is None else [sent.node.name for sent in args.nodes]
        try:
            need = read_need(args.pod, NeedOptions(allowlist=self._allowlist, denylist=self._denylist))
        except BadNeed as bad:
            self._metrics.refusals.labels(UnreadableNeed.kind).inc()
            logger.info("refused everywhere: %s", bad, extra={"pod": args.pod.key})
            failed = dict.fromkeys(names or (), str(bad))
            self._refusals.keep(
                args.pod.uid, PodRefusal(args.pod.key, time.time(), {str(bad): len(failed)}, {}, is_final=True)
            )
            return [], failed
        if not need.wants_cards:
            return list(names or ()), {}
        if args.nodes is None:
            names = names or []
            verdicts = await self._verdicts.of(need, names)
            facts: Facts = self._nodes.facts
        else:
            # Believed as sent: an autoscaler asks about nodes that are not there yet.
            sent = self._nodes.as_sent(each.node for each in args.nodes)
            verdicts = await self._verdicts.as_sent(need, sent)
            names = list(sent)
            facts = sent.get
        different = set(verdicts)
        if different == {FITS}:
            self._expect_bind(args.pod)
            return names, {}
        answers = dict(zip(names, verdicts, strict=True))
        failed = {name: verdict.sentence for name, verdict in answers.items() if verdict.refusal is not None}
        if failed:
            self._count(verdicts)
        if len(failed) == len(answers):
            self._remember(args.pod, need, answers, facts)
            return [], failed
        self._expect_bind(args.pod)
        if FITS_PREFERRED not in different:
            return [name for name, verdict in answers.items() if verdict.refusal is None], failed
        elsewhere = str(PreferredElsewhere())
        failed.update((name, elsewhere) for name, verdict in answers.items() if verdict is FITS)
        return [name for name, verdict in answers.items() if verdict.preferred], failed

    def _expect_bind(self, pod: Pod) -> None:
        if pod.uid:  # a question made by hand has none, and no bind follows it
            self._expected_binds.passed(pod.uid)

    def _count(self, verdicts: Sequence[Verdict]) -> None:
        kinds: Counter[str] = Counter()
        for verdict, count in Counter(verdicts).items():
            if verdict.refusal is not None:
                kinds[verdict.refusal.kind] += count
        for kind, count in kinds.items():
            self._metrics.refusals.labels(kind).inc(count)
        if limits := kinds[SearchLimitHit.kind]:
            self._metrics.search_limits.inc(limits)

    def _remember(self, pod: Pod, need: PodNeed, verdicts: Mapping[str, Verdict], facts: Facts) -> None:
        details: dict[str, tuple[str, ...]] = {}
        seen_by_cards = False
        for name, verdict in verdicts.items():
            if verdict.refusal is None or not verdict.refusal.per_card_books:
                continue
            seen_by_cards = True
            if len(details) == MOST_NODES:
                break
            details[name] = self._details(need, name, facts)
        refusal = PodRefusal(
            pod=pod.key,
            time=time.time(),
            reasons=Counter(verdict.sentence for verdict in verdicts.values()),
            details=details,
        )
        self._refusals.keep(pod.uid, refusal)
        logger.log(VERBOSE, "refused: %s", refusal.summary(), extra={"pod": pod.key})
        if seen_by_cards:
            self._on_refused(pod, refusal)

    def _details(self, need: PodNeed, name: str, facts: Facts) -> tuple[str, ...]:
        known = facts(name)
        return card_details(need, known.inventory, self._ledger.usage(name)) if known is not None else ()
