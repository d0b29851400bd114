"""Pods and a node of a vocabulary that the product does not have."""

from __future__ import annotations

from typing import Any

import msgspec

from gas.extender.decider import Options
from gas.objects.stored import Node
from gas.vocabularies.combined import Vocabularies
from gas.vocabularies.intel.vocabulary import INTEL
from tests.builders import container, node_json, pod_json
from tests.made_up import CARDS, MADE_UP, SLICE

BOTH = Options(vocabularies=Vocabularies([INTEL, MADE_UP]))


def node() -> Node:
    """Return a node of two cards that both vocabularies describe."""
    return msgspec.convert(node_json("n1", labels={CARDS: "0.1"}, i915=2, millicores=2000), Node)


def slices(count: int, uid: str, **fields: Any) -> dict[str, Any]:
    asking = {"name": "main", "resources": {"requests": {SLICE: str(count)}}}
    return pod_json(asking, name=uid, uid=uid, **fields)


def one_card(uid: str, millicores: int = 600) -> dict[str, Any]:
    return pod_json(container(i915=1, millicores=millicores), name=uid, uid=uid)
