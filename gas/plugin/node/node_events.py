"""Events of the node and of its pods. Those of lasting states are repeated: API servers keep them for an hour."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import NoReturn

from gas.cluster.events import Events as ApiEvents
from gas.cluster.events import Involved
from gas.plugin.card_pods import CardPod

REPEAT = 1800.0
"""Seconds after which the event of a state is posted again."""


class Events:
    """The events of a node and of its pods, of a plugin that does not use the cluster's API: none is posted."""

    def on_pod(self, pod: CardPod, reason: str, message: str, *, is_warning: bool = True) -> None:
        """Post an event on a pod."""

    def set_states(self, reason: str, sentences: Iterable[str]) -> None:
        """Replace the states of the node of one reason: a new sentence is posted now, and all of them are repeated."""


class NodeEvents(Events):
    """Post events of one node and of its pods.

    events  sends them
    node    the node's name
    """

    def __init__(self, events: ApiEvents, node: str) -> None:
        self._events = events
        # kubectl describe finds a node's events by its name in place of the UID, as kubelet writes them.
        self._node = Involved(kind="Node", name=node, uid=node)
        self._states: dict[str, tuple[str, ...]] = {}

    def on_pod(self, pod: CardPod, reason: str, message: str, *, is_warning: bool = True) -> None:
        namespace, _, name = pod.key.partition("/")
        involved = Involved(kind="Pod", name=name, uid=pod.uid, namespace=namespace)
        self._events.post(involved, severity="Warning" if is_warning else "Normal", reason=reason, message=message)

    def set_states(self, reason: str, sentences: Iterable[str]) -> None:
        before, now = self._states.get(reason, ()), tuple(dict.fromkeys(sentences))
        self._states[reason] = now
        for sentence in now:
            if sentence not in before:
                self._post(reason, sentence)

    async def repeat(self) -> NoReturn:
        """Post all states again and again, until cancelled."""
        while True:
            await asyncio.sleep(REPEAT)
            for reason, sentences in self._states.items():
                for sentence in sentences:
                    self._post(reason, sentence)

    def _post(self, reason: str, message: str) -> None:
        self._events.post(self._node, severity="Warning", reason=reason, message=message)
