"""A program between kubelet and the container runtime that forwards every call and records how containers are created.

    python -m tests.e2e.runtime_recorder LISTEN RUNTIME NOTES

All three are paths: two sockets, and a file to which each request for a container is added as a line of hexadecimal
digits. It is there as soon as kubelet may call.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc

_LARGEST = (("grpc.max_receive_message_length", 16 * 2**20),)


def request_for(notes: Path, pod: str, container: str) -> bytes:
    """Return kubelet's request for a container, a message of CRI that contains names as they are."""
    # An entry of a map: the key, a tag, and the value after its length.
    labels = [
        b"io.kubernetes.%s.name\x12%c%s" % (kind, len(name), name.encode())
        for kind, name in ((b"pod", pod), (b"container", container))
    ]
    requests = (bytes.fromhex(line) for line in notes.read_text().splitlines())
    (found,) = (request for request in requests if all(label in request for label in labels))
    return found


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
                with self._notes.open("a") as notes:
                    notes.write(f"{request.hex()}\n")
            try:
                return call(request, timeout=context.time_remaining())
            except grpc.RpcError as error:
                context.set_code(error.code())
                context.set_details(error.details() or "")
                return b""

        return grpc.unary_unary_rpc_method_handler(hand_on)


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
