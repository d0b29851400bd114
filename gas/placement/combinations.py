"""Every way to pick some of the options of one container that could make a difference."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence

from gas.cards import Card
from gas.placement.free_capacity import Pick
from gas.placement.steps import Steps


def combinations(
    options: Sequence[Pick], alike: Sequence[Hashable], count: int, steps: Steps
) -> Iterator[tuple[Pick, ...]]:
    """Every set of ``count`` options without a common card, the one with the earliest options first.

    alike  for each option, a value that is equal for options that are interchangeable: once everything with
           an option has been asked for and the next set is wanted, nothing with an option like it in its
           place is worth trying
    steps  one is spent for each option put into a set; the sets end early when they have run out
    """
    chosen: list[int] = []
    held: list[Card] = []
    tried: list[set[Hashable]] = [set()]  # for each place of the set, what is not tried there (any more)
    at = 0
    while True:
        if len(chosen) < count:
            still_enough = range(at, len(options) - (count - len(chosen)) + 1)
            index = next(
                (
                    index
                    for index in still_enough
                    if alike[index] not in tried[-1] and not any(card in held for card in options[index].cards)
                ),
                None,
            )
            if index is not None:
                if not steps.spend():
                    return
                chosen.append(index)
                held.extend(options[index].cards)
                tried.append(set(tried[-1]))
                at = index + 1
                continue
        else:
            yield tuple(options[index] for index in chosen)
        if not chosen:
            return
        tried.pop()
        last = chosen.pop()
        del held[-len(options[last].cards) :]
        tried[-1].add(alike[last])
        at = last + 1
