"""Run several processes in one thread and in virtual time, and stop any of them between two callbacks.

Every callback belongs to the process in whose context it was scheduled. A process that is killed runs no callback any
more, not even a ``finally``. One that is paused runs them later, as after SIGSTOP. Within a process callbacks run in
the order that asyncio promises; which process runs first at the same time comes from the seed. Processes reach each
other only through `simulation.network`, whose delays are never zero, so their order at one time is complete.
"""

import asyncio
import contextvars
import heapq
import itertools
from asyncio import events
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any

from simulation.chance import Chance

MOST_AT_ONCE = 200_000  # Most callbacks that may run without any time passing. More are an endless loop.


class Process:
    """A simulated operating system process. ``ready`` are its callbacks that are due."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.alive = True
        self.paused = False
        self.ready: deque[events.Handle] = deque()
        self.unburied: list[events.Handle] = []
        self.context = contextvars.copy_context()
        self.context.run(PROCESS.set, self)

    def kill(self) -> None:
        """Stop the process for good, between two of its callbacks."""
        self.alive = False
        # Kept until the end of the world: dropping them would run the ``finally`` blocks of their coroutines.
        self.unburied += self.ready
        self.ready.clear()


PROCESS: contextvars.ContextVar[Process] = contextvars.ContextVar("process")


class Livelock(Exception):
    """An endless series of callbacks while no time passes."""


class VirtualLoop(asyncio.BaseEventLoop):
    """The event loop. Time passes only when nothing is left to do. ``processed`` is the number of callbacks run."""

    def __init__(self, chance: Chance) -> None:
        super().__init__()
        self.processed = 0
        self._chance = chance
        self._now = 0.0
        self._outside = Process("outside")
        self._busy: list[Process] = []
        self._at_once = 0
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._numbers = itertools.count()

    def time(self) -> float:
        return self._now

    def start(self, process: Process, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        return self.create_task(work, context=process.context)

    def resume(self, process: Process) -> None:
        process.paused = False
        if process.ready and process not in self._busy:
            self._busy.append(process)

    def bury(self, *processes: Process) -> None:
        """Let killed processes run again, so that their tasks can be cancelled at the end of the world."""
        for process in processes:
            process.alive = True
            process.ready.extend(process.unburied)
            process.unburied.clear()
            self.resume(process)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        """Call a function at a time; those of the same time in the order in which they were asked for."""
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        heapq.heappush(self._timers, (when, next(self._numbers), handle))
        return handle

    def _call_soon(
        self, callback: Callable[..., object], args: tuple[Any, ...], context: contextvars.Context | None
    ) -> events.Handle:
        handle = events.Handle(callback, args, self, context)
        self._enqueue(handle)
        return handle

    def call_soon_threadsafe(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> events.Handle:
        """Call a function soon. asyncio closes forgotten generators by this, from 3.14 on past `_call_soon`."""
        return self._call_soon(callback, args, context)

    def _enqueue(self, handle: events.Handle) -> None:
        process = handle._context.get(PROCESS, self._outside)  # type: ignore[attr-defined]
        if not process.alive:
            process.unburied.append(handle)
            return
        if not process.ready and not process.paused:
            self._busy.append(process)
        process.ready.append(handle)

    def _run_once(self) -> None:
        if not self._busy:
            self._pass_time()
            return
        index = self._chance.whole(0, len(self._busy) - 1) if len(self._busy) > 1 else 0
        process = self._busy[index]
        while process.ready and process.alive and not process.paused and not self._is_stopping:
            handle = process.ready.popleft()
            if not handle.cancelled():
                handle._run()
                self.processed += 1
                self._at_once += 1
                if self._at_once > MOST_AT_ONCE:
                    self._at_once = 0
                    raise Livelock(f"{process.name}: {handle!r}")
        if process in self._busy and not (process.ready and self._is_stopping):
            self._busy.remove(process)

    @property
    def _is_stopping(self) -> bool:
        return bool(self._stopping)  # type: ignore[attr-defined]

    def _pass_time(self) -> None:
        """Move to the time of the next timer, and make every timer of that time ready."""
        self._at_once = 0
        timers = self._timers
        while timers and timers[0][2].cancelled():
            heapq.heappop(timers)
        if not timers:
            raise Livelock("nothing is left to do, and nothing will ever happen")
        self._now = max(self._now, timers[0][0])
        while timers and timers[0][0] <= self._now:
            if not (handle := heapq.heappop(timers)[2]).cancelled():
                self._enqueue(handle)

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Do nothing: cancelled timers are dropped when they are due."""

    def _write_to_self(self) -> None:
        """Do nothing: no other thread ever calls."""
