"""Write certificate files for the sandbox and the tests: an authority, and what it signs for servers and clients."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from configurator.certificates import CLIENT_NAME, LIFE, Pair, mint_authority, mint_client, mint_server


@dataclass(frozen=True, slots=True)
class PemFiles:
    """A certificate and its key on disk. Only the owner may read the key."""

    certificate: Path
    key: Path


class Authority:
    """A certificate authority whose files lie in ``directory``, the certificate of NAME in ``NAME.crt``.

    Two authorities of the same name differ: each has a key of its own.
    """

    def __init__(self, directory: Path, name: str = "ca") -> None:
        self.directory = directory
        self.pair = mint_authority(datetime.now(UTC), name=name)
        self.certificate = directory / f"{name}.crt"
        self.certificate.write_bytes(self.pair.chain)

    def server(
        self, name: str = "server", *, hosts: Sequence[str] = ("localhost", "127.0.0.1"), life: timedelta = LIFE
    ) -> PemFiles:
        """Write ``NAME.crt`` for a server of ``hosts``, names or addresses, and ``NAME.key``."""
        pair = mint_server(self.pair, hosts, datetime.now(UTC), name=name, life=life)
        return write_pair(pair, self.directory / f"{name}.crt", self.directory / f"{name}.key")

    def client(
        self, name: str = CLIENT_NAME, *, file: str = "", now: datetime | None = None, life: timedelta = LIFE
    ) -> PemFiles:
        """Write ``FILE.crt`` for a client of this common name, and ``FILE.key``; FILE is its name if not given.

        The certificate is valid from ``now`` on; with a negative ``life`` it has already expired.
        """
        pair = mint_client(self.pair, now or datetime.now(UTC), name=name, life=life)
        return write_pair(pair, self.directory / f"{file or name}.crt", self.directory / f"{file or name}.key")


def write_pair(pair: Pair, certificate: Path, key: Path) -> PemFiles:
    certificate.write_bytes(pair.chain)
    key.touch(mode=0o600)
    key.write_bytes(pair.key_text)
    return PemFiles(certificate, key)
