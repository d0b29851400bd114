"""JSON Patch (RFC 6902): the operations with which an admission webhook changes an object."""

from typing import Any, Literal

import msgspec


class Operation(msgspec.Struct, frozen=True, gc=False):
    """One operation. ``path`` is a JSON pointer, whose parts `pointer` escapes. ``remove`` needs no value."""

    op: Literal["add", "replace", "remove"]
    path: str
    value: Any = None


Patch = tuple[Operation, ...]
"""Operations in the order in which they are applied; without any, the object stays as it is."""


def pointer(*parts: str) -> str:
    """Return the JSON pointer to a member of nested objects: ``pointer("a", "b/c")`` is ``/a/b~1c``."""
    return "".join("/" + part.replace("~", "~0").replace("/", "~1") for part in parts)


def applied(patch: Patch, document: object) -> dict[str, Any]:
    """Return an object as JSON with a patch applied. Every path must lead to an existing object or list entry."""
    changed: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(document))
    for operation in patch:
        *parents, last = (part.replace("~1", "/").replace("~0", "~") for part in operation.path.split("/")[1:])
        at: Any = changed
        for part in parents:
            at = at[int(part)] if isinstance(at, list) else at[part]
        if operation.op == "remove":
            del at[last]
        else:
            at[last] = operation.value
    return changed
