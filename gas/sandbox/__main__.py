"""``python -m gas.sandbox``: the demo on the command line."""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import Any, TypeVar

from gas.errors import GasError

Result = TypeVar("Result")


def run_until_interrupted(work: Coroutine[Any, Any, Result]) -> Result:
    """Run it on an event loop of its own. Raises KeyboardInterrupt after SIGINT, SIGTERM or SIGHUP.

    All three cancel the work, so that what it had started does not stay behind. Further ones change nothing while it
    ends: impatience would leave half of it running.
    """

    async def interruptible() -> Result:
        task = asyncio.current_task()

        def interrupt() -> None:
            if task is not None and not task.cancelling():
                task.cancel()

        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, interrupt)
        return await work

    try:
        return asyncio.run(interruptible())
    except asyncio.CancelledError as cancelled:
        raise KeyboardInterrupt from cancelled


EXAMPLES = Path(__file__).parents[2] / "examples"
EXAMPLES_FLAGS = ("--enableAllowlist", "--enableDenylist", "--balancedResource=millicores")
"""What the files of the examples are about needs these."""

_PIPE_WIDTH = 200


def main(argv: Sequence[str] | None = None) -> int:
    """Answers the exit code.

    0 done; 1 the sandbox cannot run; 2 bad usage, a bad file, or one of which objects had to be left out; 130 after
    Ctrl-C; what the extender exits with when it does not start.
    """
    arguments, flags = _parsed(sys.argv[1:] if argv is None else argv)
    try:
        return 0 if _show(arguments.file, flags) else 2
    except KeyboardInterrupt:
        return 130
    except (GasError, ExceptionGroup) as error:
        known = _known(error)
        if known is None:
            raise
        sys.stderr.write(f"gas-sandbox: {known}\n")
        return known.exit_code


def _show(file: Path | None, flags: Sequence[str]) -> bool:
    """Whether nothing had to be left out. The imports are here so that Ctrl-C is heard from the start."""
    from rich.console import Console

    from gas.sandbox.__main__ import run_until_interrupted
    from gas.sandbox.demo.examples import show_examples
    from gas.sandbox.demo.manifests import read_manifests
    from gas.sandbox.demo.own_cluster import show_cluster

    console = Console(highlight=False, emoji=False, width=None if sys.stdout.isatty() else _PIPE_WIDTH)
    manifests = read_manifests(file) if file is not None else None
    sandbox = "A cluster inside one process: API server, scheduler"
    if file is None or manifests is None:
        console.print(f"{sandbox}, kubelets. The extender and the device plugin of each node are the real ones.")
        run_until_interrupted(show_examples(console, EXAMPLES, [*EXAMPLES_FLAGS, *flags]))
        return True
    console.print(f"{sandbox}. The extender is the real one, over TLS.")
    return run_until_interrupted(show_cluster(console, file, manifests, flags))


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
        usage="python -m gas.sandbox [FILE] [-- FLAG ...]",
        description="Run the real extender, and real device plugins, against a cluster inside one process.",
        epilog="Flags of the extender may follow after --, for example: cluster.yaml -- --balancedResource=millicores",
        allow_abbrev=False,
    )
    parser.add_argument(
        "file",
        metavar="FILE",
        nargs="?",
        type=Path,
        help="nodes and pods as YAML or JSON, such as `kubectl get nodes,pods -A -o yaml` writes: says where each "
        "waiting pod would go; without a file the pods of examples/ go the whole way, on nodes with fake GPUs",
    )
    return parser.parse_args(own), flags


if __name__ == "__main__":
    sys.exit(main())
