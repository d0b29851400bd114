"""Declare the part that gives containers with a share of a card what makes them keep to it."""

from dataclasses import dataclass
from functools import partial

from gas.daemon.flags import PartFlags, flag
from gas.plugin.part import Core, Hooks, Part

CHOSEN = "chosen"  # the value of ``--fence`` with which only pods that choose a preset get one


def preset_or_file(text: str) -> str:
    """Parse the value of ``--fence``. The file is read when the plugin starts."""
    from gas.plugin.fences.fence import PRESETS

    if text not in (CHOSEN, *PRESETS) and not text.startswith("/"):
        raise ValueError(f"{CHOSEN}, {', '.join(PRESETS)} or the absolute path of a file")
    return text


@dataclass(frozen=True, slots=True, kw_only=True)
class FenceFlags(PartFlags):
    fence: str | None = flag(
        "fence=PRESET|FILE|chosen",
        preset_or_file,
        None,
        "What containers with a share of a card get as well, so that they keep to it: mps, hami-core, or what a JSON "
        "file describes. A pod's own choice of a preset has priority; with chosen, others get nothing.",
        group="Use of the cards",
        unset="nothing",
    )


def _build(_core: Core, flags: FenceFlags) -> Hooks:
    from gas.plugin.fences.fence import PRESETS, read_fence, with_fence

    fences = {preset: read_fence(preset) for preset in PRESETS}
    if flags.fence not in (None, CHOSEN):
        fences[""] = read_fence(flags.fence)
    return Hooks(additions=(partial(with_fence, fences),))


FENCES = Part(
    name="fences",
    flags=FenceFlags,
    is_on=lambda _core, own: bool(own.fence),
    build=_build,
    needs_pods=True,
    switched_on_by="--fence",
)
