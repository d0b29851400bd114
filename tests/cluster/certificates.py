"""Throwaway certificates for a server on 127.0.0.1."""

from __future__ import annotations

import ssl
from pathlib import Path

from sandbox.certificates import Authority


def serving_context(directory: Path, name: str) -> tuple[Path, ssl.SSLContext]:
    """Return the file of a new authority, and a TLS context with a certificate that it has signed."""
    authority = Authority(directory, name)
    files = authority.server(f"{name}-server")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files.certificate, files.key)
    return authority.certificate, context
