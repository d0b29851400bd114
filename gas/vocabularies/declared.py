"""The names of a vocabulary that deploy/ and docs/ state as well. Each vocabulary declares its own.

``make manifest`` writes them into deploy/, and ``make reference`` into docs/reference.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


@dataclass(frozen=True, slots=True, kw_only=True)
class Beginnings:
    """Name beginnings of resources and annotations by which the API server knows certain pods."""

    resources: tuple[str, ...] = ()
    annotations: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenNames:
    """Names that the plugin may write on its node and on the pods there; one that ends in / stands for all under it."""

    labels: tuple[str, ...] = ()
    resources: tuple[str, ...] = ()
    annotations: tuple[str, ...] = ()
    pod_annotations: tuple[str, ...] = ()


class Row(NamedTuple):
    """One row of the reference page.

    used_by  who asks for a resource or writes a text
    meaning  the unit of a resource, or the value of a text
    """

    name: str
    used_by: str
    meaning: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """The tables of a vocabulary on the reference page.

    owner  in the genitive, for the title of a table: ``Aliyun's``
    page   file name of its own page; empty if it has none
    """

    owner: str
    page: str = ""
    resources: tuple[Row, ...] = ()
    node_labels: tuple[Row, ...] = ()
    node_annotations: tuple[Row, ...] = ()
    pod_annotations: tuple[Row, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Component:
    """The kustomize component that switches a vocabulary on, in addition to the default one.

    about   one or more sentences for the comment at its top
    others  other vocabularies that it switches on as well
    """

    about: str
    others: tuple[str, ...] = ()
