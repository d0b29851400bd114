"""A small blocking HTTP/2 client, as much as tests need."""

from __future__ import annotations

import socket
import ssl
from dataclasses import dataclass, field

import h2.config
import h2.connection
import h2.events


@dataclass
class Answer:
    status: int = 0
    body: bytes = b""
    ended: bool = False
    reset: bool = False


class ConnectionEnded(Exception):
    """The server closed the connection."""


@dataclass
class Http2Client:
    """One connection; streams are begun with ``begin`` and awaited with ``answer``."""

    socket: socket.socket
    answers: dict[int, Answer] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if isinstance(self.socket, ssl.SSLSocket):
            assert self.socket.selected_alpn_protocol() == "h2"
        self.connection = h2.connection.H2Connection(h2.config.H2Configuration(header_encoding=None))
        self.connection.initiate_connection()
        self.flush()

    def begin(
        self,
        path: str,
        body: bytes = b"",
        *,
        method: str = "POST",
        content_type: str = "application/json",
        end: bool = True,
    ) -> int:
        """Send a request and return its stream. ``end=False`` leaves the body open."""
        stream = self.connection.get_next_available_stream_id()
        headers = [
            (":method", method),
            (":scheme", "https"),
            (":authority", "x"),
            (":path", path),
            ("content-type", content_type),
        ]
        self.answers[stream] = Answer()
        self.connection.send_headers(stream, headers, end_stream=end and not body)
        if body:
            self.send(stream, body, end=end)
        self.flush()
        return stream

    def send(self, stream: int, body: bytes, *, end: bool) -> None:
        while body:
            size = min(
                len(body), self.connection.local_flow_control_window(stream), self.connection.max_outbound_frame_size
            )
            if not size:
                self.receive()
                continue
            self.connection.send_data(stream, body[:size], end_stream=end and size == len(body))
            body = body[size:]
            self.flush()

    def answer(self, stream: int) -> Answer:
        while not (self.answers[stream].ended or self.answers[stream].reset):
            self.receive()
        return self.answers[stream]

    def receive(self) -> None:
        data = self.socket.recv(65536)
        if not data:
            raise ConnectionEnded
        for event in self.connection.receive_data(data):
            if isinstance(event, h2.events.ResponseReceived):
                headers = dict(event.headers)
                self.answers[event.stream_id].status = int(headers[b":status"])
            elif isinstance(event, h2.events.DataReceived):
                self.answers[event.stream_id].body += event.data
                self.connection.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
            elif isinstance(event, h2.events.StreamEnded):
                self.answers[event.stream_id].ended = True
            elif isinstance(event, h2.events.StreamReset):
                self.answers[event.stream_id].reset = True
            elif isinstance(event, h2.events.ConnectionTerminated):
                raise ConnectionEnded
        self.flush()

    def close(self) -> None:
        self.socket.close()

    def flush(self) -> None:
        self.socket.sendall(self.connection.data_to_send())
