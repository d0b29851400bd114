"""The verb preempt: an extender that serves it is asked, and no other one."""

from __future__ import annotations

import pytest

from tests.doctor.snapshots import configuration, entry, faults, scheduler, verb_faults

PREEMPT = "scheduler/preempt"


@pytest.mark.parametrize(
    ("flags", "verb", "level", "words"),
    [
        (["--preemption"], PREEMPT, "", ""),
        ([], "", "", ""),
        ([], PREEMPT, "problem", "--preemption of gas-extender"),
        (["--preemption=false"], f"/{PREEMPT}", "problem", "does not serve preemptVerb"),
        (["--preemption"], "", "warning", f"preemptVerb: {PREEMPT}"),
    ],
)
def test_preempt_is_listed_if_the_extenders_flags_switch_it_on(
    flags: list[str], verb: str, level: str, words: str
) -> None:
    found = verb_faults(*flags, preemptVerb=verb)
    assert [each for each, _ in found] == ([level] if level else [])
    assert all(words in text for _, text in found)


def test_another_path_of_preempt_is_reported() -> None:
    schedulers = (scheduler(configuration(entry(preemptVerb="preempt"))),)
    ((level, text),) = faults("scheduler-configuration", schedulers=schedulers)
    assert level == "problem"
    assert PREEMPT in text
