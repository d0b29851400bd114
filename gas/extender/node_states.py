"""Which nodes are alike: of one kind, and with the same booked on their cards."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

from gas.extender.nodes import Nodes
from gas.ledger import BooksState, Ledger

Answer = TypeVar("Answer")

UNKNOWN = 0
"""The state of a name without a node."""

SPARE = 1000
"""States that may be remembered beyond two for each node, so that small clusters are not swept all the time."""


class NodeStates:
    """Gives each state a number: nodes with the same number get the same answer to every question.

    A number is never given to another state. `forget` must be called when a node or its books have changed.
    """

    def __init__(self, nodes: Nodes, ledger: Ledger) -> None:
        self._nodes = nodes
        self._ledger = ledger
        self._of_node: dict[str, int] = {}
        self._numbers: dict[tuple[int, BooksState], int] = {}
        self._last = UNKNOWN

    @property
    def most(self) -> int:
        """How many states are worth remembering; beyond that many no node is in any more."""
        return 2 * len(self._nodes) + SPARE

    def forget(self, node: str) -> None:
        """The node or its books changed."""
        self._of_node.pop(node, None)

    def of(self, node: str) -> int:
        """The number of the state that a node is in now, or UNKNOWN."""
        if (number := self._of_node.get(node)) is not None:
            return number
        if (kind := self._nodes.kind(node)) is None:
            return UNKNOWN
        number = self._number(kind, self._ledger.state(node))
        self._of_node[node] = number
        return number

    def look_up(self, names: Sequence[str], answers: Mapping[int, Answer]) -> list[Answer | None]:
        """For each name the answer of its state; None where that or the state is not known yet.

        One pass without a line of Python for each name: thousands of names are asked about at once.
        """
        return list(map(answers.get, map(self._of_node.get, names)))  # type: ignore[arg-type]  # None is no key

    def in_use(self) -> set[int]:
        """The states in which nodes are known to be."""
        return set(self._of_node.values())

    def _number(self, kind: int, books: BooksState) -> int:
        if (number := self._numbers.get((kind, books))) is not None:
            return number
        if len(self._numbers) >= self.most:
            in_use = self.in_use()
            self._numbers = {state: number for state, number in self._numbers.items() if number in in_use}
        self._last += 1
        self._numbers[kind, books] = self._last
        return self._last
