"""The verb prioritize: an extender that scores nodes is asked, and no other one."""

from __future__ import annotations

import pytest

from tests.doctor.snapshots import configuration, entry, faults, scheduler, verb_faults

PRIORITIZE = "scheduler/prioritize"


@pytest.mark.parametrize("verb", ["", PRIORITIZE, f"/{PRIORITIZE}"])
def test_an_entry_with_and_without_scores_is_right(verb: str) -> None:
    """No extender is seen."""
    assert faults("scheduler-configuration", schedulers=(scheduler(configuration(entry(prioritizeVerb=verb))),)) == []


@pytest.mark.parametrize(
    ("flags", "verb", "words"),
    [
        (["--node-score=balance"], PRIORITIZE, ""),
        (["--node-score=none"], "", ""),
        ([], PRIORITIZE, "--node-score of gas-extender"),
        (["--node-score", "none"], f"/{PRIORITIZE}", "an error for every GPU pod"),
        (["--node-score=spread"], "", f"prioritizeVerb: {PRIORITIZE}"),
    ],
)
def test_prioritize_is_listed_if_the_extenders_flags_switch_it_on(flags: list[str], verb: str, words: str) -> None:
    found = verb_faults(*flags, prioritizeVerb=verb)
    assert [level for level, _ in found] == (["warning"] if words else [])
    assert all(words in text for _, text in found)
