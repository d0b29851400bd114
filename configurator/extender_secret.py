"""The Secret that the extender reads its certificates from, as a manifest."""

from __future__ import annotations

import base64
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SecretName:
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


def secret_manifest(secret: SecretName, *, certificate: bytes, key: bytes, authority: bytes) -> bytes:
    """Of the type that ``kubectl create secret tls`` makes, since a type can never change, and with ``ca.crt``.

    certificate, key  what the extender serves with
    authority         whose certificates it believes when a client shows one
    """
    data = {"ca.crt": authority, "tls.crt": certificate, "tls.key": key}
    lines = [
        "apiVersion: v1",
        "kind: Secret",
        "metadata:",
        f"  name: {secret.name}",
        f"  namespace: {secret.namespace}",
        "type: kubernetes.io/tls",
        "data:",
        *(f"  {name}: {base64.b64encode(content).decode()}" for name, content in data.items()),
    ]
    return ("\n".join(lines) + "\n").encode()
