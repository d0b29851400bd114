"""What a person sees of the demo: a line when something happens to a pod, and tables in the end."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping

from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table
from rich.text import Text

from gas.decision import names as decision
from gas.intel import names
from gas.sandbox.api.client import Object
from gas.sandbox.demo.pod_story import InsidePod, Story, why_it_waits

_RECEIPTS = (decision.ALLOCATED_INIT_CARDS, decision.ALLOCATED_CARDS)

_MOST_NODES = 4
"""Of how many nodes the numbers are told for one pod."""

_MOST_NAMES = 8

_MOST_FOUND = 40
"""Of how many pods that had their node before a table is shown."""


class Narration:
    """Tells the stories of the pods it is shown. Lines appear as things happen; `sum_up` ends it.

    A terminal gets lines that fit into it, a pipe whole ones. ``stories`` are by UID, in the order they began.

    look_inside  what the containers of a running pod have; None where nothing runs
    """

    def __init__(self, console: Console) -> None:
        self.stories: dict[str, Story] = {}
        self.look_inside: Callable[[Object], InsidePod] | None = None
        self._console = console
        self._started = time.monotonic()

    @property
    def newcomers(self) -> list[Story]:
        """The pods that had no node when they were first seen."""
        return [story for story in self.stories.values() if not story.found]

    def say(self, text: str) -> None:
        self._print("", Text(text, "bold"))

    def chapter(self, title: str, about: str) -> None:
        self._console.print()
        self._print("", Text(title, "bold"))
        self._print("  ", Text(about, "italic"))

    def tell_node(self, name: str, labels: Mapping[str, str], amounts: Mapping[str, str]) -> None:
        """What a node says about its cards, without our prefix; other labels and amounts are passed over."""
        said = [f"{_short(label)}={text}" for label, text in sorted(labels.items()) if label.startswith(names.PREFIX)]
        said += [
            f"{_short(resource)}: {amount}"
            for resource, amount in sorted(amounts.items())
            if resource.startswith(names.PREFIX) and amount != "0"
        ]
        self._print(f"  {name:16}  ", Text("  ".join(said)))

    def warn(self, sentence: str) -> None:
        self._print("warning: ", Text(sentence, "yellow"))

    def pod_changed(self, before: Object | None, after: Object | None) -> str | None:
        """Take a change in, and tell it. Answers the pod's UID when it waits for a reason that is new."""
        if after is None:
            return None
        uid = str(after["metadata"]["uid"])
        if (story := self.stories.get(uid)) is None:
            story = self.stories[uid] = Story.of(after, self._seconds)
        if story.bound is None and after["spec"].get("nodeName"):
            self._bound(story, after)
        self._lived_on(story, after)
        if story.bound is None and (reason := why_it_waits(after)) and reason != story.reason:
            story.reason = reason
            return uid
        return None

    def waits(self, uid: str, details: Mapping[str, list[str]]) -> None:
        """Tell why a pod waits, with what the extender knows card by card (``"card0: sentence"``) of some nodes."""
        story = self.stories[uid]
        if story.bound is not None:
            return
        story.is_told = True
        self._tell(story, Text(f"waits: {story.reason}", "yellow"))
        told = [(node, cards) for node, cards in details.items() if cards]
        for node, cards in told[:_MOST_NODES]:
            for alike, sentence in _alike(cards):
                self._print(f"{'':11}", Text(f"{node} {alike}: {sentence}", "dim"))
        if len(told) > _MOST_NODES:
            self._print(f"{'':11}", Text(f"and {counted(len(told) - _MOST_NODES, 'more node')}", "dim"))

    def sum_up(self, title: str, *, show_times: bool) -> None:
        """Where every pod went, or why it went nowhere; ``show_times``: how long each had waited."""
        found = [story for story in self.stories.values() if story.found and story.asks_for_gpus]
        if len(found) > _MOST_FOUND:
            self._console.print()
            self._print("", Text(f"{len(found)} GPU pods were on the nodes already", "italic"))
        elif found:
            self._show_table("GPU pods that were on the nodes already", found)
        if self.newcomers:
            self._show_table(title, self.newcomers, until=self._seconds if show_times else None)
        waiting: dict[str, list[str]] = {}
        for story in self.newcomers:
            if story.bound is None or (show_times and story.reason):
                waiting.setdefault(story.reason or "nobody has tried it", []).append(story.name)
        if waiting:
            self._print("", Text("Why some of them waited" if show_times else "Why the others wait", "italic"))
        for reason, waiters in waiting.items():
            self._print(f"  {_some(waiters)}: ", Text(reason))
        placed = sum(story.bound is not None for story in self.newcomers)
        self._console.print()
        self.say(
            f"{placed} of {counted(len(self.newcomers), 'pod')} got a node." if self.newcomers else "No pod waits."
        )
        if self.look_inside is not None:
            self._compare()

    def _compare(self) -> None:
        """What was written on the pods against what was in their containers."""
        seen = {story.name: story.inside for story in self.stories.values() if story.inside is not None}
        others = [name for name, inside in seen.items() if not inside.as_written]
        if others:
            self.warn(f"containers had other cards than those written on their pods: {_some(others)}")
        elif seen:
            self.say(
                f"Every GPU pod had in its containers exactly the cards written on it: {len(seen)} of {len(seen)}."
            )

    @property
    def _seconds(self) -> float:
        return time.monotonic() - self._started

    def _bound(self, story: Story, pod: Object) -> None:
        story.bound, story.is_told = self._seconds, True
        story.node = pod["spec"]["nodeName"]
        story.annotations = pod["metadata"].get("annotations") or {}
        if not story.found:
            where = Text(f"{story.node} ", "green").append(story.cards or "(asks for no GPU)", "bold green")
            self._tell(story, where)

    def _lived_on(self, story: Story, pod: Object) -> None:
        """Tell what its node has done to a pod."""
        status = pod.get("status", {})
        phase = status.get("phase")
        if phase == "Running" and story.inside is None and story.asks_for_gpus and self.look_inside is not None:
            story.inside = self.look_inside(pod)
            text = Text(f"runs with {story.inside.devices or 'no card'}: ")
            if story.inside.as_written:
                self._tell(story, text.append("as written", "green"))
            else:
                self._tell(story, text.append(f"but {story.cards} is written on it", "bold red"))
        receipt = _receipt(pod)
        if receipt and receipt != story.receipt:
            story.receipt = receipt
            self._tell(story, Text(f"its node says on it what it has: {receipt}", "yellow"))
        if story.ended is None and phase in ("Succeeded", "Failed"):
            story.ended = self._seconds
            if status.get("reason"):
                self._tell(story, Text(f"failed, {status['reason']}: {status.get('message', '')}", "bold red"))
            else:
                self._tell(story, Text("ended, its cards are free" if story.asks_for_gpus else "ended", "dim"))

    def _tell(self, story: Story, text: Text) -> None:
        self._print(f"{self._seconds:6.1f} s  {story.name:20}  ", text)

    def _print(self, margin: str, text: Text) -> None:
        """The text behind its margin; what is too long for a terminal goes on below its beginning."""
        if not self._console.is_terminal:
            self._console.print(Text(margin).append_text(text), soft_wrap=True)
            return
        left = len(margin) if len(margin) * 2 <= self._console.width else min(11, self._console.width // 4)
        if left < len(margin):
            self._console.print(Text(margin))
            margin = " " * left
        for line in text.wrap(self._console, max(self._console.width - left, 1)):
            self._console.print(Text(margin).append_text(line), no_wrap=True)
            margin = " " * left

    def _show_table(self, title: str, stories: Iterable[Story], until: float | None = None) -> None:
        """``until``: when those that still wait are looked at; None: no column of times."""
        self._console.print()
        self._print("", Text(title, "italic"))
        table = Table(box=SIMPLE, pad_edge=False)
        for heading in ("pod", "node", "cards"):
            table.add_column(heading, overflow="fold")
        if self.look_inside is not None:
            table.add_column("in its containers", overflow="fold")
        if until is not None:
            table.add_column("waited", justify="right", no_wrap=True)
        for story in stories:
            row = [story.name, story.node or "none", story.cards]
            if self.look_inside is not None:
                row.append(story.inside.cards if story.inside is not None else "")
            if until is not None:
                row.append(f"{(until if story.bound is None else story.bound) - story.seen:.1f} s")
            table.add_row(*(Text(cell) for cell in row), style=_row_style(story))
        self._console.print(table)


def _short(name: str) -> str:
    return name.removeprefix(names.PREFIX)


def _receipt(pod: Object) -> str:
    annotations = pod["metadata"].get("annotations") or {}
    said = (f"{name}={annotations[name]}" for name in _RECEIPTS if annotations.get(name))
    return ", ".join(said)


def _row_style(story: Story) -> str | None:
    if story.inside is not None and not story.inside.as_written:
        return "bold red"
    return None if story.node else "yellow"


def counted(count: int, noun: str) -> str:
    """``1 node``, ``2 nodes``."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _alike(cards: Iterable[str]) -> Iterable[tuple[str, str]]:
    """Cards of which the same is said, together: ``("card0, card2", sentence)``."""
    names: dict[str, list[str]] = {}
    for card in cards:
        name, _, sentence = card.partition(": ")
        names.setdefault(sentence, []).append(name)
    return [(", ".join(alike), sentence) for sentence, alike in names.items()]


def _some(names: list[str]) -> str:
    if len(names) <= _MOST_NAMES:
        return ", ".join(names)
    return f"{', '.join(names[:_MOST_NAMES])} and {len(names) - _MOST_NAMES} more"
