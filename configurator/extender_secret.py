"""The Secret with the extender's certificates: its name, its manifest, and applying it."""

from __future__ import annotations

import base64
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from gas.cluster.connection import ApiServer

_NAMESPACE = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", re.ASCII)
_NAME = re.compile(r"(?=.{1,253}$)[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*", re.ASCII)
_WRITTEN = re.compile(rb'^metadata:\n  name: "([^"\n]+)"\n  namespace: "([^"\n]+)"\n', re.MULTILINE)


@dataclass(frozen=True, slots=True)
class SecretName:
    """Namespace and name of a Secret. Text form: ``NAMESPACE/NAME``."""

    namespace: str
    name: str

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse the text form. Raises ValueError with what was expected."""
        namespace, slash, name = text.partition("/")
        if not slash or not _NAMESPACE.fullmatch(namespace) or not _NAME.fullmatch(name):
            raise ValueError("NAMESPACE/NAME of a Secret")
        return cls(namespace, name)

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


DEFAULT = SecretName("default", "extender-secret")


def name_in(manifest: bytes) -> SecretName | None:
    """Return the name of the Secret in a manifest that `secret_manifest` wrote; None for any other text."""
    found = _WRITTEN.search(manifest)
    try:
        return SecretName.parse(f"{found[2].decode()}/{found[1].decode()}") if found is not None else None
    except ValueError:
        return None


def secret_manifest(secret: SecretName, *, certificate: bytes, key: bytes, authority: bytes) -> bytes:
    """Return the manifest of the Secret. Its type is that of ``kubectl create secret tls``, since a type cannot change.

    certificate, key  of the extender as a server
    authority         that signs the certificates of its clients
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


async def apply_secret(api: ApiServer, secret: SecretName, manifest: bytes) -> None:
    """Apply the Secret server-side. Idempotent. Raises GasError."""
    await api.request(
        "PATCH",
        f"/api/v1/namespaces/{secret.namespace}/secrets/{secret.name}",
        query={"fieldManager": "gas-configurator", "force": "true"},
        body=manifest,
        content_type="application/apply-patch+yaml",
    )
