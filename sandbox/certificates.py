"""Write certificate files for the sandbox and the tests: an authority, and what it signs for servers and clients."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from configurator.certificates import AUTHORITY_LIFE, CLIENT_NAME, LIFE, Pair, mint_authority, mint_client, mint_server


@dataclass(frozen=True, slots=True)
class PemFiles:
    """A certificate and its key on disk. Only the owner may read the key."""

    certificate: Path
    key: Path


class Authority:
    """A certificate authority that writes files. Two authorities of the same name differ: each has a key of its own.

    A certificate goes to ``NAME.crt``, its key to ``NAME.key``.
    """

    def __init__(self, name: str = "sandbox-ca") -> None:
        self._pair = mint_authority(datetime.now(UTC), name=name, life=AUTHORITY_LIFE)

    def write(self, directory: Path, name: str = "ca") -> Path:
        path = directory / f"{name}.crt"
        path.write_bytes(self._pair.chain)
        return path

    def write_server(
        self,
        directory: Path,
        name: str = "server",
        *,
        hosts: Sequence[str] = ("localhost", "127.0.0.1"),
    ) -> PemFiles:
        """Write a server certificate for ``hosts``, names or addresses, and its key."""
        return _write(mint_server(self._pair, hosts, datetime.now(UTC)), directory, name)

    def write_client(
        self,
        directory: Path,
        name: str = "client",
        *,
        common_name: str = CLIENT_NAME,
        now: datetime | None = None,
        life: timedelta = LIFE,
    ) -> PemFiles:
        """Write a client certificate from ``now`` on, and its key; with a negative ``life`` it has already expired."""
        return _write(mint_client(self._pair, now or datetime.now(UTC), name=common_name, life=life), directory, name)


def _write(pair: Pair, directory: Path, name: str) -> PemFiles:
    files = PemFiles(directory / f"{name}.crt", directory / f"{name}.key")
    files.certificate.write_bytes(pair.chain)
    files.key.touch(mode=0o600)
    files.key.write_bytes(pair.key_text)
    return files
