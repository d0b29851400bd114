"""Who asks for what: the attributes of a request by which a real API server decides whether it is allowed."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from gas.sandbox.failure import ApiFailure
from gas.sandbox.kinds import Kind


@dataclass(frozen=True, slots=True)
class Access:
    """One request.

    user         from the bearer token; ``admin`` when the server knows no tokens
    verb         get, list, watch, create, update, patch or delete
    subresource  ``status``, ``binding`` or an empty text
    namespace    None for kinds without one, and for lists over all
    """

    user: str
    verb: str
    kind: Kind
    subresource: str = ""
    namespace: str | None = None
    name: str = ""

    @property
    def resource(self) -> str:
        """As in a role: ``pods``, ``pods/binding``."""
        return f"{self.kind.plural}/{self.subresource}" if self.subresource else self.kind.plural


Authorize = Callable[[Access], bool]
"""Whether a request is allowed."""

Intercept = Callable[[Access], Awaitable[ApiFailure | None]]
"""Called before a request does anything: may take its time, or answer a failure that is sent in place of the answer."""


async def no_interception(_access: Access) -> None:
    """Let every request through at once."""


def everything_allowed(_access: Access) -> bool:
    return True


def forbidden(access: Access) -> ApiFailure:
    """403 in the words of RBAC."""
    what = f'{access.kind.qualified} "{access.name}"' if access.name else access.kind.qualified
    where = f'in the namespace "{access.namespace}"' if access.namespace else "at the cluster scope"
    message = (
        f'{what} is forbidden: User "{access.user}" cannot {access.verb} resource "{access.resource}" '
        f'in API group "{access.kind.group}" {where}'
    )
    details = {
        **({"name": access.name} if access.name else {}),
        **({"group": access.kind.group} if access.kind.group else {}),
        "kind": access.kind.plural,
    }
    return ApiFailure(403, "Forbidden", message, details)
