"""TLS towards the extender, with the files that kube-scheduler uses."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import ssl
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientFiles:
    """PEM files that can be read here; None for those that cannot, or that are not configured."""

    certificate: Path | None
    key: Path | None
    authority: Path | None


@dataclass(frozen=True, slots=True)
class Shown:
    """What the extender showed: its certificate as DER, and why it is not believed; empty: it is, or nothing is known
    to believe it by."""

    certificate: bytes | None
    not_verified: str


def client_context(files: ClientFiles, *, verify: bool) -> ssl.SSLContext:
    """A context as Go's client has it. Raises ssl.SSLError and OSError for files that cannot be used."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if verify and files.authority is not None:
        context.load_verify_locations(files.authority)
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # whatever is in the file is trusted, as in Go
    else:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if files.certificate is not None and files.key is not None:
        context.load_cert_chain(files.certificate, files.key, password="")
    return context


async def shake_hands(address: tuple[str, int], host: str, files: ClientFiles, timeout: float) -> Shown | str:
    """Connect and look at the certificate. A text says why no connection came about."""
    shown = await _shake(address, host, files, timeout, verify=True)
    if isinstance(shown, ssl.SSLCertVerificationError):
        unverified = await _shake(address, host, files, timeout, verify=False)
        reason = shown.verify_message or "it cannot be verified"
        return Shown(unverified if isinstance(unverified, bytes) else None, reason)
    return Shown(shown, "") if isinstance(shown, bytes) else _words(shown)


async def _shake(
    address: tuple[str, int], host: str, files: ClientFiles, timeout: float, *, verify: bool
) -> bytes | Exception:
    try:
        context = client_context(files, verify=verify)
        async with asyncio.timeout(timeout):
            _, writer = await asyncio.open_connection(*address, ssl=context, server_hostname=host)
    except (OSError, TimeoutError, ValueError) as error:  # ValueError: a name that no certificate can have
        return error
    shown: bytes | None = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.close()
    with contextlib.suppress(OSError, TimeoutError):
        async with asyncio.timeout(1):
            await writer.wait_closed()
    return shown or b""


def _words(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "no connection in time"
    if isinstance(error, ssl.SSLError):
        return f"TLS fails: {(error.reason or str(error)).replace('_', ' ').lower()}"
    if isinstance(error, OSError) and error.errno is not None and not isinstance(error, socket.gaierror):
        return os.strerror(error.errno)  # asyncio's own words are "Connect call failed"
    return str(error) or type(error).__name__
