"""Label selectors as kubectl's ``-l`` takes them: ``app=web,tier!=test,zone in (a,b),!old``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from gas.values.errors import GasError
from gas.values.quoted import quoted


class BadSelector(GasError):
    """The text is not a label selector."""

    exit_code = 2


_KEY = r"[A-Za-z0-9](?:[\w./-]*[A-Za-z0-9])?"
_VALUE = r"[\w.-]*"
_EQUALITY = re.compile(rf"({_KEY})\s*(==|=|!=)\s*({_VALUE})", re.ASCII)
_SET = re.compile(rf"({_KEY})\s+(in|notin)\s*\(([^()]*)\)", re.ASCII)
_PRESENCE = re.compile(rf"(!?)\s*({_KEY})", re.ASCII)
_COMMA = re.compile(r",(?![^(]*\))")


@dataclass(frozen=True, slots=True)
class _Condition:
    """A condition on one label: its values, or whether it is there at all if ``values`` is None."""

    key: str
    values: frozenset[str] | None
    negated: bool

    def is_met(self, labels: Mapping[str, str]) -> bool:
        value = labels.get(self.key)
        found = value is not None and (self.values is None or value in self.values)
        return found != self.negated


@dataclass(frozen=True, slots=True)
class Selector:
    """The conditions of a selector, all of which must be met."""

    conditions: tuple[_Condition, ...]

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Return whether an object with these labels is selected."""
        return all(condition.is_met(labels) for condition in self.conditions)


def parse_selector(text: str) -> Selector:
    """Parse a selector. Raises BadSelector."""
    return Selector(tuple(_condition(part.strip(), text) for part in _COMMA.split(text)))


def _condition(part: str, whole: str) -> _Condition:
    if found := _EQUALITY.fullmatch(part):
        return _Condition(found[1], frozenset((found[3],)), found[2] == "!=")
    if found := _SET.fullmatch(part):
        return _Condition(found[1], frozenset(value.strip() for value in found[3].split(",")), found[2] == "notin")
    if found := _PRESENCE.fullmatch(part):
        return _Condition(found[2], None, bool(found[1]))
    raise BadSelector(
        f"flag -l: expected a label selector such as app=web,tier!=test,zone in (a,b), found {quoted(whole)}"
    )
