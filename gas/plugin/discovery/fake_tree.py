"""Telling a generated tree of files from a node's own: what is handed out from one is no GPU."""

from __future__ import annotations

from pathlib import Path

from gas.plugin.discovery.sysfs_files import is_there

FAKE_TREE_MARKER = "gas-fake-gpus"
"""Name of a file at the root of a generated tree."""


def fake_tree_warning(root: Path) -> str | None:
    """The sentence to say loudly when ``root`` is a generated tree, else None."""
    if not is_there(root / FAKE_TREE_MARKER):
        return None
    return f"THE GPUS OF THIS NODE ARE FAKE: {root} is a generated tree, for demonstrations and tests only"
