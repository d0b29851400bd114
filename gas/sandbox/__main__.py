"""``python -m gas.sandbox``: the demo on the command line."""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from gas.errors import GasError
from gas.sandbox.demo import heading, show_cluster, show_examples

EXAMPLES = Path("examples")
EXAMPLES_FLAGS = ("--enableAllowlist", "--enableDenylist", "--balancedResource=millicores")
"""What the files of the examples are about needs these."""


def main(argv: Sequence[str] | None = None) -> int:
    """Answers the exit code: 0, 1 when the sandbox cannot run, 2 for bad usage or a bad file, 130 after Ctrl-C."""
    arguments, flags = _parsed(sys.argv[1:] if argv is None else argv)
    # Lines of a pipe are as wide as they need to be; a terminal has its own width.
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 160)
    heading(console)
    try:
        if arguments.file is None:
            asyncio.run(show_examples(console, EXAMPLES, flags or EXAMPLES_FLAGS))
        else:
            asyncio.run(show_cluster(console, arguments.file, flags))
    except KeyboardInterrupt:
        return 130
    except (GasError, ExceptionGroup) as error:
        known = _known(error)
        if known is None:
            raise
        sys.stderr.write(f"gas-sandbox: {known}\n")
        return known.exit_code
    return 0


def _known(error: BaseException) -> GasError | None:
    """The error made for a person, out of the groups that tasks put it into; None when there is none."""
    if isinstance(error, BaseExceptionGroup):
        return next((known for each in error.exceptions if (known := _known(each)) is not None), None)
    return error if isinstance(error, GasError) else None


def _parsed(argv: Sequence[str]) -> tuple[argparse.Namespace, list[str]]:
    """The file, if any, and what stands after ``--``: flags of the extender."""
    argv = list(argv)
    flags = argv[argv.index("--") + 1 :] if "--" in argv else []
    own = argv[: argv.index("--")] if "--" in argv else argv
    parser = argparse.ArgumentParser(
        prog="gas-sandbox",
        description="Run the real extender against a cluster inside one process.",
        epilog="Flags of the extender may follow after --, for example: cluster.yaml -- --balancedResource=millicores",
        allow_abbrev=False,
    )
    parser.add_argument(
        "file",
        nargs="?",
        type=Path,
        help="nodes and pods as YAML, such as `kubectl get nodes,pods -A -o yaml` writes: says where each waiting pod "
        "would go; without a file the pods of examples/ are placed",
    )
    return parser.parse_args(own), flags


if __name__ == "__main__":
    sys.exit(main())
