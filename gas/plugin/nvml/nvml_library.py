"""Wrap the few calls of NVIDIA's management library (NVML) that the plugin needs, with types and one error.

Every call may block for as long as the driver does, so callers use threads of their own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import pynvml

from gas.values.amounts import MILLICORES_OF_A_CARD
from gas.values.errors import GasError

MOST_INSTANCES = 128  # of one card: 8 compute instances in each of 16 GPU instances
_MOST_EVENTS = 64  # Most events that are read at a time. More would come from a card that fails without end.
DRIVER_NOT_LOADED: int = pynvml.NVML_ERROR_DRIVER_NOT_LOADED
_NO_INSTANCE = 0xFFFFFFFF  # in place of the number of an instance, if an event is about the whole card

_SUPPLIES_NOTHING = (
    pynvml.NVML_ERROR_NOT_SUPPORTED,
    pynvml.NVML_ERROR_NOT_FOUND,
    pynvml.NVML_SUCCESS,  # raised by the bindings for an empty list
    pynvml.NVML_ERROR_FUNCTION_NOT_FOUND,
    pynvml.NVML_ERROR_INVALID_ARGUMENT,
    pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH,
)
"""Errors of optional calls about what is not there, or what card or release of the driver do not support."""

_ADVICE = {
    pynvml.NVML_ERROR_LIBRARY_NOT_FOUND: (
        "libnvidia-ml.so.1 was not found; install NVIDIA's driver on the node, and start the plugin where it sees the"
        " library, in a pod with NVIDIA's container runtime"
    ),
    pynvml.NVML_ERROR_DRIVER_NOT_LOADED: "the kernel has not loaded NVIDIA's driver; load the module nvidia",
    pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH: (
        "the library and the loaded driver are of different versions, as after an upgrade; reboot the node"
    ),
    pynvml.NVML_ERROR_FUNCTION_NOT_FOUND: "the library does not have it; install driver 450 or later",
    pynvml.NVML_ERROR_NO_PERMISSION: "the plugin may not use the driver; let it open /dev/nvidiactl",
}
"""By error code, a sentence about its cause and what to do, where NVML's own words do not say it."""


class NvmlFault(GasError):
    """A call of NVML failed.

    code       NVML's own number of the error; None if the library returned an impossible value
    is_lost    the card no longer responds to its driver
    is_closed  the library must be opened again
    """

    def __init__(
        self, sentence: str, *, code: int | None = None, is_lost: bool = False, is_closed: bool = False
    ) -> None:
        super().__init__(sentence)
        self.code = code
        self.is_lost = is_lost
        self.is_closed = is_closed


@dataclass(frozen=True, slots=True, kw_only=True)
class NvmlCard:
    """One card as NVML describes it, unchecked.

    millicores of an instance, its thousandths of the multiprocessors that its card gives to instances
    """

    index: int  # NVML's own number, which may change whenever the driver is loaded
    uuid: str
    minor: int  # N of ``/dev/nvidiaN``; the index where there are no such files (WSL)
    pci: tuple[int, int, int]  # domain, bus and device
    pci_ids: int  # PCI device id in the upper 16 bits, that of the vendor in the lower ones
    model: str
    total: int | None  # bytes of its memory; None if it uses that of the node
    reserved: int  # bytes of it that the driver and the firmware keep
    version: str = ""  # of the driver; empty if it is unknown
    has_mig: bool = False  # is, or can be, divided into MIG instances
    instances: tuple[NvmlCard, ...] = ()  # those into which it is divided, described as cards of their own
    card_uuid: str = ""  # of an instance, that of its card; else empty
    place: tuple[int, int] = (0, 0)  # of an instance, the numbers of its GPU instance and compute instance
    millicores: int = MILLICORES_OF_A_CARD
    # ``pci`` of the cards at the other ends of its active NVLinks, once for each link
    peers: tuple[tuple[int, int, int], ...] = ()
    on_switch: bool = False  # an active NVLink leads to an NVSwitch
    unheard: str = ""  # why its failures cannot be read now; else empty
    recovery: int | None = None  # what its driver asks for, ``NVML_GPU_RECOVERY_ACTION_…``; None if it does not say


@dataclass(frozen=True, slots=True)
class Failure:
    uuid: str  # of the card
    xid: int | None  # the number of the driver's message; None for memory with an error of two bits
    # the numbers of the GPU instance and the compute instance that it is about; None for all of them
    gpu_instance: int | None = None
    compute_instance: int | None = None

    @property
    def sentence(self) -> str:
        return "its memory had an error of two bits" if self.xid is None else f"it reported Xid {self.xid}"


class UseSample(NamedTuple):
    """How busy a process kept a card lately; ``at`` is in microseconds since the epoch, ``percent`` by engine."""

    pid: int
    at: int
    percent: Mapping[str, int]


class NvmlUse(NamedTuple):
    """The processes that use a card: bytes of its memory by process id, and samples of those that were busy."""

    memory: Mapping[int, int]
    samples: Sequence[UseSample] = ()


class Nvml:
    """The driver's library ``libnvidia-ml.so.1``. All methods but `open` need it open, and raise NvmlFault."""

    def __init__(self) -> None:
        # by UUID, a set of events for each card: one for all would fail with the first card that is lost
        self._events: dict[str, Any] = {}
        self._reported: list[Failure] = []
        self._is_open = False

    def open(self) -> None:
        """Load and initialise the library unless it is open. Raises NvmlFault."""
        if self._is_open:
            return
        _call(pynvml.nvmlInitWithFlags, 0)
        self._is_open = True

    def close(self) -> None:
        """Let the next `open` initialise the library again. Never raises."""
        if not self._is_open:
            return
        self._is_open = False
        for uuid in list(self._events):
            self._unregister(uuid)
        with suppress(pynvml.NVMLError):
            pynvml.nvmlShutdown()

    def count(self) -> int:
        """Return the number of cards, including those that have failed."""
        return int(_call(pynvml.nvmlDeviceGetCount))

    def card(self, index: int) -> NvmlCard:
        """Describe a card, after a look at what it has reported."""
        device = _call(pynvml.nvmlDeviceGetHandleByIndex, index)
        uuid = _call(pynvml.nvmlDeviceGetUUID, device)
        unheard = self._listen(uuid, device)
        pci = _call(pynvml.nvmlDeviceGetPciInfo, device)
        total, reserved = _memory(device)
        minor = _optional(pynvml.nvmlDeviceGetMinorNumber, device)
        mig = _optional(pynvml.nvmlDeviceGetMigMode, device)
        peers, on_switch = _links(device)
        described = NvmlCard(
            index=index,
            uuid=uuid,
            minor=index if minor is None else minor,
            pci=(pci.domain, pci.bus, pci.device),
            pci_ids=pci.pciDeviceId,
            model=_optional(pynvml.nvmlDeviceGetName, device) or "",
            total=total,
            reserved=reserved,
            version=_optional(pynvml.nvmlSystemGetDriverVersion) or "",
            has_mig=mig is not None and mig[0] == pynvml.NVML_DEVICE_MIG_ENABLE,
            peers=peers,
            on_switch=on_switch,
            recovery=_recovery(device),
            unheard=unheard,
        )
        return replace(described, instances=_instances(device, described)) if described.has_mig else described

    def share_a_switch(self, one: str, other: str) -> bool:
        """Return whether data between two cards, by UUID, passes PCIe switches only, not the processor's bridge."""
        devices = [_call(pynvml.nvmlDeviceGetHandleByUUID, uuid) for uuid in (one, other)]
        level = _optional(pynvml.nvmlDeviceGetTopologyCommonAncestor, *devices)
        return level is not None and level <= pynvml.NVML_TOPOLOGY_MULTIPLE

    def use(self, uuid: str, since: int) -> NvmlUse:
        """Return who uses a card or an instance. ``since`` is the time of the last sample that is known."""
        device = _call(pynvml.nvmlDeviceGetHandleByUUID, uuid)
        memory: dict[int, int] = {}
        for running in (pynvml.nvmlDeviceGetComputeRunningProcesses, pynvml.nvmlDeviceGetGraphicsRunningProcesses):
            for process in _optional(running, device) or ():
                memory[process.pid] = max(memory.get(process.pid, 0), process.usedGpuMemory or 0)
        samples = [
            UseSample(each.pid, each.timeStamp, {"sm": each.smUtil, "enc": each.encUtil, "dec": each.decUtil})
            for each in _optional(pynvml.nvmlDeviceGetProcessUtilization, device, since) or ()
        ]
        return NvmlUse(memory, samples)

    def take_failures(self) -> Sequence[Failure]:
        """Return what cards have reported, each once, as far as `card` has seen it. Calls nothing."""
        count = len(self._reported)  # threads of other cards may add to it
        found, self._reported[:count] = self._reported[:count], []
        return found

    def _listen(self, uuid: str, device: Any) -> str:
        """Note what a card has reported, or subscribe to it: at first, and again after a fault. Return the fault."""
        try:
            if uuid in self._events:
                for failure in _failures(uuid, self._events[uuid]):
                    self._reported.append(failure)
                return ""
            wanted = pynvml.nvmlEventTypeXidCriticalError | pynvml.nvmlEventTypeDoubleBitEccError
            known = wanted & (_optional(pynvml.nvmlDeviceGetSupportedEventTypes, device) or 0)
            if known and (events := _optional(pynvml.nvmlEventSetCreate)) is not None:
                self._events[uuid] = events
                _call(pynvml.nvmlDeviceRegisterEvents, device, known, events)
        except NvmlFault as fault:
            self._unregister(uuid)
            return str(fault)
        return ""

    def _unregister(self, uuid: str) -> None:
        if (events := self._events.pop(uuid, None)) is not None:
            with suppress(pynvml.NVMLError):
                pynvml.nvmlEventSetFree(events)


def _failures(uuid: str, events: Any) -> Iterator[Failure]:
    """Yield what a card has reported. Raises NvmlFault."""
    for _ in range(_MOST_EVENTS):
        try:
            event = _call(pynvml.nvmlEventSetWait_v2, events, 0)
        except NvmlFault as fault:
            if fault.code == pynvml.NVML_ERROR_TIMEOUT:
                return
            raise
        xid = int(event.eventData) if event.eventType == pynvml.nvmlEventTypeXidCriticalError else None
        places = (None if each == _NO_INSTANCE else each for each in (event.gpuInstanceId, event.computeInstanceId))
        yield Failure(uuid, xid, *places)


def _memory(device: Any) -> tuple[int | None, int]:
    """Return total and reserved bytes. The first version of the call leaves out what is reserved."""
    if (memory := _optional(pynvml.nvmlDeviceGetMemoryInfo, device, pynvml.nvmlMemory_v2)) is not None:
        return int(memory.total), int(memory.reserved)
    memory = _optional(pynvml.nvmlDeviceGetMemoryInfo, device)
    return None if memory is None else int(memory.total), 0


def _recovery(device: Any) -> int | None:
    """Return what the driver demands for a card, from driver 570 on; None if it does not say."""
    (value,) = _optional(pynvml.nvmlDeviceGetFieldValues, device, [pynvml.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION]) or (
        None,
    )
    return int(value.value.uiVal) if value is not None and value.nvmlReturn == pynvml.NVML_SUCCESS else None


def _instances(device: Any, card: NvmlCard) -> tuple[NvmlCard, ...]:
    """Return the MIG instances of a card. Those in one GPU instance share its memory, so each has an even part."""
    profiles = range(pynvml.NVML_GPU_INSTANCE_PROFILE_COUNT)
    possible = [_optional(pynvml.nvmlDeviceGetGpuInstanceProfileInfo, device, profile, 1) for profile in profiles]
    most = max((each.multiprocessorCount for each in possible if each is not None), default=0)
    places = range(min(_optional(pynvml.nvmlDeviceGetMaxMigDeviceCount, device) or 0, MOST_INSTANCES))
    handles = [_optional(pynvml.nvmlDeviceGetMigDeviceHandleByIndex, device, index) for index in places]
    found: list[NvmlCard] = []
    for handle in (each for each in handles if each is not None):
        total, reserved = _memory(handle)
        own = _call(pynvml.nvmlDeviceGetAttributes_v2, handle).multiprocessorCount
        numbers = (pynvml.nvmlDeviceGetGpuInstanceId, pynvml.nvmlDeviceGetComputeInstanceId)
        instance = replace(
            card,
            uuid=_call(pynvml.nvmlDeviceGetUUID, handle),
            card_uuid=card.uuid,
            place=tuple(_call(number, handle) for number in numbers),
            model=_call(pynvml.nvmlDeviceGetName, handle),
            total=total,
            reserved=reserved,
            millicores=MILLICORES_OF_A_CARD * own // most if most else 0,
            peers=(),
            on_switch=False,
        )
        found.append(instance)
    shares = Counter(each.place[0] for each in found)
    return tuple(
        replace(
            each,
            total=None if each.total is None else each.total // shares[each.place[0]],
            reserved=each.reserved // shares[each.place[0]],
        )
        for each in found
    )


def _links(device: Any) -> tuple[tuple[tuple[int, int, int], ...], bool]:
    """Return the PCI addresses of cards at the other ends of active NVLinks, and whether one leads to a switch."""
    peers: list[tuple[int, int, int]] = []
    on_switch = False
    for link in range(pynvml.NVML_NVLINK_MAX_LINKS):
        if (state := _optional(pynvml.nvmlDeviceGetNvLinkState, device, link)) is None:
            break
        if state != pynvml.NVML_FEATURE_ENABLED:
            continue
        if _optional(pynvml.nvmlDeviceGetNvLinkRemoteDeviceType, device, link) == pynvml.NVML_NVLINK_DEVICE_TYPE_SWITCH:
            on_switch = True
        elif (remote := _optional(pynvml.nvmlDeviceGetNvLinkRemotePciInfo, device, link)) is not None:
            peers.append((remote.domain, remote.bus, remote.device))
    return tuple(sorted(peers)), on_switch


def _optional(function: Callable[..., Any], *arguments: Any) -> Any:
    """Return the result of a call; None if card or driver do not support it. Raises NvmlFault for other errors."""
    try:
        return _call(function, *arguments)
    except NvmlFault as fault:
        if fault.code in _SUPPLIES_NOTHING:
            return None
        raise


def _call(function: Callable[..., Any], *arguments: Any) -> Any:
    """Return the result of a function of NVML. Raises NvmlFault."""
    try:
        return function(*arguments)
    except pynvml.NVMLError as error:
        code = error.value
        raise NvmlFault(
            f"{function.__name__}: {_ADVICE.get(code) or error}",
            code=code,
            is_lost=code in (pynvml.NVML_ERROR_GPU_IS_LOST, pynvml.NVML_ERROR_RESET_REQUIRED),
            is_closed=code == pynvml.NVML_ERROR_UNINITIALIZED,
        ) from error
    except UnicodeError as error:
        raise NvmlFault(f"{function.__name__}: expected text, found bytes that are not UTF-8") from error
