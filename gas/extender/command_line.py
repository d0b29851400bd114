"""The command line of ``gas-extender``: the flags of the core and of all parts."""

from collections.abc import Sequence
from dataclasses import replace

from gas.daemon.flags import CommandLine, UsageError, read_flags
from gas.extender.admission.flags import AdmissionFlags
from gas.extender.flags import Flags
from gas.extender.parts import PARTS
from gas.placement.order import LeastUsed
from gas.vocabularies.selection import VOCABULARY_FLAGS, configured, unused_flags

DEFAULT_QPS = 5.0
DEFAULT_BURST = 10
MOST_REQUESTS = 1000
"""The original's defaults of ``--qps`` and ``--burst``, and its upper limit of both."""

COMMAND_LINE = CommandLine(
    Flags, (*VOCABULARY_FLAGS, AdmissionFlags, *(part.flags for part in PARTS if part.flags is not None))
)


def parse_flags(argv: Sequence[str]) -> Flags:
    """Parse the arguments after the program's name. Raises UsageError."""
    flags = read_flags(COMMAND_LINE, argv)
    admission = flags.of(AdmissionFlags)
    if admission.client_names and admission.client_ca is None:
        raise UsageError(
            "flag --admission-client-names: without --admission-client-ca callers need no certificate, so they have no"
            " name; set it as well"
        )
    qps, burst, warnings = _request_limit(flags.qps, flags.burst)
    if balanced := flags.balanced_resource:
        if flags.order_of_cards != LeastUsed(balanced):
            warnings.append("flag --balancedResource: ignored, because --card-order is given as well")
        elif "/" in balanced:
            name = balanced.rpartition("/")[2] or "millicores"
            warnings.append(
                f"flag --balancedResource: no card has a resource named {balanced[:80]!r}, so all cards count as"
                f" equally used; leave the prefix out, as in --balancedResource={name[:80]}"
            )
    return replace(
        flags,
        qps=qps,
        burst=burst,
        vocabularies=configured(flags.vocabularies, flags),
        warnings=(
            *warnings,
            *unused_flags(flags.vocabularies, flags),
            *filter(None, (part.warn(flags) for part in PARTS)),
            *flags.warnings,
        ),
    )


def _request_limit(qps: float | None, burst: int | None) -> tuple[float | None, int | None, list[str]]:
    if qps is None and burst is None:
        return None, None, []
    asked = {"qps": DEFAULT_QPS if qps is None else qps, "burst": DEFAULT_BURST if burst is None else burst}
    warnings = [
        f"flag --{name}: {number:g} is over the maximum, using {MOST_REQUESTS}"
        for name, number in asked.items()
        if number > MOST_REQUESTS
    ]
    return min(asked["qps"], MOST_REQUESTS), int(min(asked["burst"], MOST_REQUESTS)), warnings
