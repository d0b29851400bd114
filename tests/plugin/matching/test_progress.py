"""What kubelet says of one pod, taken in again and again."""

from __future__ import annotations

from collections.abc import Mapping

from gas.plugin.kubelet.listing import ContainerIds, Ids
from gas.plugin.matching.progress import Progress
from tests.builders import container
from tests.plugin.pods_for_plugin import ids, seen

POD = seen(container("c", i915=1), container("d", i915=1))
NOTHING_YET: ContainerIds = {"c": {}, "d": {}}
"""The very same object every time: kubelet's list is not decoded again while it stays the same."""


class LooksCounted(dict[str, Mapping[str, Ids]]):
    looks = 0

    def __getitem__(self, name: str) -> Mapping[str, Ids]:
        self.looks += 1
        return super().__getitem__(name)


def test_what_is_settled_and_the_same_is_not_looked_at_again() -> None:
    progress = Progress(POD)
    listed = LooksCounted(c={"i915": ids("card0-0")}, d={})
    progress.take_in(listed, is_settled=True)
    looks = listed.looks
    progress.take_in(listed, is_settled=True)
    assert (progress.is_fresh, looks > 0, listed.looks) == (False, True, looks)


def test_an_answer_noted_since_is_held_against_the_same_list() -> None:
    progress = Progress(POD)
    progress.take_in(NOTHING_YET, is_settled=True)
    progress.serve(POD.wants[0], ids("card0-0"))
    progress.take_in(NOTHING_YET, is_settled=False)
    assert not progress.is_fresh
    progress.take_in(NOTHING_YET, is_settled=True)
    assert progress.is_fresh


def test_a_pod_that_the_watch_shows_anew_is_held_against_the_same_list() -> None:
    progress = Progress(POD)
    listed: ContainerIds = {"c": {"i915": ids("card0-0")}, "e": {"i915": ids("card1-0")}}
    progress.take_in(listed, is_settled=True)
    progress.pod = seen(container("c", i915=1), container("e", i915=1))
    progress.take_in(listed, is_settled=True)
    assert progress.is_complete
