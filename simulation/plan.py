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

    @property
    def is_by_users(self) -> bool:
        return self.act in _BY_USERS

    @property
    def is_about_extenders(self) -> bool:
        """Return whether something fails that kubelets and device plugins do not notice."""
        first = self.args[0] if self.args else ""
        client = first.get("clients", "") if isinstance(first, dict) else first
        named = str(client).startswith(("extender", "leader", "standby", "scheduler"))
        return named or self.act in _ABOUT_EXTENDERS


@dataclass(frozen=True, slots=True)
class Plan:
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
    placed: int = 0  # pods that each node has from the beginning, instead of a kubelet
    features: frozenset[str] = frozenset()  # what few histories have, see `simulation.plans`

    @property
    def shows_promises(self) -> bool:
        """True if nothing hides nominations and bookings from the extender, so that no promise may be broken."""
        return "volumes" in self.scenario and all(step.act != "lose_history" for step in self.steps)

    @property
    def shows_groups(self) -> bool:
        """True if no promise to a PodGroup is lost, so that each must be whole."""
        lost = ("kill_now", "stop_extender", "lose_history")
        return self.scenario == "pod_groups" and all(step.act not in lost for step in self.steps)

    def cards_at_first(self, node: str) -> tuple[int, ...]:
        """Return the cards that a new node says it has: none if its device plugin writes them later."""
        return () if "written nodes" in self.features else self.nodes[int(node[1:])]

    @property
    def has_faults(self) -> bool:
        """True if anything fails, apart from what users do."""
        return not all(step.is_by_users for step in self.steps)

    @property
    def disturbs_nodes(self) -> bool:
        """True if anything fails between API server, kubelets and device plugins."""
        return not all(step.is_by_users or step.is_about_extenders for step in self.steps)


_BY_USERS = (
    *("create_pod", "create_share", "create_in_words", "delete_pod", "touch_pod", "edit_pod", "bind_by_hand"),
    *("label_node", "create_sharepod", "delete_sharepod", "evict_pod", "create_pod_group"),
)
_ABOUT_EXTENDERS = ("late_bindings", "slow_reviews", "stale_endpoints", "throttle", "restart_scheduler", "relabel_node")
