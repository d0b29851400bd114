"""Write the CDI spec file, which describes each card as a CDI device for container runtimes."""

from collections.abc import Collection, Iterable
from dataclasses import replace

import msgspec

from gas.plugin.devices.allocation import Allocation, Presentation, by_path_mounts, card_nodes
from gas.plugin.devices.device_ids import short_name
from gas.plugin.published_file import FileKind
from gas.values.card_facts import CardFacts

CDI_KIND = "gpu.intel.com/card"
"""The kind of the CDI devices, which are named after the cards: ``gpu.intel.com/card=card0``."""

CDI_VERSION = "0.5.0"  # the oldest version in which a device node may have another path on the host


def cdi_text(gpus: Iterable[CardFacts], presentation: Presentation) -> str:
    """Return the file's text: a CDI device per card, with the nodes and mounts that containers get without CDI."""
    spec = {
        "cdiVersion": CDI_VERSION,
        "kind": CDI_KIND,
        "devices": [
            {
                "name": str(gpu.card),
                "containerEdits": {
                    "deviceNodes": [
                        {"path": node.container_path, "hostPath": node.host_path, "type": "c", "permissions": "rw"}
                        for node in card_nodes([gpu], presentation)
                    ],
                    "mounts": [
                        {
                            "hostPath": mount.host_path,
                            "containerPath": mount.container_path,
                            "options": ["rbind", "rprivate", "ro"],
                        }
                        for mount in by_path_mounts([gpu], presentation)
                    ],
                },
            }
            # CDI rejects a device without edits; allocations do not name such a card either.
            for gpu in sorted(gpus, key=lambda gpu: gpu.card)
            if gpu.device_nodes
        ],
    }
    return msgspec.json.format(msgspec.json.encode(spec), indent=2).decode() + "\n"


CDI_FILE = FileKind(name="CDI file", unwritten="runtimes do not know the cards", makes_directory=True)


def with_cdi_names(
    allocation: Allocation, resource: str, gpus: Collection[CardFacts], *, as_annotation: bool
) -> Allocation:
    """Return the allocation with the CDI names of its cards that have no names in other files.

    ``as_annotation`` writes them for runtimes that read only the older annotation.
    """
    own = (f"{CDI_KIND}={gpu.card}" for gpu in gpus if gpu.device_nodes and not gpu.cdi_name)
    names = (*own, *allocation.cdi)
    if not as_annotation:
        return replace(allocation, cdi=names)
    # A container with several resources gets an allocation for each, and their annotations must not collide.
    annotation = {f"cdi.k8s.io/gas-plugin_{short_name(resource)}": ",".join(names)} if names else {}
    return replace(allocation, cdi=(), annotations={**allocation.annotations, **annotation})
