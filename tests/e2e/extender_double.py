"""Serve a double of another system's extender to kube-scheduler, from the process of the tests."""

from __future__ import annotations

import json
import sys
import threading
from abc import ABC, abstractmethod
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar

from tests.e2e.kube_api import Object, RefusedError


class FailingServer(ThreadingHTTPServer):
    """A server of which an exception fails the test: it ends the thread, which pytest reports."""

    def handle_error(self, request: Any, client_address: Any) -> None:
        error = sys.exception()
        if error is not None and not isinstance(error, ConnectionError):  # such as a client that was stopped
            raise error


class ExtenderDouble(ABC):
    """An extender with the verbs filter and bind, below ``path``, that is asked about the ``managed`` resources."""

    path: ClassVar[str] = ""
    managed: ClassVar[tuple[str, ...]]

    def __init__(self) -> None:
        double = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                arguments = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                try:
                    status, result = double.reply(self.path.removeprefix(f"{double.path}/"), arguments)
                except RefusedError as refused:  # such as a pod that was deleted meanwhile
                    status, result = 500, {"Error": str(refused)}
                body = json.dumps(result).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
                pass

        self._server = FailingServer(("127.0.0.1", 0), Handler)

    @abstractmethod
    def reply(self, verb: str, arguments: Object) -> tuple[int, Object]:
        """Return status and body of the response."""

    def start(self) -> None:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    @property
    def entry(self) -> Object:
        """The entry under ``extenders`` of kube-scheduler's configuration."""
        return {
            "urlPrefix": f"http://127.0.0.1:{self._server.server_port}{self.path}",
            "filterVerb": "filter",
            "bindVerb": "bind",
            "enableHTTPS": False,
            "nodeCacheCapable": True,
            "managedResources": [{"name": name, "ignoredByScheduler": False} for name in self.managed],
            "ignorable": False,
        }
