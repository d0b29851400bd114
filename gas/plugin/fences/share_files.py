"""Write a file for each card that lists its pods with their shares, as Gemini's scheduler of the card reads it.

The first line is the number of pods. Each other line has a pod's name, the least and the most part of the card's time
that it gets, and its bytes of memory: ``default/train 0.500 0.500 1073741824``. The files are all that is remembered.
"""

import logging
import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from gas.plugin.card_pods import CardPod, CardPods
from gas.plugin.devices.allocation import Allocation
from gas.plugin.fences.fence import Fence, shares_of
from gas.values.card_facts import CardFacts

_UUID = re.compile(r"([A-Z]{3}-)?[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.ASCII)

logger = logging.getLogger(__name__)


class ShareFiles:
    """The files of a node's cards, named by their UUIDs, in the directory that the fence names."""

    def __init__(self, fence: Fence, pods: CardPods) -> None:
        self._fence = fence
        self._directory = Path(fence.shares_in)
        self._pods = pods
        self._present: Collection[str] | None = None

    def add(self, pod: CardPod, container: int, gpus: Sequence[CardFacts]) -> Allocation:
        """Write what a pod may use of its cards, before a container of it starts. It gets nothing else."""
        for _, gpu, memory, millicores in shares_of(self._fence, pod, container, gpus):
            part = millicores / gpu.millicores
            self._change(gpu.uuid, {pod.key: f"{part:.3f} {part or 1:.3f} {memory or gpu.memory or 0}"})
        return Allocation()

    def pods_changed(self) -> None:
        """Remove the lines of pods that have ended, also those that did while no plugin ran."""
        before, self._present = self._present, self._pods.present()
        if self._present != before and self._directory.is_dir():
            for file in self._directory.iterdir():
                if _UUID.fullmatch(file.name) is not None:  # other files in it are not ours
                    self._change(file.name, {})

    def _change(self, uuid: str, new: Mapping[str, str]) -> None:
        """Change the lines of a card, by pod. The file is written in place, since its reader waits for that."""
        file = self._directory / uuid
        try:
            before = file.read_text(encoding="utf-8").splitlines()[1:] if file.exists() else []
            lines = {line.partition(" ")[0]: line.partition(" ")[2] for line in before}
            kept = lines if self._present is None else self._present
            changed = {name: share for name, share in lines.items() if name in kept} | dict(new)
            if changed != lines:
                text = "".join(f"{name} {share}\n" for name, share in sorted(changed.items()))
                file.write_text(f"{len(changed)}\n{text}", encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            logger.error("the shares of a card cannot be written: %s", error)
