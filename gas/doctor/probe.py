"""Probe something and keep the outcome: what was found, or why it could not be seen."""

from __future__ import annotations

from collections.abc import Awaitable
from dataclasses import dataclass
from typing import TypeVar

from gas.cluster.errors import Forbidden
from gas.values.errors import GasError

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Unseen:
    """Why something could not be seen, as a sentence, and the command with which it can be."""

    why: str
    mend: str


async def probe(request: Awaitable[T]) -> T | Unseen:
    """Return the result of a request to the API server, or why it failed."""
    try:
        return await request
    except Forbidden as error:
        return Unseen(str(error), "gas doctor --kubeconfig=FILE   # of a user with this permission")
    except GasError as error:
        return Unseen(str(error), "gas doctor   # again, once the API server responds")
