"""The extender's last decisions, read from its document ``/debug/decisions``."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from gas.extender.decisions import Decision
from gas.values.errors import GasError

_DECODER = msgspec.json.Decoder(list[Decision])


class UnreadableDecisions(GasError):
    """The document is not one of an extender that keeps its decisions."""


def parse_decisions(document: bytes) -> list[Decision]:
    """Return the decisions of a document. Raises UnreadableDecisions."""
    try:
        return _DECODER.decode(document)
    except (msgspec.DecodeError, RecursionError) as error:
        raise UnreadableDecisions(
            f"expected the document /debug/decisions of gas-extender, found something else: {error}"
        ) from error


def past_details(decisions: Iterable[Decision], uid: str) -> tuple[str, ...]:
    """Return sentences about the last decision on a pod; none if it is not known."""
    last = next((each for each in decisions if each.uid == uid), None)
    if last is None:
        return ()
    took = ", ".join(f"{verb} {amount:.1f} ms" for verb, amount in last.milliseconds.items())
    if last.error:
        return (f"the last attempt to bind it, to {last.node}, failed ({took}): {last.error}",)
    found = [f"the decision took {took}"]
    if last.passing is not None:
        score = f"; the score of {last.node} was {last.score}" if last.score is not None else ""
        found.append(f"{_nodes(last.passing)} had room then{score}")
    if last.alternatives:
        others = ", ".join(
            each.node if each.score is None else f"{each.node} (score {each.score})" for each in last.alternatives
        )
        found.append(f"it could have had {others} instead")
    return tuple(found)


def _nodes(number: int) -> str:
    return "1 node" if number == 1 else f"{number} nodes"
