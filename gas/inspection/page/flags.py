"""Declare the flags of ``gas-page``."""

import shlex
from dataclasses import dataclass
from typing import ClassVar

from gas.daemon import flag_values as values
from gas.daemon.flags import DaemonFlags, flag
from gas.extender.command_line import parse_flags as parse_extender_flags
from gas.extender.decider import options_of
from gas.inspection.cluster import PlacementSettings


def _settings(text: str) -> PlacementSettings:
    """Parse flags of the extender into its settings. Raises UsageError."""
    try:
        arguments = shlex.split(text)
    except ValueError:
        raise ValueError("flags of gas-extender, with every quote closed") from None
    return PlacementSettings(options_of(parse_extender_flags(arguments)))


def web_address(text: str) -> str:
    """Return the address of a site, without a slash at the end. Raises ValueError with what is expected."""
    if text and not text.startswith(("http://", "https://")):
        raise ValueError("an address such as https://grafana.example.org")
    return text.rstrip("/")


@dataclass(frozen=True, slots=True, kw_only=True)
class Flags(DaemonFlags):
    program: ClassVar[str] = "gas-page"
    summary: ClassVar[str] = (
        "Shows every card and pod of the cluster in a browser. Runs in the extender's pod, and only reads. On your own "
        "machine, use kubectl gas page."
    )

    page_port: int = flag(
        "page-port=N", values.port, "9004", "Port of the page; 0 picks a free port.", group="Page (plain HTTP)"
    )
    page_address: str = flag(
        "page-address=IP",
        values.address,
        "127.0.0.1",
        "Address that --page-port listens on. Whoever reaches it sees all nodes and GPU pods: leave it on loopback, or "
        "put an authenticating proxy in front of it.",
    )
    page_hosts: frozenset[str] = flag(
        "page-hosts=NAME,…",
        values.names,
        "",
        "Names in the address bar under which the page is opened, for example behind a proxy.",
        unset="only localhost and IP addresses",
    )

    page_grafana: str = flag(
        "page-grafana=URL", web_address, "", "Grafana with the project's dashboard, to link to.", unset="no links"
    )

    extender: str = flag(
        "extender=URL",
        str,
        "http://127.0.0.1:9002",
        "URL of the extender's --metrics-port, from which the page reads the last decisions.",
        group="Extender",
    )
    settings: PlacementSettings | None = flag(
        "extender-flags=FLAGS",
        _settings,
        None,
        "Flags of an extender that does not run in a pod, separated by spaces.",
        unset="read from the extender's pod",
    )
