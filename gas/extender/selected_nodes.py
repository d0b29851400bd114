"""Find the nodes that the volumes of waiting pods were made for, before this replica's first decision.

kube-scheduler withdraws a pod's nomination when its bind fails, as every bind does while no extender runs. By then the
pod's volume may be made, which ties the pod to its node.
"""

import asyncio
import logging
from collections.abc import Iterable, Sequence
from typing import Any

from gas.cluster import paths
from gas.cluster.connection import ApiServer
from gas.cluster.errors import ApiRefused
from gas.cluster.objects import get_object
from gas.objects.stored import ObjectMeta, Pod, PodSpec, StoredPart
from gas.values.errors import GasError

logger = logging.getLogger(__name__)

SELECTED_NODE = "volume.kubernetes.io/selected-node"  # annotation of a claim, by kube-scheduler
MOST_READS = 16  # claims that are read at the same time


class _ClaimName(StoredPart, frozen=True):
    claim_name: str = ""


class _Volume(StoredPart, frozen=True):
    name: str = ""
    persistent_volume_claim: _ClaimName | None = None
    ephemeral: Any = None


class _Spec(PodSpec, frozen=True):
    volumes: Sequence[_Volume] | None = None


class ClaimingPod(Pod, frozen=True):
    """A pod with the claims of its volumes."""

    spec: _Spec = _Spec()

    @property
    def claims(self) -> list[str]:
        volumes = self.spec.volumes or ()
        named = [each.persistent_volume_claim.claim_name for each in volumes if each.persistent_volume_claim]
        return named + [f"{self.metadata.name}-{each.name}" for each in volumes if each.ephemeral is not None]


class _Claim(StoredPart, frozen=True):
    metadata: ObjectMeta


async def selected_nodes(api: ApiServer, waiting: Iterable[ClaimingPod]) -> list[tuple[Pod, str]]:
    """Return the pods without a nomination that have a claim for which a node was selected, with that node.

    What cannot be read is left out, and logged: only one claim if the API server refuses it, since users choose its
    name, and all of them if the API server is not available.
    """
    reads = asyncio.Semaphore(MOST_READS)
    refused: list[GasError] = []

    async def selected_node(pod: ClaimingPod, name: str) -> str:
        try:
            path = paths.claim(pod.metadata.namespace or "default", name)
            async with reads:
                claim = await get_object(api, path, _Claim, urgent=True)
        except (ApiRefused, paths.MalformedName) as error:
            refused.append(error)
            return ""
        return (claim.metadata.annotations or {}).get(SELECTED_NODE, "") if claim is not None else ""

    async def of_pod(pod: ClaimingPod) -> tuple[Pod, str] | None:
        for name in pod.claims:
            if node := await selected_node(pod, name):
                return pod, node
        return None

    pods = [pod for pod in waiting if not (pod.nominated_node or pod.node_name or pod.suspended or pod.is_over)]
    found: list[tuple[Pod, str] | None] = []
    try:
        found = await asyncio.gather(*map(of_pod, pods))
    except GasError as error:
        refused.append(error)
    if refused:
        logger.warning("it is not known for which nodes the volumes of waiting pods were made: %s", refused[-1])
    return [each for each in found if each is not None]
