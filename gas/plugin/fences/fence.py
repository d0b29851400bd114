"""Read what a container with a share of a card gets in addition to its devices, and fill in the share.

A fence is a JSON file, an administrator's or one of the presets of this package. A text that names the card, by
``{index}`` or ``{uuid}``, is filled in for each card of the container; in any other, amounts are the
smallest of its cards. A variable is left out if the pod requests no such amount.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from gas.plugin.card_pods import CardPod
from gas.plugin.devices.allocation import Allocation, Mount
from gas.values.amounts import MEMORY_MAX, MILLICORES
from gas.values.card_facts import CardFacts
from gas.values.card_records import MOST_RECORDS
from gas.values.errors import GasError
from gas.values.quoted import quoted

PRESETS = tuple(sorted(file.stem for file in Path(__file__).parent.glob("*.json")))

OF_A_CARD = frozenset({"index", "uuid"})
IN_VALUES = OF_A_CARD | {"memory", "memory_limit", "compute_percent"}

_DRIVERS = ("i915", "xe", "nvidia")
LARGEST = 64 * 1024  # bytes of the largest file

_MIB = 2**20
_MOST = 64
_LONGEST = 4096
_LONGEST_FOUND = 200  # characters of what is wrong with a file, which may have a name of any length
_PLACEHOLDER = re.compile(r"\{([a-z_]*)\}")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}", re.ASCII)
_CDI_NAME = re.compile(r"[a-z0-9][a-z0-9.-]*/[A-Za-z0-9_.-]+=[A-Za-z0-9_.:-]+", re.ASCII)
_CHOOSE_CARDS = ("NVIDIA_VISIBLE_DEVICES", "ZE_AFFINITY_MASK", "ZE_FLAT_DEVICE_HIERARCHY")
"""Variables that decide which cards and tiles a container sees."""


class MalformedFence(GasError):
    def __init__(self, file: Path, reason: str) -> None:
        super().__init__(f"--fence: {file}: {reason}")


class FenceMount(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    host_path: str
    container_path: str
    read_only: bool = True


class Fence(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    driver: str = ""  # of the cards that it is for; empty for all
    variables: dict[str, str] = {}
    mounts: tuple[FenceMount, ...] = ()
    cdi_devices: tuple[str, ...] = ()


def read_fence(preset_or_file: str) -> Fence:
    """Return a preset or the fence in a file. Raises MalformedFence."""
    is_preset = preset_or_file in PRESETS
    file = Path(__file__).with_name(f"{preset_or_file}.json") if is_preset else Path(preset_or_file)
    try:
        with file.open("rb") as opened:
            content = opened.read(LARGEST + 1)
    except OSError as error:
        raise MalformedFence(file, f"the file cannot be read: {error.strerror}") from None
    if len(content) > LARGEST:
        raise MalformedFence(file, f"expected at most {LARGEST} bytes, found more")
    try:
        fence = msgspec.json.decode(content, type=Fence)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        found = str(error)[:_LONGEST_FOUND]
        raise MalformedFence(file, f"expected JSON with driver, variables, mounts and cdiDevices: {found}") from None
    if (fault := next(_faults(fence), None)) is not None:
        raise MalformedFence(file, fault)
    return fence


def _faults(fence: Fence) -> Iterator[str]:
    if fence.driver not in ("", *_DRIVERS):  # else it would hold for no card
        yield f"driver: expected {', '.join(_DRIVERS)} or nothing, found {quoted(fence.driver)}"
    if not (fence.variables or fence.mounts or fence.cdi_devices):
        yield "expected variables, mounts or cdiDevices, found none of them"
    if max(len(fence.variables), len(fence.mounts), len(fence.cdi_devices)) > _MOST:
        yield f"expected at most {_MOST} variables, mounts and cdiDevices each, found more"
    for name, value in fence.variables.items():
        where = f"variable {quoted(name)}"
        yield from _placeholder_faults(where, name, OF_A_CARD - {"uuid"})  # it has hyphens
        yield from _placeholder_faults(where, value, IN_VALUES)
        if _NAME.fullmatch(_PLACEHOLDER.sub("0", name)) is None:
            yield f"{where}: expected letters, digits and '_', and no digit first"
        if name in _CHOOSE_CARDS:
            yield f"{where}: the plugin itself chooses the container's cards; remove it"
    for mount in fence.mounts:
        for path in (mount.host_path, mount.container_path):
            yield from _path_faults(f"mount {quoted(path)}", path, OF_A_CARD)
    filled_in = "once {index} and {uuid} are filled in"
    if twice := _repeated((mount.container_path, mount.host_path) for mount in fence.mounts):
        yield f"mounts: expected a different containerPath for each and for each card, found {twice} twice {filled_in}"
    if twice := _repeated((name, "") for name in fence.variables):
        yield f"variables: expected different names, found {twice} twice {filled_in}"
    for name in fence.cdi_devices:
        where = f"cdiDevices: {quoted(name)}"
        yield from _placeholder_faults(where, name, OF_A_CARD)
        if _CDI_NAME.fullmatch(_PLACEHOLDER.sub("0", name)) is None:
            yield f"{where}: expected a full name such as vendor.com/class=name"


def _repeated(texts: Iterable[tuple[str, str]]) -> str | None:
    """Return what the first of two texts becomes twice for different second ones, or in different places."""
    owners: dict[str, tuple[int, str]] = {}
    for place, (first, second) in enumerate(texts):
        for card in range(MOST_RECORDS):
            name, of = (text.format(index=card, uuid=f"GPU-{card}") for text in (first, second))
            if owners.setdefault(name, (place, of)) != (place, of):
                return quoted(name)
    return None


def _path_faults(where: str, path: str, allowed: Collection[str]) -> Iterator[str]:
    yield from _placeholder_faults(where, path, allowed)
    parts = path.split("/")
    if parts[0] or len(parts) < 2 or not all(part not in ("", ".", "..") for part in parts[1:]):
        yield f"{where}: expected an absolute path other than / without '.', '..' and '//'"


def _placeholder_faults(where: str, text: str, allowed: Collection[str]) -> Iterator[str]:
    if len(text) > _LONGEST or not text.isprintable():
        yield f"{where}: expected at most {_LONGEST} printable characters"
    names = ", ".join(f"{{{name}}}" for name in sorted(allowed))
    if unknown := [name for name in _PLACEHOLDER.findall(text) if name not in allowed]:
        yield f"{where}: expected no other placeholder than {names}, found {quoted('{' + unknown[0] + '}')}"
    if set("{}") & set(_PLACEHOLDER.sub("", text)):
        yield f"{where}: expected '{{' and '}}' only in {names}"


def with_fence(fences: Mapping[str, Fence], pod: CardPod, container: int, gpus: Sequence[CardFacts]) -> Allocation:
    """Return what a container gets; nothing if it shares no card that its fence is for.

    ``fences`` are by the names that pods choose; that of the empty text is for all others. ``{index}`` is the position
    of a card among those of the container, in the order of PCI addresses.
    """
    if (fence := fences.get(pod.isolation, fences.get(""))) is None:
        return Allocation()
    cards: list[dict[str, str]] = []
    smallest: dict[str, int] = {}
    for index, gpu, memory, compute in _shares(fence, pod, container, gpus):
        amounts = {"memory": memory, "memory_limit": max(memory // _MIB, 1) if memory else 0}
        amounts["compute_percent"] = max(compute * 100 // gpu.millicores, 1) if compute else 0
        known = {name: amount for name, amount in amounts.items() if amount}
        identity = {"uuid": gpu.uuid} if gpu.uuid else {}  # without one, a path would become that of its directory
        cards.append({"index": str(index), **identity, **_texts(known)})
        smallest |= {name: min(amount, smallest.get(name, amount)) for name, amount in known.items()}
    if not cards:
        return Allocation()
    return Allocation(
        env=_variables(fence, cards, _texts(smallest)),
        mounts=tuple(
            Mount(host_path, container_path, mount.read_only)
            for mount in fence.mounts
            for host_path, container_path in _filled((mount.host_path, mount.container_path), cards)
        ),
        cdi=tuple(name for each in fence.cdi_devices for (name,) in _filled((each,), cards)),
    )


def _shares(
    fence: Fence, pod: CardPod, container: int, gpus: Sequence[CardFacts]
) -> Iterator[tuple[int, CardFacts, int, int]]:
    """Yield position, memory and millicores of the cards that a container shares and a fence is for; 0 if not asked.

    It needs no fence on a whole card.
    """
    own = sorted((gpu for gpu in gpus if fence.driver in ("", gpu.driver)), key=lambda gpu: gpu.pci_address)
    shares = pod.share(container, own)
    for index, gpu in enumerate(own):
        memory, millicores = (shares.get(gpu.card, {}).get(name, 0) for name in (MEMORY_MAX, MILLICORES))
        amounts = ((memory, gpu.memory), (millicores, gpu.millicores))
        requested = [(amount, of_card) for amount, of_card in amounts if amount]
        if not requested or any(amount < (of_card or amount + 1) for amount, of_card in requested):
            yield index, gpu, memory, millicores


def _texts(amounts: Mapping[str, int]) -> dict[str, str]:
    return {name: f"{amount}M" if name == "memory_limit" else str(amount) for name, amount in amounts.items()}


def _variables(fence: Fence, cards: Sequence[Mapping[str, str]], smallest: Mapping[str, str]) -> dict[str, str]:
    """Return the variables. Values of several cards for one variable are joined with commas."""
    values: dict[str, list[str]] = {}
    for text in fence.variables.items():
        of_cards = cards if OF_A_CARD & _names(text) else [smallest]
        for name, value in _filled(text, of_cards):
            values.setdefault(name, []).append(value)
    return {name: ",".join(each) for name, each in values.items()}


def _names(texts: Iterable[str]) -> set[str]:
    return {name for text in texts for name in _PLACEHOLDER.findall(text)}


def _filled(texts: tuple[str, ...], cards: Sequence[Mapping[str, str]]) -> Iterator[tuple[str, ...]]:
    """Yield the texts for each card that has all amounts in them; different ones only."""
    known = [card for card in cards if _names(texts) <= card.keys()]
    yield from dict.fromkeys(tuple(text.format_map(card) for text in texts) for card in known)
