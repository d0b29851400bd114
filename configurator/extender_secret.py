"""The Secret that the extender reads its certificates from, as a manifest."""

from __future__ import annotations

import base64
import re
from dataclasses import dataclass
from typing import Self

_NAMESPACE = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", re.ASCII)
_NAME = re.compile(r"(?=.{1,253}$)[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*", re.ASCII)
_WRITTEN = re.compile(rb'^metadata:\n  name: "([^"\n]+)"\n  namespace: "([^"\n]+)"\n', re.MULTILINE)


@dataclass(frozen=True, slots=True)
class SecretName:
    namespace: str
    name: str

    @classmethod
    def parse(cls, text: str) -> Self:
        """Raises ValueError."""
        namespace, slash, name = text.partition("/")
        if not slash or not _NAMESPACE.fullmatch(namespace) or not _NAME.fullmatch(name):
            raise ValueError("NAMESPACE/NAME of a Secret")
        return cls(namespace, name)

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


DEFAULT = SecretName("default", "extender-secret")


def name_in(manifest: bytes) -> SecretName | None:
    """Of the Secret in a manifest that `secret_manifest` wrote; None: in something else."""
    found = _WRITTEN.search(manifest)
    try:
        return SecretName.parse(f"{found[2].decode()}/{found[1].decode()}") if found is not None else None
    except ValueError:
        return None


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
        f'  name: "{secret.name}"',  # without the quotes a name such as 2026 would be a number
        f'  namespace: "{secret.namespace}"',
        "type: kubernetes.io/tls",
        "data:",
        *(f"  {name}: {base64.b64encode(content).decode()}" for name, content in data.items()),
    ]
    return ("\n".join(lines) + "\n").encode()
