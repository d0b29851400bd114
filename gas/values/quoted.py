"""Text of others inside messages, cut and escaped so that it can neither flood nor forge a log.

Also the hints at what a misspelt name was meant to be.
"""

import unicodedata
from collections.abc import Collection, Iterable
from itertools import islice
from reprlib import Repr

LONGEST_RESOURCE = 63  # characters of the longest name of a resource in Kubernetes, without its prefix
LONGEST_NAME = 253  # characters of the longest name of an object in Kubernetes
LONGEST_KEY = 63 + 1 + LONGEST_NAME  # characters of the longest ``namespace/name`` in Kubernetes

_LONGEST = 40
_MOST = 3
_MOST_KNOWN = 500  # names that one is compared with, which takes 20 µs each: nodes may state any number of resources
_LONGEST_NUMBER = 1000  # bits of a number that is written in decimal: Python refuses to for very large ones
_BRIEF = Repr()
_BRIEF.maxlevel = 2


def quoted(value: object) -> str:
    """Quote a value in at most 43 characters, with control characters escaped: ``'card0'``, ``'aaaa'…``."""
    if isinstance(value, dict | list | tuple):
        text = _BRIEF.repr(value)  # aliases in YAML make a short text that is endless once written out
    elif isinstance(value, int) and value.bit_length() > _LONGEST_NUMBER:
        text = hex(value)
    else:
        text = str(value)
    cut = text[:_LONGEST]
    while len(repr(cut)) > _LONGEST + 2:
        cut = cut[:-1]
    return repr(cut) if cut == text else f"{cut!r}…"


def shown(name: str, longest: int = LONGEST_RESOURCE) -> str:
    """Return a name as it is, or quoted if it is longer than real ones or has control characters."""
    return name if len(name) <= longest and name.isprintable() else quoted(name)


def escaped(text: str) -> str:
    r"""Return a text with everything escaped that could control a terminal or change the order of letters.

    Control characters, invisible ones, and letters of scripts that run from right to left become ``\u05d0``.
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(each if _is_plain(each) else each.encode("unicode_escape").decode() for each in text)


def _is_plain(character: str) -> bool:
    return character.isprintable() and unicodedata.bidirectional(character) not in ("R", "AL", "AN")


def listed(values: Collection[str]) -> str:
    """List the first values, quoted, and how many more there are: ``'a', 'b', 'c' and 7 more``."""
    shown = ", ".join(quoted(value) for value in islice(values, _MOST))
    return shown if len(values) <= _MOST else f"{shown} and {len(values) - _MOST} more"


def most_similar(name: str, known: Iterable[str]) -> str:
    """Return the known name that is most similar to an unknown one, the empty text if none is.

    What follows the last ``/`` decides, because names of resources share long prefixes: ``gpu.intel.com/xe`` is not
    similar to ``gpu.intel.com/i915``, and ``i915`` is.
    """
    from difflib import get_close_matches

    by_end: dict[str, list[str]] = {}
    for each in sorted(known)[:_MOST_KNOWN]:
        by_end.setdefault(each.rpartition("/")[2], []).append(each)
    similar = get_close_matches(name.rpartition("/")[2][:LONGEST_RESOURCE], by_end, n=1)
    return get_close_matches(name[:LONGEST_KEY], by_end[similar[0]], n=1, cutoff=0)[0] if similar else ""


def did_you_mean(name: str, known: Iterable[str], otherwise: str) -> str:
    """Return ``did you mean i915?`` with the known name that is most similar, another hint if none is."""
    similar = most_similar(name, known)
    return f"did you mean {similar}?" if similar else otherwise
