"""Events of the node about states that last, posted again while they do: an API server keeps events for an hour."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import NoReturn

REPEAT = 1800.0
"""Seconds after which the event of a state is posted again."""


class LastingEvents:
    """The states of the node that have events now, by the reason of the event.

    post  posts an event on the node: its reason, its message
    """

    def __init__(self, post: Callable[[str, str], None]) -> None:
        self._post = post
        self._states: dict[str, tuple[str, ...]] = {}

    def keep(self, reason: str, sentences: Iterable[str]) -> None:
        """Replace the states of one reason: a sentence that is new is posted now, and all of them are repeated."""
        before, now = self._states.get(reason, ()), tuple(dict.fromkeys(sentences))
        self._states[reason] = now
        for sentence in now:
            if sentence not in before:
                self._post(reason, sentence)

    async def run(self) -> NoReturn:
        """Post all states again and again, until cancelled."""
        while True:
            await asyncio.sleep(REPEAT)
            for reason, sentences in self._states.items():
                for sentence in sentences:
                    self._post(reason, sentence)
