"""The declaration of an optional part of the extender. `gas.extender.parts` lists the parts by hand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gas.daemon.flags import PartFlags

if TYPE_CHECKING:
    from gas.extender.flags import Flags


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One optional feature of the extender: what it adds to the program.

    flags  the class of its flags, None if it has none
    is_on  returns whether these flags switch it on
    warn   returns a sentence about flags of the part that have no effect, empty if all have
    """

    is_on: Callable[[Flags], bool]
    flags: type[PartFlags] | None = None
    warn: Callable[[Flags], str] = lambda _flags: ""
