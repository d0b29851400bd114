"""What a person sees of the sandbox: a line when something happens to a pod, and a table in the end."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from rich.console import Console
from rich.table import Table
from rich.text import Text

from gas.sandbox.mirror import Object


@dataclass(slots=True)
class Story:
    """What has happened to one pod so far; times in seconds since the start of the program, None: not yet.

    reasons  why it waited, the last sentence of the scheduler
    details  the numbers behind it, card by card
    """

    name: str
    seen: float
    bound: float | None = None
    ended: float | None = None
    node: str = ""
    annotations: Mapping[str, str] = field(default_factory=dict)
    reason: str = ""
    details: Mapping[str, list[str]] = field(default_factory=dict)
    asks_for_gpus: bool = True


class Narration:
    """Tells the stories of the pods it is shown. Lines appear as things happen; `table` sums up."""

    def __init__(self, console: Console) -> None:
        self.stories: dict[str, Story] = {}
        self._console = console
        self._started = time.monotonic()

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._started

    def say(self, text: str, style: str = "bold") -> None:
        self._console.print(Text(text, style=style))

    def pod_changed(self, before: Object | None, after: Object | None) -> str | None:
        """Take a change in, and tell it. Answers the pod's UID when it waits for a reason that is new."""
        if after is None:
            return None
        uid = after["metadata"]["uid"]
        story = self.stories.get(uid) or self._begin(uid, after)
        if story.bound is None and after["spec"].get("nodeName"):
            self._bound(story, after)
        phase = after.get("status", {}).get("phase")
        if story.ended is None and phase in ("Succeeded", "Failed"):
            story.ended = self.seconds
            self._line(
                story, Text(f"ended, its cards are free: {phase}" if _cards(story) else f"ended: {phase}", "dim")
            )
        if story.bound is None and (reason := _why_it_waits(after)) and reason != story.reason:
            story.reason = reason
            return str(uid)
        return None

    def waits(self, uid: str, details: Mapping[str, list[str]]) -> None:
        """Tell why a pod waits, with the numbers that the extender keeps for it."""
        story = self.stories[uid]
        if story.bound is not None:
            return
        story.details = details
        self._line(story, Text(f"waits: {story.reason}", "yellow"))
        for node, cards in details.items():
            for card in cards:
                self._console.print(Text(f"{'':9}{'':22}{node}: {card}", "dim"))

    def table(self) -> Table:
        """Where every pod went, or why it went nowhere."""
        table = Table(title="Where the pods went", title_justify="left", pad_edge=False)
        for heading in ("pod", "node", "cards", "tiles", "waited", "why"):
            table.add_column(heading, justify="right" if heading == "waited" else "left", overflow="fold")
        for story in self.stories.values():
            waited = (self.seconds if story.bound is None else story.bound) - story.seen
            table.add_row(
                story.name,
                story.node or "none",
                _cards(story) or ("none written" if story.node and story.asks_for_gpus else ""),
                story.annotations.get("gas-container-tiles", ""),
                f"{waited:.1f} s",
                story.reason,
                style=None if story.node else "yellow",
            )
        return table

    def _begin(self, uid: str, pod: Object) -> Story:
        metadata = pod["metadata"]
        name = metadata["name"] if metadata["namespace"] == "default" else f"{metadata['namespace']}/{metadata['name']}"
        story = self.stories[uid] = Story(name, self.seconds, asks_for_gpus=_asks_for_gpus(pod))
        return story

    def _bound(self, story: Story, pod: Object) -> None:
        story.bound = self.seconds
        story.node = pod["spec"]["nodeName"]
        story.annotations = pod["metadata"].get("annotations") or {}
        where = Text(f"{story.node} ", "green")
        where.append(_cards(story) or ("without cards" if story.asks_for_gpus else "(asks for no GPU)"), "bold green")
        if tiles := story.annotations.get("gas-container-tiles"):
            where.append(f"  tiles {tiles}", "green")
        self._line(story, where)

    def _line(self, story: Story, text: Text) -> None:
        line = Text(f"{self.seconds:6.1f} s  {story.name:22}")
        self._console.print(line.append_text(text))


def _cards(story: Story) -> str:
    """The cards container by container as on the pod; those of init containers and sidecars before them."""
    cards = story.annotations.get("gas-container-cards", "")
    init = story.annotations.get("gas-init-container-cards", "")
    return f"init {init}, then {cards}" if init else cards


def _why_it_waits(pod: Object) -> str:
    for condition in pod.get("status", {}).get("conditions") or []:
        if condition["type"] == "PodScheduled" and condition["status"] == "False":
            return str(condition.get("message", ""))
    return ""


def _asks_for_gpus(pod: Object) -> bool:
    containers = [*(pod["spec"].get("initContainers") or []), *(pod["spec"].get("containers") or [])]
    return any(
        name.startswith("gpu.intel.com/")
        for container in containers
        for name in (container.get("resources") or {}).get("requests") or {}
    )
