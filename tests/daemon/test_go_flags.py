"""Flags in Go's spelling: the text that describes them, and what is told of arguments that are none."""

from __future__ import annotations

import pytest

from gas.daemon.go_flags import GoFlag, UsageError, boolean, describe_flags, read_go_flags


def test_a_path_is_never_broken_at_its_hyphens() -> None:
    path = "deploy/extender-configuration/config.yaml"
    flag = GoFlag("f", str, "", "FILE", "the configuration that is written where there is none, as in " + path)
    for width in range(80, 120):
        assert path in describe_flags({"Files": [flag]}, width=width)


@pytest.mark.parametrize(
    ("argv", "told"),
    [
        pytest.param(
            ["now"], "'now': expected only flags, such as --file=FILE;", id="an example of this program's own"
        ),
        pytest.param(
            ["--loud", "false"], "'false': the value of --loud goes behind =, such as --loud=false;", id="value"
        ),
        pytest.param(["--loud=true", "false"], "'false': expected only flags,", id="a boolean that has its value"),
        pytest.param(["--file", "a", "b"], "'b': expected only flags,", id="a flag that has its value"),
    ],
)
def test_an_argument_that_is_no_flag(argv: list[str], told: str) -> None:
    table = [GoFlag("loud", boolean, True, "", "whether (true)"), GoFlag("file", str, "", "FILE", "which (none)")]
    with pytest.raises(UsageError) as refused:
        read_go_flags(argv, table)
    assert str(refused.value).startswith(f"unexpected argument {told}")
