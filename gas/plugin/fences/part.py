"""Declare the part that gives containers with a share of a card what makes them keep to it."""

from dataclasses import dataclass
from functools import partial

from gas.daemon.flags import PartFlags, flag
from gas.plugin.part import Core, Hooks, Part


def preset_or_file(text: str) -> str:
    """Parse the value of ``--fence``. The file is read when the plugin starts."""
    from gas.plugin.fences.fence import PRESETS

    if text not in PRESETS and not text.startswith("/"):
        raise ValueError(f"{', '.join(PRESETS)} or the absolute path of a file")
    return text


@dataclass(frozen=True, slots=True, kw_only=True)
class FenceFlags(PartFlags):
    fence: str | None = flag(
        "fence=PRESET|FILE",
        preset_or_file,
        None,
        "What containers with a share of a card get as well, so that they keep to it: mps, hami-core, "
        "gemini, or what a JSON file describes.",
        group="Use of the cards",
        unset="nothing",
    )


def _build(core: Core, flags: FenceFlags) -> Hooks:
    from gas.plugin.fences.fence import read_fence, with_fence
    from gas.plugin.fences.share_files import ShareFiles

    fence = read_fence(flags.fence or "")
    add = partial(with_fence, fence, core.gpus)
    if not fence.shares_in:
        return Hooks(additions=(add,))
    files = ShareFiles(fence, core.pods)
    return Hooks(additions=(files.add, add), on_pods=files.pods_changed)


FENCES = Part(
    name="fences",
    flags=FenceFlags,
    is_on=lambda _core, own: bool(own.fence),
    build=_build,
    needs_pods=True,
    switched_on_by="--fence",
)
