"""Random histories in which others bind pods as well: no card is ever given twice, and no pod is bound without cards.

Reviews are repeated, lost and forged, their Bindings come late, twice or never, beside the extender's own binds.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
from typing import Any

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import invariant, precondition, rule

from gas.cluster.errors import ApiRefused
from gas.extender.late_bindings import LATEST_WRITE
from gas.extender.readiness import NotReady
from gas.ledger.ledger import State
from tests.extender.binding_reviews.setting import Object, ReviewingDecider, binding, catch_up, kill, patched, reviewed
from tests.extender.cluster import Outcome
from tests.extender.histories import SHAPES, Histories

FORGED: list[dict[str, str]] = [
    {},
    {"gas-container-cards": "card0", "gas-ts": "1"},
    {"gas-container-cards": "card1|card0", "gas-allocated-cards": "card1"},
    {"gas-card-exclusion": "mine"},
]


class ReviewedHistories(Histories):
    """The API server has every Binding reviewed that does not come from the extender; the failure policy is Fail."""

    decider: ReviewingDecider

    def __init__(self) -> None:
        self.in_flight: list[Object] = []
        super().__init__()

    def _start(self) -> None:
        self._begin()
        self._run(catch_up(self.decider))

    def _begin(self) -> None:
        """Start an extender that has listed the cluster and has not caught up yet."""
        super()._start()

    def _decider(self) -> ReviewingDecider:
        return ReviewingDecider(self.cluster, read_timeout=0.05)

    @precondition(lambda self: self.cluster.pods)
    @rule(
        number=st.integers(0, 99),
        with_uid=st.booleans(),
        forged=st.sampled_from(FORGED),
        comes_from_the_api_server=st.booleans(),
        times=st.integers(1, 2),
        dry_run=st.booleans(),
    )
    def review(
        self,
        number: int,
        *,
        with_uid: bool,
        forged: dict[str, str],
        comes_from_the_api_server: bool,
        times: int,
        dry_run: bool,
    ) -> None:
        """Have a Binding reviewed; what the API server allowed may be written at any later time."""
        pod = self.cluster.pods[self._some_waiting(number)]
        sent = binding(pod, annotations=dict(forged), **({"uid": pod["metadata"]["uid"]} if with_uid else {}))
        for _ in range(times):
            books = self.decider.booked()
            with contextlib.suppress(NotReady):
                result = self._run(reviewed(self.decider, sent, dry_run=dry_run))
                if dry_run:
                    assert self.decider.booked().keys() <= books.keys()  # doubts may be settled meanwhile
                elif not result.refusal and comes_from_the_api_server:
                    self.in_flight.append(patched(sent, result))

    @rule(
        shape=st.sampled_from(SHAPES),
        others=st.lists(st.sampled_from(SHAPES), max_size=4),
        outcome=st.sampled_from(Outcome),
        guessed=st.booleans(),
        written_first=st.booleans(),
        settled=st.booleans(),
    )
    def repeat_a_bind(
        self,
        shape: dict[str, Any],
        others: list[dict[str, Any]],
        outcome: Outcome,
        *,
        guessed: bool,
        written_first: bool,
        settled: bool,
    ) -> None:
        """Send the extender's own Binding while it is being written, and write that before it, late or never.

        guessed        whether the client does not know the time of the decision
        written_first  whether it is written before the extender's own
        settled        whether the outcome of the extender's own is found out before other pods are bound
        """
        self.create(shape, twin=False)
        pod = self.cluster.pods[f"default/pod-{self.count}"]
        late: list[Object] = []

        async def repeat() -> None:
            self.cluster.before = None
            own = self.cluster.bindings[-1]["annotations"]
            seen = {name: text for name, text in own.items() if name != "gas-ts" or not guessed}
            sent = binding(pod, annotations=seen, uid=pod["metadata"]["uid"])
            with contextlib.suppress(NotReady):
                if not (result := await reviewed(self.decider, sent)).refusal:
                    late.append(patched(sent, result))
            if written_first and late:
                with contextlib.suppress(ApiRefused):
                    self.cluster.write_binding("default", late.pop())

        self.cluster.outcome, self.cluster.before = outcome, repeat
        self._run(self.decider.bind(pod, "n1"))
        self.cluster.before = None
        if settled and not self.cluster.away:
            self._run(self.decider.settle())
        for each in others:
            self.create(each, twin=False)
            self.cluster.outcome = Outcome.WRITTEN
            self._run(self.decider.bind(self.cluster.pods[f"default/pod-{self.count}"], "n1"))
        self.in_flight += late

    @precondition(lambda self: self.cluster.pods)
    @rule(numbers=st.lists(st.integers(0, 99), min_size=2, max_size=4))
    def review_and_bind_at_once(self, numbers: list[int]) -> None:
        """Let reviews and the extender's own binds overlap, of the same pods as well."""

        async def one(number: int) -> None:
            pod = copy.deepcopy(self.cluster.pods[self._some_waiting(number)])
            if number % 2:
                await self.decider.bind(pod, "n1")
                return
            sent = binding(pod)
            with contextlib.suppress(NotReady):
                if not (result := await reviewed(self.decider, sent)).refusal:
                    self.in_flight.append(patched(sent, result))

        async def all_of_them() -> None:
            await asyncio.gather(*(one(number) for number in numbers))

        self._run(all_of_them())

    @precondition(lambda self: self.in_flight)
    @rule(number=st.integers(0, 99), times=st.integers(1, 2), lost=st.booleans())
    def write(self, number: int, *, times: int, lost: bool) -> None:
        """Write a Binding that was allowed, at once or long after its review, or lose it."""
        late = self.in_flight.pop(number % len(self.in_flight))
        for _ in range(0 if lost else times):
            with contextlib.suppress(ApiRefused):
                self.cluster.write_binding("default", late)

    @precondition(lambda self: self.cluster.pods and not self.cluster.away)
    @rule(number=st.integers(0, 99))
    def change_a_pod(self, number: int) -> None:
        self.cluster.annotate(self._some_waiting(number), note=str(number))

    @precondition(lambda self: not self.cluster.away)
    @rule(seconds=st.sampled_from([1, 30, 100]))
    def a_moment_passes(self, seconds: int) -> None:
        """After a moment, reviews alone book nothing. After a long one, the API server has given up every Binding."""
        self.decider.seconds += seconds
        if seconds >= LATEST_WRITE:
            self.in_flight.clear()
        self._run(self.decider.settle())
        nodes = {pod.uid: pod.node_name for pod in self.cluster.all()}
        for uid, booking in self.decider.ledger.bookings():
            if booking.state is State.RESERVED:  # its pod was bound, or even removed, which the watch has yet to show
                assert nodes.get(uid, booking.node) == booking.node

    @precondition(lambda self: not self.cluster.away)
    @rule(shapes=st.lists(st.sampled_from(SHAPES), min_size=2, max_size=5), repeated=st.booleans())
    def a_binding_comes_after_others_had_its_cards(self, shapes: list[dict[str, Any]], *, repeated: bool) -> None:
        """Write a Binding when its cards were taken back and other pods may have them."""
        self.create(shapes[0], twin=False)
        sent = binding(self.cluster.pods[f"default/pod-{self.count}"])
        self._run(self._list())
        for _ in range(1 + repeated):
            if not (result := self._run(reviewed(self.decider, sent))).refusal:
                self.in_flight.append(patched(sent, result))
            self._run(self.decider.settle())
        for shape in shapes[1:]:
            self.create(shape, twin=False)
            self.cluster.outcome = Outcome.WRITTEN
            self._run(self.decider.bind(self.cluster.pods[f"default/pod-{self.count}"], "n1"))
        while self.in_flight:
            self.write(0, times=1, lost=False)

    @rule(shapes=st.lists(st.sampled_from(SHAPES), max_size=4), meanwhile=st.booleans(), written=st.booleans())
    def kill(self, shapes: list[dict[str, Any]], *, meanwhile: bool, written: bool) -> None:
        """End the extender as SIGKILL does; the next one decides while Bindings that were allowed may still come.

        shapes     of pods that the next one binds
        meanwhile  whether the Bindings come while it starts, rather than after it has bound pods
        written    whether Bindings come at once, or at any later time
        """
        self.cluster.away = False
        self._run(kill(self.decider))
        self._begin()
        if meanwhile:
            change_version = self.cluster.change_version

            async def write_then_change(namespace: str, name: str, uid: str) -> bool:
                if self.in_flight:
                    self.write(0, times=1, lost=False)
                return await change_version(namespace, name, uid)

            self.decider.change_version = write_then_change
        self._run(catch_up(self.decider))
        self.decider.change_version = self.cluster.change_version
        for shape in shapes:
            self.create(shape, twin=False)
            self.cluster.outcome = Outcome.WRITTEN
            self._run(self.decider.bind(self.cluster.pods[f"default/pod-{self.count}"], "n1"))
        while written and self.in_flight:
            self.write(0, times=1, lost=False)

    @precondition(lambda self: self.in_flight and not self.cluster.away)
    @rule()
    def a_moment_passes_while_bindings_are_written(self) -> None:
        """Write all Bindings while the extender finds out what became of their reviews."""

        async def write_all() -> None:
            while self.in_flight:
                await asyncio.sleep(0)
                with contextlib.suppress(ApiRefused):
                    self.cluster.write_binding("default", self.in_flight.pop())

        async def both() -> None:
            await asyncio.gather(self.decider.settle(), write_all())

        self._run(both())

    @invariant()
    def only_what_the_extender_chose_is_written_on_bound_pods(self) -> None:
        for pod in self.cluster.all():
            if pod.node_name and self.decider.asks_for_cards(pod):
                assert not pod.annotations.get("gas-allocated-cards")
                assert pod.annotations.get("gas-card-exclusion") != "mine"
                assert pod.annotations.get("gas-ts") not in (None, "1")


ReviewedHistories.TestCase.settings = settings(max_examples=50, stateful_step_count=50, deadline=None)

TestReviewedHistories = ReviewedHistories.TestCase
