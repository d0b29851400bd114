"""The outcome of a look: what is there, or why nothing could be seen."""

from __future__ import annotations

from collections.abc import Awaitable
from dataclasses import dataclass
from typing import TypeVar

from gas.cluster.errors import ApiRefused, Forbidden
from gas.errors import GasError

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Unseen:
    """Why something could not be looked at, as a sentence, and the command with which it can."""

    why: str
    mend: str


async def looked(look: Awaitable[T]) -> T | Unseen:
    """What a request to the API server answers; a refusal or a failure is an outcome, too."""
    try:
        return await look
    except GasError as error:
        return unseen(error)


async def looked_for(look: Awaitable[T]) -> T | Unseen | None:
    """The same; None when the API server knows no such object or kind."""
    try:
        return await look
    except GasError as error:
        return None if isinstance(error, ApiRefused) and error.status == 404 else unseen(error)


def unseen(error: GasError) -> Unseen:
    """Why a request to the API server showed nothing."""
    if isinstance(error, Forbidden):
        return Unseen(str(error), "gas doctor --kubeconfig=FILE   # of a user with this permission")
    return Unseen(str(error), "gas doctor   # again, once the API server answers")
