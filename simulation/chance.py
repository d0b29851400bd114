"""Draw chance from a seed, the same in every release of Python and with every hash seed."""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Sequence
from typing import TypeVar

T = TypeVar("T")


class Chance:
    """A stream of random values. Streams of other names are independent, so one does not shift another.

    Only `random.Random.random` is used, because the algorithms of the other methods may change between releases.
    """

    def __init__(self, seed: int, name: str) -> None:
        self._seed = seed
        self._random = random.Random(f"{seed}/{name}").random

    def stream(self, name: str) -> Chance:
        return Chance(self._seed, name)

    def happens(self, probability: float) -> bool:
        return self._random() < probability

    def between(self, low: float, high: float) -> float:
        return low + (high - low) * self._random()

    def whole(self, low: int, high: int) -> int:
        """Return a whole number from ``low`` to ``high``, both included."""
        return low + int(self._random() * (high - low + 1))

    def delay(self, mean: float) -> float:
        """Return the length of a wait: mostly short, seldom several times the mean."""
        return -mean * math.log(1.0 - self._random())

    def one_of(self, options: Sequence[T]) -> T:
        return options[int(self._random() * len(options))]

    def in_any_order(self, texts: Iterable[str]) -> list[str]:
        left, order = sorted(texts), []
        while left:
            order.append(left.pop(self.whole(0, len(left) - 1)))
        return order

    def weighted(self, options: Sequence[tuple[float, T]]) -> T:
        left = self._random() * sum(weight for weight, _ in options)
        for weight, option in options:
            left -= weight
            if left < 0:
                return option
        return options[-1][1]
