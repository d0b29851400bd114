"""The options of every command that name the cluster and the account, as kubectl has them."""

import math
import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, fields
from typing import Any, TypeVar

import click

from gas.cluster.credentials import DEFAULT_KUBECONFIG, Credentials, Overrides, credentials_of, existing_files
from gas.cluster.errors import NoCluster
from gas.cluster.plain_kubeconfig import UNUSABLE, plain_contexts
from gas.daemon.flag_values import duration
from gas.values.errors import GasError
from gas.values.quoted import quoted

SILENCE = 10.0  # seconds that the API server may send nothing before a command gives up

DEFAULT_NAMESPACE = "default"

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Where(Overrides):
    """The cluster that a command line names, and the account; an empty ``kubeconfig`` stands for the usual one."""

    kubeconfig: str = ""
    patience: float = SILENCE  # seconds that the API server may send nothing

    def __post_init__(self) -> None:
        if self.groups and not self.user:
            raise click.UsageError("option --as-group: expected --as with the account of the group as well")

    async def credentials(self) -> Credentials:
        """Read the credentials. Raises NoCluster."""
        return await credentials_of(self.kubeconfig, os.environ, self)

    def contexts(self) -> tuple[str, Mapping[str, Mapping[str, Any]]]:
        """Return the current context of the kubeconfigs that exist, and all contexts. Raises NoCluster."""
        paths = self.kubeconfig or os.environ.get("KUBECONFIG") or DEFAULT_KUBECONFIG
        if not (files := existing_files(paths)):
            return "", {}
        with suppress(*UNUSABLE):
            return plain_contexts(files)
        from gas.cluster.kubeconfig import read_contexts  # which imports the official client

        return read_contexts(paths)

    @property
    def own_namespace(self) -> str:
        """The namespace of the kubeconfig's context; ``default`` if it names none or cannot be read."""
        with suppress(NoCluster):
            current, contexts = self.contexts()
            return str(contexts.get(self.context or current, {}).get("namespace") or DEFAULT_NAMESPACE)
        return DEFAULT_NAMESPACE


def completed(names: Callable[[Where], Iterable[str]]) -> Callable[..., list[str]]:
    """Complete a word by names in the cluster or its kubeconfig, or by nothing if they cannot be read."""

    def complete(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
        given = {each.name: context.params[each.name] for each in fields(Where) if context.params.get(each.name)}
        try:
            where = Where(**given)
            return [name for name in names(where) if name.startswith(incomplete) and name.isprintable()]
        except (GasError, click.UsageError):
            return []

    return complete


class Parsed(click.ParamType[T]):
    """The type of an option whose value is parsed as flags of the programs are."""

    name = "value"

    def __init__(self, parse: Callable[[str], T]) -> None:
        self._parse = parse

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> T:
        try:
            return self._parse(str(value))
        except ValueError as expected:
            self.fail(f"expected {expected}, found {quoted(value)}", param, ctx)


def connection_options(*names_of_timeout: str) -> list[click.Parameter]:
    """Return the options with the names of the fields of `Where`. ``names_of_timeout`` are further ones of that."""
    contexts = completed(lambda where: where.contexts()[1])
    timeout = ["--request-timeout", *names_of_timeout, "patience"]
    return [
        click.Option(
            ["--kubeconfig"],
            metavar="FILE",
            default="",
            show_default="$KUBECONFIG, else ~/.kube/config; in a pod its service account",
            help="Kubeconfig with which to reach the cluster.",
        ),
        click.Option(
            ["--context"], metavar="NAME", default="", help="Context of the kubeconfig.", shell_complete=contexts
        ),
        click.Option(["-s", "--server"], metavar="URL", default="", help="API server to use."),
        click.Option(["--token"], metavar="TOKEN", default="", help="Token to log in with."),
        click.Option(["--as", "user"], metavar="USER", default="", help="Account to act as."),
        click.Option(
            ["--as-group", "groups"], metavar="GROUP", multiple=True, help="Group to act as. May be repeated."
        ),
        click.Option(
            timeout,
            metavar="TIME",
            type=Parsed(lambda text: duration(text) or math.inf),
            default=f"{SILENCE:g}s",
            show_default=True,
            help="Longest silence of the API server; 0 for any.",
        ),
    ]
