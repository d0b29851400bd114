"""Company: labels that decide with which other pods a pod shares a card.

Containers of one pod may share a card whatever the pod's labels are.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Company:
    """The company labels of a pod; an empty text stands for a label that the pod does not have.

    affinity       a card must be idle or have a pod with the same affinity
    anti_affinity  a card must have no pod with the same anti-affinity
    exclusion      all pods of a card must have the same exclusion; having none counts as a value, too
    """

    affinity: str = ""
    anti_affinity: str = ""
    exclusion: str = ""

    def has_affinity(self, others: Collection[Company]) -> bool:
        """Return whether affinity lets a pod with these labels join the pods of a card; a card without pods is idle."""
        return not self.affinity or not others or any(other.affinity == self.affinity for other in others)

    def has_no_anti_affinity(self, others: Collection[Company]) -> bool:
        """Return whether anti-affinity lets a pod with these labels join the pods of a card."""
        return not self.anti_affinity or all(other.anti_affinity != self.anti_affinity for other in others)

    def has_same_exclusion(self, others: Collection[Company]) -> bool:
        """Return whether exclusion lets a pod with these labels join the pods of a card."""
        return all(other.exclusion == self.exclusion for other in others)


NO_COMPANY = Company()
"""The labels of a pod that has none."""
