"""Keep the authority that the API server trusts in the admission webhooks (``caBundle``) current.

While the extender's authority is replaced, both the earlier and the new one are trusted, so that no review fails
whichever certificate the extender presents.
"""

import base64
import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from configurator.certificates import decode_base64, read_certificates
from configurator.errors import BadCertificate
from gas.cluster.connection import ApiServer
from gas.cluster.objects import get_object

OVERLAP = timedelta(hours=1)
"""Time for which an earlier authority stays trusted. kubelet hands out a changed Secret within two minutes."""

_KINDS = ("validatingwebhookconfigurations", "mutatingwebhookconfigurations")
_MANAGER = "gas-configurator"


def bundle(authority: bytes, found: bytes, *, written: datetime | None, now: datetime) -> bytes:
    """Return the certificates that the API server should trust, as PEM.

    authority  signs the extender's certificate from now on
    found      what is trusted now, may be empty
    written    when this program last changed it; None if it never did

    The authority comes first. Earlier ones follow until they expire, or until `OVERLAP` has passed since they were
    joined by this one.
    """
    wanted = read_certificates(Path("the authority"), authority)
    present = _certificates(found)
    is_settled = set(wanted) <= set(present) and written is not None and now - written >= OVERLAP
    earlier = [] if is_settled else [each for each in present if now <= each.not_valid_after_utc]
    return b"".join(each.public_bytes(Encoding.PEM) for each in dict.fromkeys([*wanted, *earlier]))


async def trust(api: ApiServer, name: str, authority: bytes, now: datetime) -> tuple[list[str], list[str]]:
    """Make both webhook configurations of this name trust the authority. Idempotent.

    Return a sentence for each one that was changed, and the kinds of those that do not exist. Raises ApiRefused with
    status 409 if one was changed by another program meanwhile.
    """
    said, missing = [], []
    for kind in _KINDS:
        path = f"/apis/admissionregistration.k8s.io/v1/{kind}/{name}"
        if (found := await get_object(api, path, dict[str, Any])) is None:
            missing.append(kind)
            continue
        changed = _changed(found, authority, now)
        if changed:
            body = {"metadata": {"resourceVersion": found["metadata"]["resourceVersion"]}, "webhooks": changed}
            await api.request(
                "PATCH",
                path,
                query={"fieldManager": _MANAGER},
                body=json.dumps(body).encode(),
                content_type="application/strategic-merge-patch+json",
            )
            said.append(f"{kind} {name}: the API server trusts the authority of the extender's certificate")
    return said, missing


def _changed(configuration: Mapping[str, Any], authority: bytes, now: datetime) -> list[dict[str, Any]]:
    """Return the webhooks whose bundle has to change, as entries of a strategic merge patch."""
    written = _written(configuration)
    made = []
    for webhook in configuration.get("webhooks") or ():
        found = decode_base64(webhook["clientConfig"].get("caBundle") or "")
        wanted = bundle(authority, found, written=written, now=now)
        if wanted != found:
            text = base64.b64encode(wanted).decode()
            made.append({"name": webhook["name"], "clientConfig": {"caBundle": text}})
    return made


def _written(configuration: Mapping[str, Any]) -> datetime | None:
    """Return when this program last changed the object, as the API server recorded."""
    times = [
        datetime.strptime(each["time"], "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)
        for each in configuration["metadata"].get("managedFields") or ()
        if each.get("manager") == _MANAGER and each.get("time")
    ]
    return max(times, default=None)


def _certificates(text: bytes) -> list[x509.Certificate]:
    try:
        return read_certificates(Path("caBundle"), text) if text else []
    except BadCertificate:
        return []
