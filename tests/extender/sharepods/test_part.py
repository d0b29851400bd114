"""The flag of SharePods."""

from __future__ import annotations

from gas.extender.command_line import parse_flags
from gas.extender.sharepods.part import SHAREPODS


def test_sharepods_need_their_vocabulary() -> None:
    assert not SHAREPODS.is_on(parse_flags([]))
    assert SHAREPODS.is_on(parse_flags(["--sharepods", "--vocabularies=intel,kubeshare"]))
    ignored = parse_flags(["--sharepods"])
    assert not SHAREPODS.is_on(ignored)
    assert ignored.warnings == ("ignored: --sharepods; it needs kubeshare among --vocabularies",)
