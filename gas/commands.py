"""The commands for people, ``gas COMMAND`` and ``kubectl gas COMMAND``. Each is imported when it is called.

Programs that run in a cluster have flags in Go's spelling instead, see `gas.daemon.flags`.
"""

import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib import import_module
from typing import Any, NamedTuple

import click
from click.shell_completion import ShellComplete, get_completion_class

from gas.daemon.command import INTERRUPTED, own_version, print_text
from gas.values.quoted import escaped

DONE, BAD_USE = 0, 2
COMPLETE_VARIABLE = "_KUBECTL_GAS_COMPLETE"


class Entry(NamedTuple):
    """A command in the list: the module that defines it under its name, and the first line of its help."""

    module: str
    summary: str


_INSPECTION = "gas.inspection.command_line"

ENTRIES = {
    "doctor": Entry("gas.doctor.command_line", "Report what GPU scheduling still needs, with commands that fix it."),
    "top": Entry(_INSPECTION, "Show what is booked and used of cards."),
    "pods": Entry(_INSPECTION, "List the pods that ask for GPUs."),
    "inspect": Entry(_INSPECTION, "Show everything about one NODE."),
    "fit": Entry(_INSPECTION, "Show where the pods of manifests would land."),
    "why": Entry(_INSPECTION, "Show why a pod waits and what would let it run."),
    "waste": Entry(_INSPECTION, "Show capacity that is of no use."),
    "defrag": Entry(_INSPECTION, "Plan the fewest moves of running pods that make room for a SHAPE."),
    "cordon": Entry(_INSPECTION, "Close a CARD of a NODE to new pods."),
    "uncordon": Entry(_INSPECTION, "Open a CARD of a NODE again."),
    "page": Entry(_INSPECTION, "Show the cluster in a browser."),
    "completion": Entry(__name__, "Print a completion script for a SHELL."),
}
"""All commands, in the order of the help text."""


def say(*sentences: str, program: str = "") -> None:
    """Write sentences to standard error, so that the output of a command stays its result.

    program  needed only where no command is running
    """
    with suppress(AttributeError, OSError):  # the caller has closed standard error, or it is full
        for sentence in sentences:
            sys.stderr.write(f"{program or program_name()}: {escaped(sentence)}\n")


def program_name() -> str:
    """Return the program of the running command as the user typed it: ``kubectl gas`` or ``gas``."""
    return click.get_current_context().find_root().info_name or ""


class Command(click.Command):
    """A command that prints its help as every program does: escaped, and with an exit code if it cannot be written."""

    unwritten = 1

    def get_help_option(self, ctx: click.Context) -> click.Option | None:
        option = super().get_help_option(ctx)
        if option is not None:
            option.callback = _ending_with(lambda context: (context.command_path, context.get_help()))
        return option


def _ending_with(shown: Callable[[click.Context], tuple[str, str]]) -> Callable[..., None]:
    """Return a callback of an option that prints a text and ends the program, whose name comes before the text."""

    def show(context: click.Context, _option: click.Parameter, value: object) -> None:
        if value and not context.resilient_parsing:
            context.exit(print_text(*shown(context), unwritten=getattr(context.command, "unwritten", 1)))

    return show


def version_option(program: str = "") -> Callable[[Any], Any]:
    """Return the option --version, which prints the version and the program's name, by default as it was called."""

    def shown(context: click.Context) -> tuple[str, str]:
        name = program or context.find_root().info_name or ""
        return name, f"{name} {own_version()}"

    return click.option(
        "--version",
        "-version",
        is_flag=True,
        expose_value=False,
        is_eager=True,
        callback=_ending_with(shown),
        help="Show the version and exit.",
    )


class Commands(Command, click.Group):
    """All commands, imported one by one."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(ENTRIES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        entry = ENTRIES.get(cmd_name)
        return None if entry is None else getattr(import_module(entry.module), cmd_name)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] not in ENTRIES:
            raise click.exceptions.NoSuchCommand(args[0], possibilities=ENTRIES, ctx=ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, entry.summary) for name, entry in ENTRIES.items()])

    def loaded(self) -> list[click.Command]:
        """Return all commands, for documentation and tests."""
        context = click.Context(self)
        return [command for name in ENTRIES if (command := self.get_command(context, name)) is not None]


def command(name: str, details: str = "", **settings: Any) -> Callable[[Callable[..., Any]], click.Command]:
    """Define a command of the list. ``details`` are the further paragraphs of its help."""
    return click.command(name, **{"cls": Command, **settings}, help=f"{ENTRIES[name].summary}\n\n{details}")


@click.command(
    "gas",
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help", "-help"], "max_content_width": 110},
    epilog="gas-extender and gas-plugin are the programs that run in a cluster; gas-configurator configures"
    " kube-scheduler to call the extender.",
)
@version_option()
def all_commands() -> None:
    """Show the GPUs of a cluster card by card: what is booked, what is used, who holds it.

    Only cordon and uncordon change anything.
    """


@command("completion", "It completes `kubectl-gas`. For `kubectl gas`, kubectl itself calls kubectl_complete-gas.")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(*, shell: str) -> int:
    """Print a completion script."""
    kind = get_completion_class(shell)
    if kind is None:
        return BAD_USE
    return print_text(program_name(), kind(all_commands, {}, "kubectl-gas", COMPLETE_VARIABLE).source())


def load(arguments: Sequence[str]) -> None:
    """Import the module of the command that a command line begins with, if there is one."""
    if arguments and arguments[0] in ENTRIES:
        import_module(ENTRIES[arguments[0]].module)


def run(arguments: Sequence[str], program: str = "kubectl gas") -> int:
    """Run a command line. Return the exit code."""
    words = ["--help"] if [*arguments] == ["help"] else [*arguments]
    try:
        code = all_commands.main(words, prog_name=program, complete_var=COMPLETE_VARIABLE, standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as error:
        sys.stderr.write(error.format_message() + "\n")
        return BAD_USE
    except click.ClickException as error:
        context = error.ctx if isinstance(error, click.UsageError) else None
        help_of = f"; see {context.command_path} --help" if context is not None else ""
        say(f"{error.format_message().removesuffix('.')}{help_of}", program=program)
        return BAD_USE
    except (click.Abort, KeyboardInterrupt):
        return INTERRUPTED
    return code if isinstance(code, int) else DONE


def complete(words: Sequence[str]) -> str:
    """Return what kubectl shows for the words after ``kubectl gas``, of which the last is incomplete.

    One candidate a line with its help after a tab, then a line for kubectl: ``:4`` offers no file names, ``:0`` does.
    """
    *before, incomplete = words or ("",)
    found = ShellComplete(all_commands, {}, "kubectl-gas", COMPLETE_VARIABLE).get_completions(before, incomplete)
    lines = [f"{item.value}\t{escaped(item.help or '')}".rstrip() for item in found if item.type == "plain"]
    files = any(item.type in ("file", "dir") for item in found)
    return "".join(f"{line}\n" for line in [*lines, ":0" if files else ":4"])
