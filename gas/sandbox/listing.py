"""Lists as clients page through them: every page shows the state at the version of the first."""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass
from typing import Any

import msgspec

from gas.sandbox.failure import bad_request, expired_list, expired_page, too_large_version
from gas.sandbox.kinds import Kind
from gas.sandbox.selectors import Selection
from gas.sandbox.storage import Compacted, Storage, Stored

_PRESENT = -1
"""The version in a token that continues from whatever the state is by then."""


@dataclass(frozen=True, slots=True)
class ListOptions:
    """What a list request asks for.

    limit    most items on a page; 0 is no limit
    token    the ``continue`` of the page before
    version  ``resourceVersion``: "" is the newest state, "0" any, else at least that one, or with ``exact`` that one
    """

    limit: int = 0
    token: str = ""
    version: str = ""
    exact: bool = False


def list_page(storage: Storage, kind: Kind, selection: Selection, options: ListOptions) -> bytes:
    """The JSON of one page. Raises ApiFailure: 400 for a bad token, 410 for one whose history is gone."""
    version, after_key = storage.version, ""
    limit = 0 if options.version == "0" and not options.token else options.limit
    if options.token:
        version, after_key = _read_token(options.token)
        if version == _PRESENT:
            version = storage.version
    elif options.version not in ("", "0"):
        wanted = _read_version(options.version)
        if wanted > storage.version:
            raise too_large_version(wanted, storage.version)
        if options.exact:
            version = wanted
    try:
        state = storage.objects(kind.plural, version)
    except Compacted as gone:
        raise expired_page(_token(_PRESENT, after_key)) if options.token else expired_list() from gone
    found = [stored for stored in state if stored.key > after_key and stored.value in selection]
    page = found[:limit] if limit else found
    metadata: dict[str, Any] = {"resourceVersion": str(version)}
    if len(page) < len(found):
        metadata["continue"] = _token(version, page[-1].key)
        if not selection.requirements:
            metadata["remainingItemCount"] = len(found) - len(page)
    return _encoded(kind, metadata, page)


def _encoded(kind: Kind, metadata: dict[str, Any], page: list[Stored]) -> bytes:
    head = {"kind": f"{kind.name}List", "apiVersion": kind.api_version, "metadata": metadata}
    items = b",".join(stored.encoded for stored in page)
    return msgspec.json.encode(head)[:-1] + b',"items":[' + items + b"]}"


def _token(version: int, last_key: str) -> str:
    fields = {"v": "meta.k8s.io/v1", "rv": version, "start": f"{last_key}\0"}
    return base64.urlsafe_b64encode(msgspec.json.encode(fields)).decode().rstrip("=")


def _read_token(token: str) -> tuple[int, str]:
    try:
        fields = msgspec.json.decode(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)), type=_TokenFields)
    except (binascii.Error, ValueError, msgspec.MsgspecError) as error:
        raise bad_request(f"invalid continue token: continue key is not valid: {error}") from error
    return fields.rv, fields.start.removesuffix("\0")


class _TokenFields(msgspec.Struct):
    rv: int
    start: str


def _read_version(text: str) -> int:
    if not text.isascii() or not text.isdigit():
        raise bad_request(f'resourceVersion: Invalid value: "{text}": strconv.ParseUint: invalid syntax')
    return int(text)
