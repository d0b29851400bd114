"""Run the demo on the command line: ``python -m sandbox``."""

import argparse
import asyncio
import signal
import sys
from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import Any, TypeVar

from gas.daemon.command import INTERRUPTED, quiet_end_on_signals
from gas.values.errors import GasError

T = TypeVar("T")

EXAMPLES = Path(__file__).parents[1] / "examples"
_PIPE_WIDTH = 200


_DESCRIPTION = """\
Run the real extender and the real device plugins against a Kubernetes cluster that is simulated in this process.

Without FILE, the pods of examples/ are scheduled to nodes with fake GPUs, run for a few seconds, and end. With the name
of a directory, those of another directory of examples, such as examples/aliyun, are.
With FILE, the demo shows where each waiting pod of your own cluster would go. Nothing runs then."""

_EPILOG = """\
examples:
  python -m sandbox
  kubectl get nodes,pods -A -o yaml > cluster.yaml && python -m sandbox cluster.yaml
  python -m sandbox cluster.yaml -- --balancedResource=millicores   # with a flag of the extender
  make demo ARGS=cluster.yaml
  make demo ARGS=examples/aliyun
  make demo ARGS=--page                 # keep the examples running, and show them in a browser"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the demo and return its exit code.

    0: done. 1: the sandbox cannot run. 2: wrong usage, or a file or an object in it that cannot be used. 130:
    interrupted. If the extender does not start: its exit code.
    """
    arguments, flags = _parsed(sys.argv[1:] if argv is None else argv)
    try:
        return 0 if _show(arguments.file, arguments.svg, flags, page=arguments.page) else 2
    except KeyboardInterrupt:
        return INTERRUPTED
    except (GasError, ExceptionGroup) as error:
        known = _gas_error(error)
        if known is None:
            raise
        sys.stderr.write(f"gas-sandbox: {known}\n")
        return known.exit_code


def _show(file: Path | None, svg: Path | None, flags: Sequence[str], *, page: bool = False) -> bool:
    with quiet_end_on_signals():
        from rich.console import Console

        from sandbox.demo.examples import flags_of, show_examples, show_page
        from sandbox.demo.manifests import read_manifests
        from sandbox.demo.own_cluster import show_cluster
        from sandbox.demo.picture import draw

    console = Console(highlight=False, emoji=False, width=None if sys.stdout.isatty() else _PIPE_WIDTH)
    if file is not None and not file.is_dir():
        manifests = read_manifests(file)
        console.print("API server and scheduler are simulated in this process. The extender is the real program.")
        return _run_until_interrupted(show_cluster(console, file, manifests, flags, page=page))
    directory = file or EXAMPLES
    console.print(
        "API server, scheduler and kubelets are simulated in this process. "
        "The extender and the device plugins are the real programs."
    )
    flags = [*flags_of(directory), *flags]
    if page:
        _run_until_interrupted(show_page(console, directory, flags))
        return True
    run = _run_until_interrupted(show_examples(console, directory, flags))
    if svg is not None:
        svg.write_text(draw(run), encoding="utf-8")
    return True


def _run_until_interrupted(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on its own event loop. Raises KeyboardInterrupt after SIGINT, SIGTERM or SIGHUP.

    The first of these signals cancels the work, so that it stops everything that it has started. Further signals are
    ignored meanwhile: otherwise some of it would keep running.
    """

    async def interruptible() -> T:
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


def _gas_error(error: BaseException) -> GasError | None:
    """Return the error with a sentence for the user, also from groups that tasks raise; None if there is none."""
    if isinstance(error, BaseExceptionGroup):
        return next((known for each in error.exceptions if (known := _gas_error(each)) is not None), None)
    return error if isinstance(error, GasError) else None


def _parsed(argv: Sequence[str]) -> tuple[argparse.Namespace, list[str]]:
    """Return the arguments of the demo, and the extender's flags that follow ``--``."""
    argv = list(argv)
    flags = argv[argv.index("--") + 1 :] if "--" in argv else []
    own = argv[: argv.index("--")] if "--" in argv else argv
    parser = argparse.ArgumentParser(
        prog="gas-sandbox",
        usage="python -m sandbox [--svg PICTURE | --page] [FILE] [-- FLAG ...]",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument(
        "file",
        metavar="FILE",
        nargs="?",
        type=Path,
        help="nodes and pods as YAML or JSON, as kubectl writes them, or a directory of examples",
    )
    parser.add_argument("--svg", metavar="PICTURE", type=Path, help="draw the run of the examples into this SVG file")
    parser.add_argument("--page", action="store_true", help="serve the page that shows it in a browser, until Ctrl-C")
    arguments = parser.parse_args(own)
    if arguments.page and arguments.svg is not None:
        parser.error("--page and --svg exclude each other; leave out one of them")
    if arguments.svg is not None and arguments.file is not None:
        parser.error("--svg draws the examples only; leave out FILE")
    return arguments, flags


if __name__ == "__main__":
    sys.exit(main())
