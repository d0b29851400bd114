"""The clocks of a process and its random pauses. They are passed in, so that tests and simulations can set them."""

import math
import random
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime


@dataclass(frozen=True, slots=True)
class Timing:
    """The clocks and the chance that a process gets from its machine."""

    # returns seconds of a clock that never goes back; the event loop measures its waits by the same one
    monotonic: Callable[[], float] = time.monotonic
    nanoseconds: Callable[[], int] = time.time_ns  # returns nanoseconds since the epoch, by a clock that may jump
    # returns a random number between two others, for pauses that many replicas must not make in step
    spread: Callable[[float, float], float] = random.SystemRandom().uniform

    def seconds(self) -> float:
        """Return the seconds since the epoch."""
        return self.nanoseconds() / 1e9

    def now(self) -> datetime:
        """Return the date and time in UTC."""
        return datetime.fromtimestamp(self.seconds(), UTC)


def seconds_of(timestamp: str | None) -> float:
    """Return a timestamp of the API server in seconds since the epoch; infinite if there is none that can be read."""
    with suppress(ValueError):
        return datetime.fromisoformat(timestamp or "").timestamp()
    return math.inf


SYSTEM_TIMING = Timing()  # the machine's own clocks, and chance that cannot be predicted
