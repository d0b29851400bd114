"""Describe the node in a feature file for Node Feature Discovery (NFD), instead of patching its labels and resources.

NFD's worker reads the file and its master writes the node. Lines ``name=value`` become labels of exactly these names,
since NFD accepts the namespace ``gpu.intel.com``. Those that NFD is configured to treat as extended resources
(``gpu.intel.com/millicores``, ``…/memory.max``, ``…/tiles``) become capacity. NFD cannot write the annotation about
cards that differ, so a node with such cards has to be patched.

If both ways are used, they do not conflict, but NFD removes what it wrote once the file is gone, and the plugin writes
it again. One way is enough, and patching is faster.
"""

import logging
from collections.abc import Mapping

from gas.plugin.published_file import FileKind, PublishedFile
from gas.values.card_records import ANNOTATION
from gas.vocabularies.protocol import NodeDescription

logger = logging.getLogger(__name__)


def feature_text(labels: Mapping[str, str], resources: Mapping[str, int]) -> str:
    features = {**labels, **{name: str(amount) for name, amount in resources.items()}}
    return "".join(f"{name}={value}\n" for name, value in sorted(features.items()))


FEATURE_FILE = FileKind(
    name="NFD feature file",
    unwritten="NFD keeps what it read before",
    unremoved="NFD still reads it, so remove it by hand",
)


def describe(file: PublishedFile, description: NodeDescription) -> None:
    """Publish what the file can express of a node's description, and log if that is not all."""
    file.want(feature_text(description.labels, description.resources))
    if any(name != ANNOTATION for name in description.annotations):
        logger.warning(
            "the cards of this node differ, which an NFD feature file cannot express: the extender will count "
            "each as an even share of their sum; use --write-node=patch on this node"
        )
