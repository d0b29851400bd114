"""Print the demo's output: a line for each event of a pod, and tables at the end."""

import time
from collections.abc import Callable, Iterable, Mapping

from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table
from rich.text import Text

from gas.decision import names as decision
from gas.vocabularies.intel import names
from sandbox.api.client import Object
from sandbox.demo.pod_history import InsidePod, PodHistory, waiting_reason
from sandbox.hardware.described_node import is_gpu_resource

_RECEIPTS = (decision.ALLOCATED_INIT_CARDS, decision.ALLOCATED_CARDS)

_MOST_NODES = 4  # most nodes whose amounts are printed for one waiting pod
_MOST_NAMES = 8  # most pods that are named in one line
_MOST_FOUND = 40  # most pods already on nodes for which a table is printed

_LEGEND = "Notation: a|b are two containers, a,b two cards of one; (a) is an init container or sidecar, gt0 a tile."


class Output:
    """Print what happens to pods. `print_summary` ends it.

    Lines are wrapped for a terminal and kept whole for a pipe.

    pods_run   nodes run their pods, so that devices in containers are printed as well
    histories  by UID, in the order in which the pods were first seen
    """

    def __init__(self, console: Console, *, pods_run: bool = False) -> None:
        self.histories: dict[str, PodHistory] = {}
        self._console = console
        self._pods_run = pods_run
        self._started = time.monotonic()

    @property
    def submitted(self) -> list[PodHistory]:
        """The histories of the pods that had no node when they were first seen."""
        return [history for history in self.histories.values() if not history.found]

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._started

    def print_line(self, text: str) -> None:
        self._print("", Text(text, "bold"))

    def print_heading(self, title: str, about: str) -> None:
        self._console.print()
        self._print("", Text(title, "bold"))
        self._print("  ", Text(about, "italic"))

    def print_node(self, name: str, labels: Mapping[str, str], amounts: Mapping[str, str]) -> None:
        """Print the GPU labels and resources of a node, without the prefix ``gpu.intel.com/``."""
        shown_labels = [
            f"{_short(each)}={text}" for each, text in sorted(labels.items()) if each.startswith(names.PREFIX)
        ]
        shown_amounts = [
            f"{_short(each)}={n}" for each, n in sorted(amounts.items()) if is_gpu_resource(each) and n != "0"
        ]
        self._print(f"  {name:16}  labels     ", Text("  ".join(shown_labels)))
        self._print(f"  {'':16}  resources  ", Text("  ".join(shown_amounts)))

    def print_warning(self, sentence: str) -> None:
        self._print("warning: ", Text(sentence, "yellow"))

    def pod_changed(
        self, before: Object | None, after: Object | None, look_inside: Callable[[Object], InsidePod] | None = None
    ) -> str | None:
        """Record and print a change of a pod. Return its UID if it waits for a new reason, else None.

        ``look_inside`` returns the devices in the containers of a running pod; None if pods do not run.
        """
        if after is None:
            return None
        uid = str(after["metadata"]["uid"])
        if (history := self.histories.get(uid)) is None:
            history = self.histories[uid] = PodHistory.of(after, self.seconds)
        if history.bound is None and after["spec"].get("nodeName"):
            self._record_binding(history, after)
        self._record_status(history, after, look_inside)
        if history.bound is None and (reason := waiting_reason(after)) and reason != history.reason:
            history.reason = reason
            return uid
        return None

    def print_waiting(self, uid: str, details: Mapping[str, list[str]]) -> None:
        """Print why a pod waits.

        ``details`` are, by node, what the extender says about its cards: ``["card0: sentence", ...]``.
        """
        history = self.histories[uid]
        if history.bound is not None:
            return
        history.is_printed = True
        self._print_event(history, Text(f"waiting: {history.reason}", "yellow"))
        nodes = [(node, cards) for node, cards in details.items() if cards]
        for node, cards in nodes[:_MOST_NODES]:
            for alike, sentence in _group_by_sentence(cards):
                self._print(f"{'':11}", Text(f"{node} {alike}: {sentence}", "dim"))
        if len(nodes) > _MOST_NODES:
            self._print(f"{'':11}", Text(f"and {counted(len(nodes) - _MOST_NODES, 'more node')}", "dim"))

    def print_summary(self, title: str, *, show_times: bool) -> None:
        """Print where every pod went, or why it has no node; with ``show_times`` also how long each has waited."""
        found = [history for history in self.histories.values() if history.found and history.asks_for_gpus]
        if len(found) > _MOST_FOUND:
            self._console.print()
            self._print("", Text(f"{len(found)} GPU pods already had a node", "italic"))
        elif found:
            self._print_table("GPU pods that already had a node", found)
        if self.submitted:
            self._print_table(title, self.submitted, until=self.seconds if show_times else None)
        if any(mark in history.cards for history in (*found, *self.submitted) for mark in "|(:"):
            self._print("", Text(_LEGEND, "dim"))
            self._console.print()
        waiting: dict[str, list[str]] = {}
        for history in self.submitted:
            if history.bound is None or (show_times and history.reason):
                waiting.setdefault(history.reason or "not tried yet", []).append(history.name)
        if waiting:
            self._print("", Text("Why some pods waited" if show_times else "Why the other pods wait", "italic"))
        for reason, pods_ in waiting.items():
            self._print(f"  {_listed(pods_)}: ", Text(reason))
        self._console.print()
        scheduled = sum(history.bound is not None for history in self.submitted)
        pods = counted(len(self.submitted), "pod")
        self.print_line(f"{scheduled} of {pods} got a node." if self.submitted else "No pod is waiting.")
        if self._pods_run:
            self._print_check()

    def _print_check(self) -> None:
        """Print whether the containers had the cards that the extender had decided."""
        seen = {history.name: history.inside for history in self.histories.values() if history.inside is not None}
        wrong = [name for name, inside in seen.items() if not inside.as_decided]
        if wrong:
            self.print_warning(f"containers had other cards than the extender decided: {_listed(wrong)}")
        elif seen:
            self.print_line(
                f"{len(seen)} of {counted(len(seen), 'GPU pod')} had exactly the decided cards in their containers."
            )

    def _record_binding(self, history: PodHistory, pod: Object) -> None:
        history.bound, history.is_printed = self.seconds, True
        history.node = pod["spec"]["nodeName"]
        history.annotations = pod["metadata"].get("annotations") or {}
        if not history.found:
            what = f"{history.node} " if history.asks_for_gpus else history.node
            text = Text("scheduled: ").append(what, "green").append(history.cards, "bold green")
            self._print_event(history, text if history.asks_for_gpus else text.append(" (needs no GPU)"))

    def _record_status(
        self, history: PodHistory, pod: Object, look_inside: Callable[[Object], InsidePod] | None
    ) -> None:
        status = pod.get("status", {})
        phase = status.get("phase")
        if phase == "Running" and history.inside is None and history.asks_for_gpus and look_inside is not None:
            history.inside = look_inside(pod)
            text = Text(f"running:   {history.inside.devices or 'no card'} ")
            if history.inside.as_decided:
                self._print_event(history, text.append("(as decided)", "green"))
            else:
                self._print_event(history, text.append(f"(decided: {history.cards})", "bold red"))
        receipt = _receipt(pod)
        if receipt and receipt != history.receipt:
            history.receipt = receipt
            self._print_event(history, Text(f"its node reports other cards than decided: {receipt}", "yellow"))
        if history.ended is None and phase in ("Succeeded", "Failed"):
            history.ended = self.seconds
            if status.get("reason"):
                self._print_event(history, Text(f"failed: {status['reason']}: {status.get('message', '')}", "bold red"))
            else:
                ending = "finished:  its cards are free again" if history.asks_for_gpus else "finished"
                self._print_event(history, Text(ending, "dim"))

    def _print_event(self, history: PodHistory, text: Text) -> None:
        self._print(f"{self.seconds:6.1f} s  {history.name:20}  ", text)

    def _print(self, margin: str, text: Text) -> None:
        """Print text after its margin, wrapped and indented on a terminal."""
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

    def _print_table(self, title: str, histories: Iterable[PodHistory], until: float | None = None) -> None:
        """Print a table. Waiting pods have waited up to ``until``; None leaves that column out."""
        self._console.print()
        self._print("", Text(title, "italic"))
        table = Table(box=SIMPLE, pad_edge=False)
        for heading in ("pod", "node", "decided cards"):
            table.add_column(heading, overflow="fold")
        if self._pods_run:
            table.add_column("cards in containers", overflow="fold")
        if until is not None:
            table.add_column("waited", justify="right", no_wrap=True)
        for history in histories:
            row = [history.name, history.node or "none", history.cards]
            if self._pods_run:
                row.append(history.inside.cards if history.inside is not None else "")
            if until is not None:
                row.append(f"{(until if history.bound is None else history.bound) - history.seen:.1f} s")
            table.add_row(*(Text(cell) for cell in row), style=_row_style(history))
        self._console.print(table)


def counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _short(name: str) -> str:
    return name.removeprefix(names.PREFIX)


def _receipt(pod: Object) -> str:
    annotations = pod["metadata"].get("annotations") or {}
    return ", ".join(f"{name}={annotations[name]}" for name in _RECEIPTS if annotations.get(name))


def _row_style(history: PodHistory) -> str | None:
    if history.inside is not None and not history.inside.as_decided:
        return "bold red"
    return None if history.node else "yellow"


def _group_by_sentence(cards: Iterable[str]) -> Iterable[tuple[str, str]]:
    """Group cards with the same sentence: ``("card0, card2", sentence)``."""
    grouped: dict[str, list[str]] = {}
    for card in cards:
        name, _, sentence = card.partition(": ")
        grouped.setdefault(sentence, []).append(name)
    return [(", ".join(alike), sentence) for sentence, alike in grouped.items()]


def _listed(pods: list[str]) -> str:
    if len(pods) <= _MOST_NAMES:
        return ", ".join(pods)
    return f"{', '.join(pods[:_MOST_NAMES])} and {len(pods) - _MOST_NAMES} more"
