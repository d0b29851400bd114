"""A program between kubelet and the container runtime that forwards every call and records how containers are created.

    python -m tests.e2e.runtime_recorder LISTEN RUNTIME NOTES

All three are paths: two sockets, and a file to which a line of JSON is added for each container. It is there as soon as
kubelet may call.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

import grpc

_LARGEST = (("grpc.max_receive_message_length", 16 * 2**20),)

_CONFIG = 2
_DEVICES, _LABELS, _ANNOTATIONS, _CDI = 8, 9, 10, 17
"""Numbers of fields in CreateContainerRequest and in its ContainerConfig (k8s.io/cri-api, runtime/v1)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """The parts of kubelet's request for one container that matter here.

    cdi          names of CDI devices
    devices      paths of plain device nodes in the container
    annotations  for the runtime
    """

    pod: str
    container: str
    cdi: tuple[str, ...]
    devices: tuple[str, ...]
    annotations: dict[str, str]


def read_notes(file: Path) -> list[Made]:
    """Return the records in the order in which the containers were created."""
    found = [json.loads(line) for line in file.read_text().splitlines()]
    return [Made(**{**note, "cdi": tuple(note["cdi"]), "devices": tuple(note["devices"])}) for note in found]


class _Recorder:
    """A handler for `grpc.server`. Every method is one request and one answer, as bytes.

    The one that is a stream kubelet does not use by itself.
    """

    def __init__(self, runtime: grpc.Channel, notes: Path) -> None:
        self._runtime = runtime
        self._notes = notes

    def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler[bytes, bytes]:
        call: Callable[..., bytes] = self._runtime.unary_unary(details.method)

        def hand_on(request: bytes, context: grpc.ServicerContext) -> bytes:
            if details.method.endswith("/CreateContainer"):
                self._note(request)
            try:
                return call(request, timeout=context.time_remaining())
            except grpc.RpcError as error:
                context.set_code(error.code())
                context.set_details(error.details() or "")
                return b""

        return grpc.unary_unary_rpc_method_handler(hand_on)

    def _note(self, request: bytes) -> None:
        config = dict(_fields(request))[_CONFIG]
        labels = _map(config, _LABELS)
        note = Made(
            pod=labels["io.kubernetes.pod.name"],
            container=labels["io.kubernetes.container.name"],
            cdi=tuple(name for number, device in _fields(config) if number == _CDI for name in _texts(device, 1)),
            devices=tuple(
                path for number, device in _fields(config) if number == _DEVICES for path in _texts(device, 1)
            ),
            annotations=_map(config, _ANNOTATIONS),
        )
        with self._notes.open("a") as notes:
            notes.write(json.dumps(asdict(note)) + "\n")


def _fields(message: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield number and bytes of each field of a protobuf message that is a text, bytes or a message."""
    position = 0

    def number() -> int:
        nonlocal position
        value = shift = 0
        while True:
            byte = message[position]
            position += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7

    while position < len(message):
        field, kind = divmod(number(), 8)
        if kind == 0:
            number()
            continue
        length = {1: 8, 5: 4}.get(kind) or number()
        position += length
        if kind == 2:
            yield field, message[position - length : position]


def _texts(message: bytes, field: int) -> tuple[str, ...]:
    return tuple(value.decode() for number, value in _fields(message) if number == field)


def _map(message: bytes, field: int) -> dict[str, str]:
    """Decode a map, which protobuf writes as messages with a field each for key and value."""
    entries = (dict(_fields(value)) for number, value in _fields(message) if number == field)
    return {entry[1].decode(): entry.get(2, b"").decode() for entry in entries}


def main(listen: str, runtime: str, notes: str) -> None:
    with grpc.insecure_channel(f"unix:{runtime}", options=_LARGEST) as channel:
        server = grpc.server(ThreadPoolExecutor(32), options=_LARGEST)
        server.add_generic_rpc_handlers((_Recorder(channel, Path(notes)),))
        server.add_insecure_port(f"unix:{listen}")
        server.start()
        Path(notes).touch()
        server.wait_for_termination()


if __name__ == "__main__":
    main(*sys.argv[1:])
