"""Serving metrics over HTTP."""

from __future__ import annotations

import socket
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
from threading import BoundedSemaphore, Thread
from typing import Any

from memqos.adapters.files import machine_error


__all__ = ["MetricsServer"]

_TYPE = "text/plain; version=0.0.4; charset=utf-8"
# At a time. Each takes a thread and a descriptor, which the watch needs for itself.
_MOST_CLIENTS = 16


class _Server(ThreadingHTTPServer):
    def __init__(self, address: str, port: int, handler: type[BaseHTTPRequestHandler]) -> None:
        if ":" in address:
            self.address_family = socket.AF_INET6
        self._free = BoundedSemaphore(_MOST_CLIENTS)
        super().__init__((address, port), handler)

    def server_bind(self) -> None:
        """Bind, without asking DNS for the name of this host as HTTPServer does."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), self.server_address[1]

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer in a thread; hang up where there are too many."""
        if not self._free.acquire(blocking=False):
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except BaseException:  # no thread could be started
            self._free.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Answer, and make room for the next."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, *_arguments: Any) -> None:
        """Keep quiet about clients that hang up: tracebacks would drown the kills."""


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
