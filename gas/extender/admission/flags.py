"""The flags of the port that the API server calls."""

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from gas.daemon import flag_values as values
from gas.daemon.flags import PartFlags, flag


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmissionFlags(PartFlags):
    """The port of the webhooks and its certificates. Empty ``client_names`` allow every client with a certificate."""

    switched_by: ClassVar[str] = "admission-port"

    port: int = flag(
        "admission-port=N",
        values.port,
        "0",
        "Port for the admission webhooks, which the API server calls; 0 switches them off.",
        group="Admission webhooks (TLS)",
    )
    certificate: Path | None = flag(
        "admission-certificate=FILE",
        values.file_or_none,
        None,
        "Serving certificate of --admission-port, followed by its chain (PEM).",
        unset="that of --cert",
    )
    key: Path | None = flag(
        "admission-key=FILE",
        values.file_or_none,
        None,
        "Private key of --admission-certificate, not encrypted (PEM).",
        unset="that of --key",
    )
    client_ca: Path | None = flag(
        "admission-client-ca=FILE",
        values.file_or_none,
        None,
        "Certificate authorities that must have signed the API server's client certificate (PEM).",
        unset="callers need no certificate",
    )
    client_names: frozenset[str] = flag(
        "admission-client-names=NAME,…",
        values.names,
        "",
        "Common names or DNS names of the clients that may call the webhooks. Set it if the authorities of "
        "--admission-client-ca sign certificates of others as well.",
        unset="every client with a certificate by --admission-client-ca",
    )
