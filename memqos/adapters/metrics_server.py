"""Serving metrics over HTTP."""

from __future__ import annotations

import socket
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

from memqos.adapters.files import machine_error


__all__ = ["MetricsServer"]

_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class _Server(ThreadingHTTPServer):
    def __init__(self, address: str, port: int, handler: type[BaseHTTPRequestHandler]) -> None:
        if ":" in address:
            self.address_family = socket.AF_INET6
        super().__init__((address, port), handler)


class MetricsServer:
    """Serves ``/metrics`` from a thread.

    Args:
        address: where to listen.
        port: 0 to have one chosen.
        render: gives the text; called from another thread.

    Attributes:
        port: as it was chosen by the kernel, if 0 was asked for.
        place: address and port, as in a URL.

    Raises:
        MachineError: the address cannot be bound.
    """

    def __init__(self, address: str, port: int, render: Callable[[], str]) -> None:
        class Handler(BaseHTTPRequestHandler):
            timeout = 5  # a client that says nothing must not hold a thread

            def do_GET(self) -> None:
                found = self.path.partition("?")[0] == "/metrics"
                body = render().encode() if found else b"not found: try /metrics\n"
                self.send_response(200 if found else 404)
                self.send_header("Content-Type", _TYPE)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_arguments: Any) -> None:
                pass  # a line for each scrape would drown the kills

        host = f"[{address}]" if ":" in address else address
        try:
            self._server = _Server(address, port, Handler)
        except OSError as error:
            raise machine_error(f"{host}:{port}", error) from error
        self.port = self._server.server_port
        self.place = f"{host}:{self.port}"
        Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._server.server_close()
