"""Represent the plan of a history: what users do and what fails, step by step."""

from dataclasses import dataclass
from typing import Any

ACTIVE = 60.0  # most seconds in which things happen; the last fault ends with them

REPLICAS = ("extender-a", "extender-b")


@dataclass(frozen=True, slots=True)
class Step:
    """One act of the outside world: the method of `Acts` that is called, and its arguments."""

    at: float
    act: str
    args: tuple[Any, ...] = ()

    def __str__(self) -> str:
        return f"{self.at:.3f} {self.act}({', '.join(map(repr, self.args))})"


@dataclass(frozen=True, slots=True)
class Plan:
    """A whole history."""

    seed: int
    nodes: tuple[tuple[int, ...], ...]  # the cards of each node
    webhooks: bool  # the API server has Bindings and new pods reviewed
    steps: tuple[Step, ...]
    active: float = ACTIVE  # seconds in which things happen
    eager: bool = False  # the scheduler tries refused pods repeatedly without a reason
    plugins: bool = False
    mixed: bool = False  # pods may use other vocabularies than Intel's
    preemption: bool = False  # pods have priorities, and more important ones evict others
    page: int = 0  # most objects that the API server puts on a page of a list; 0: as many as clients ask for
    scenario: str = ""  # faults that belong together; empty if there are none

    @property
    def has_faults(self) -> bool:
        """True if anything fails, apart from what users do."""
        return any(step.act not in _BY_USERS for step in self.steps)


_BY_USERS = ("create_pod", "create_share", "create_in_words", "delete_pod", "touch_pod", "edit_pod", "bind_by_hand")
