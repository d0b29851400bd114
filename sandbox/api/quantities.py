"""Check Kubernetes quantities, and convert them to the canonical form in which the API server returns them."""

import re
from decimal import Decimal, localcontext
from functools import lru_cache
from typing import Any

from sandbox.api.failure import Cause, bad_request
from sandbox.api.kinds import Kind

_QUANTITY = re.compile(
    r"(?P<number>[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+))(?P<suffix>[KMGTPE]i|[numkMGTPE]?|[eE][+-]?[0-9]{1,3})", re.ASCII
)
_POWERS_OF_TEN = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_POWERS_OF_TWO = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}


def read_quantities(kind: Kind, amounts: dict[str, Any]) -> dict[str, str]:
    """Return the amounts in canonical form: ``2`` -> ``"2"``, ``"2000m"`` -> ``"2"``, ``"1.5"`` -> ``"1500m"``.

    Raises ApiFailure (400) if one of them is not a quantity.
    """
    return {name: _canonical(kind, str(amount)) for name, amount in amounts.items()}


@lru_cache(1024)
def _canonical(kind: Kind, text: str) -> str:
    if (match := _QUANTITY.fullmatch(text)) is None:
        raise bad_request(
            f'{kind.name} in version "v1" cannot be handled as a {kind.name}: quantities must match the regular '
            "expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
        )
    with localcontext() as context:
        context.prec = 2000
        exact = _exact(match)
        if not exact:
            return "0"
        suffix = match["suffix"]
        if suffix in _POWERS_OF_TWO:
            return _shortest(exact, [(word, Decimal(2**power)) for word, power in _POWERS_OF_TWO.items()])
        return _shortest(exact, [(word, Decimal(10) ** power) for word, power in _POWERS_OF_TEN.items()])


def _exact(match: re.Match[str]) -> Decimal:
    number, suffix = Decimal(match["number"]), match["suffix"]
    if suffix in _POWERS_OF_TWO:
        return number * Decimal(2 ** _POWERS_OF_TWO[suffix])
    return number.scaleb(_POWERS_OF_TEN[suffix] if suffix in _POWERS_OF_TEN else int(suffix[1:]))


def _shortest(exact: Decimal, units: list[tuple[str, Decimal]]) -> str:
    """Format the number in the largest unit in which it is whole."""
    for word, unit in sorted(units, key=lambda pair: pair[1], reverse=True):
        if (count := exact / unit) == count.to_integral_value():
            return f"{count:f}".split(".")[0] + word
    return f"{exact:f}"


@lru_cache(1024)
def exact_amount(canonical: str) -> Decimal:
    match = _QUANTITY.fullmatch(canonical)
    if match is None:
        return Decimal(0)
    return _exact(match)


def is_extended(resource: str) -> bool:
    """Return whether this is an extended resource: it has a vendor's prefix and is counted in whole units."""
    prefix, slash, _ = resource.partition("/")
    return bool(slash) and prefix != "kubernetes.io" and not prefix.endswith(".kubernetes.io")


def amount_causes(field: str, resource: str, canonical: str) -> list[Cause]:
    """Return why the amount is invalid for this resource; empty if it is valid."""
    amount = exact_amount(canonical)
    if amount < 0:
        return [Cause(field, f'Invalid value: "{canonical}": must be greater than or equal to 0')]
    if is_extended(resource) and amount != amount.to_integral_value():
        return [Cause(field, f'Invalid value: "{canonical}": must be an integer')]
    return []
