"""A certificate authority for one test run, and the key pairs that it signs."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from cryptography.hazmat.primitives import serialization

from configurator.certificates import Pair, mint_authority, mint_client, mint_server


@dataclass(frozen=True, slots=True)
class KeyPair:
    """PEM files of a certificate and its private key."""

    certificate: Path
    key: Path


class Authority:
    """Sign certificates for servers on loopback and for clients."""

    def __init__(self, directory: Path, *, name: str = "e2e-ca") -> None:
        self._directory = directory
        self._pair = mint_authority(datetime.now(UTC), name=name)
        self.certificate = directory / f"{name}.crt"
        self.certificate.write_bytes(self._pair.chain)

    def write(self, certificate: Path, key: Path) -> None:
        """Write its certificate and key for another program that signs with them."""
        _write(self._pair, certificate, key)

    def server(self, name: str) -> KeyPair:
        """Sign a certificate for a server on localhost and 127.0.0.1."""
        return self._signed(name, mint_server(self._pair, ("localhost", "127.0.0.1"), datetime.now(UTC), name=name))

    def client(self, name: str) -> KeyPair:
        return self._signed(name, mint_client(self._pair, datetime.now(UTC), name=name))

    def _signed(self, name: str, pair: Pair) -> KeyPair:
        return _write(pair, self._directory / f"{name}.crt", self._directory / f"{name}.key")


def write_token_keys(directory: Path) -> KeyPair:
    """Write the keys with which kube-apiserver signs and checks tokens; `certificate` is a public key."""
    pair = mint_authority(datetime.now(UTC))
    files = _write(pair, directory / "service-accounts.pub", directory / "service-accounts.key")
    form = serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    files.certificate.write_bytes(pair.key.public_key().public_bytes(*form))
    return files


def _write(pair: Pair, certificate: Path, key: Path) -> KeyPair:
    certificate.write_bytes(pair.chain)
    key.touch(mode=0o600)
    key.write_bytes(pair.key_text)
    return KeyPair(certificate, key)
