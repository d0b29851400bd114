"""Flags in Go's spelling: the text that describes them."""

from __future__ import annotations

from gas.daemon.go_flags import GoFlag, describe_flags


def test_a_path_is_never_broken_at_its_hyphens() -> None:
    path = "deploy/extender-configuration/config.yaml"
    flag = GoFlag("f", str, "", "FILE", "the configuration that is written where there is none, as in " + path)
    for width in range(80, 120):
        assert path in describe_flags({"Files": [flag]}, width=width)
