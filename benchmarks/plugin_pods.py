"""The pods of the plugin's benchmark: those that run on its node, and those that wait there for their devices."""

import json
from collections.abc import Sequence
from itertools import count
from typing import Any

from gas.cluster.objects import MERGE_PATCH
from gas.decision import names as decision
from gas.decision.annotations import format_container_cards
from gas.values.cards import Card
from gas.vocabularies.intel import names
from sandbox.api.kinds import PODS
from sandbox.api.verbs import Api

Object = dict[str, Any]

NAMESPACE = "default"
NODE = "node-1"
RESOURCE = names.PREFIX + "i915"
CONTAINER = "main"

_started = count(1_700_000_000_000_000_000)


def waiting_pod(name: str, ids: int, decided: Sequence[Card], *, resource: str = RESOURCE) -> Object:
    """Return a pod with one container that is bound to the node and not yet admitted by kubelet.

    ids      how many devices it asks for
    decided  the cards that the extender wrote on it; empty if it was bound without the extender
    """
    annotations = {
        decision.TIMESTAMP: str(next(_started)),
        decision.CONTAINER_CARDS: format_container_cards([decided]),
    }
    resources = {resource: str(ids)}
    container = {"name": CONTAINER, "image": "none", "resources": {"limits": resources, "requests": resources}}
    return {
        "metadata": {"name": name, "namespace": NAMESPACE, "annotations": annotations if decided else {}},
        "spec": {"nodeName": NODE, "containers": [container]},
    }


def create_running(api: Api, name: str, card: Card) -> None:
    """Create a running pod that has the card that was decided."""
    api.create(PODS, NAMESPACE, waiting_pod(name, 1, [card]))
    status = {"status": {"phase": "Running", "startTime": "2025-01-01T00:00:00Z"}}
    api.patch(PODS, NAMESPACE, name, (MERGE_PATCH, json.dumps(status).encode()), "status")
