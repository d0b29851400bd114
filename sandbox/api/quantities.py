"""Check Kubernetes quantities, and convert them to the canonical form in which the API server returns them."""

from decimal import localcontext
from functools import lru_cache
from typing import Any

from gas.values.amounts import MalformedQuantity, exact_quantity, scale_of
from sandbox.api.failure import Cause, bad_request
from sandbox.api.kinds import Kind

_DECIMAL, _BINARY = ("E", "P", "T", "G", "M", "k", "", "m", "u", "n"), ("Ei", "Pi", "Ti", "Gi", "Mi", "Ki")


def read_quantities(kind: Kind, amounts: dict[str, Any]) -> dict[str, str]:
    """Return the amounts in canonical form: ``2`` -> ``"2"``, ``"2000m"`` -> ``"2"``, ``"1.5"`` -> ``"1500m"``.

    Raises ApiFailure (400) if one of them is not a quantity.
    """
    return {name: _canonical(kind, str(amount)) for name, amount in amounts.items()}


@lru_cache(1024)
def _canonical(kind: Kind, text: str) -> str:
    try:
        exact = exact_quantity(text)
    except MalformedQuantity:
        raise bad_request(
            f'{kind.name} in version "v1" cannot be handled as a {kind.name}: quantities must match the regular '
            "expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
        ) from None
    if not exact:
        return "0"
    with localcontext(prec=2000):
        for suffix in _BINARY if text.endswith("i") else _DECIMAL:  # the largest unit in which it is whole
            if (count := exact / scale_of(suffix)) == count.to_integral_value():
                return _readable(f"{count:f}".partition(".")[0] + suffix, text)
    return _readable(f"{exact:f}", text)


def _readable(canonical: str, written: str) -> str:
    """Return the canonical form, or what was written, such as ``1e300``, if the form has too many digits to be read."""
    return canonical if len(canonical) < 100 else written


def is_extended(resource: str) -> bool:
    """Return whether this is an extended resource: it has a vendor's prefix and is counted in whole units."""
    prefix, slash, _ = resource.partition("/")
    return bool(slash) and prefix != "kubernetes.io" and not prefix.endswith(".kubernetes.io")


def amount_causes(field: str, resource: str, canonical: str) -> list[Cause]:
    """Return why the amount is invalid for this resource; empty if it is valid."""
    amount = exact_quantity(canonical)
    if amount < 0:
        return [Cause(field, f'Invalid value: "{canonical}": must be greater than or equal to 0')]
    if is_extended(resource) and amount != amount.to_integral_value():
        return [Cause(field, f'Invalid value: "{canonical}": must be an integer')]
    return []
