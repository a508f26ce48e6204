#!/usr/bin/env python3
"""Measures what clients that never read their responses cost the server and its other clients.

    python3 bench/soak/unread.py [case ...]       default: all cases

Each case starts an R process with echo handlers, sends it requests or messages, and reads nothing. Sending ends when
all has been sent, or when the server has accepted nothing for STALLED_S. Meanwhile another client requests a small
response every 20 ms. The case `crowd` adds 300 clients that never read a large response.

The figure is the maximum anonymous memory during the case less the memory before it. The exit status is 1 if it exceeds
MORE. The latencies are only printed, because other programs on the machine affect them.
"""

import contextlib
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

BENCH = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(BENCH), str(BENCH.parent / "tests" / "fairness")]

from clients import INITIAL_WINDOW, Address, Http2, WebSocket, connect, message  # noqa: E402
from runner import build  # noqa: E402
from runner.contenders import environment, r_code  # noqa: E402

# A lower bound of what the clients of the cases send: an echo is held at most once.
MORE = 64 << 20
STALLED_S = 3.0
PIECE = 64 << 10
CROWD = 300
LARGE = 5_000_000

APP = """
large <- as.raw(rep_len(1:251, %d))
rookery::startServer("127.0.0.1", %d, app <- list(
  call = function(req) switch(req$PATH_INFO,
    "/echo" = list(status = 200L, headers = list(), body = req$rook.input$read()),
    "/large" = list(status = 200L, headers = list(), body = large),
    list(status = 200L, headers = list(), body = "small")),
  onWSOpen = function(ws) ws$onMessage(function(binary, message) ws$send(message))
))
rookery::startServer("127.0.0.1", %d, app, tls = rookery::tls_config("%s"))
cat("up", "\\n")
repeat rookery::service(1000)
"""


def anonymous(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) << 10
    raise RuntimeError("the server has ended")


def send(client: socket.socket, pieces: Iterator[bytes]) -> int:
    """Sends pieces until the server has accepted nothing for STALLED_S. Returns the number of bytes sent."""
    client.settimeout(STALLED_S)
    sent = 0
    for piece in pieces:
        view = memoryview(piece)
        while view:
            try:
                taken = client.send(view)
            except TimeoutError:
                return sent
            view, sent = view[taken:], sent + taken
    return sent


def http1(port: int) -> socket.socket:
    return connect(Address("127.0.0.1", port, False), "http", 16 << 10)


def http2(port: int) -> Http2:
    """Returns a connection whose window for responses has its initial size. HTTP/2 is served over TLS, at the next port."""
    client = Http2(Address("127.0.0.1", port + 1, True), 256 << 10, INITIAL_WINDOW)
    for _ in client.frames(2):
        pass
    return client


def messages(port: int, total: int) -> tuple[int, socket.socket]:
    client = WebSocket(Address("127.0.0.1", port, False), "http", receive_buffer=16 << 10).socket
    piece = message(bytes(PIECE), 2)
    return send(client, (piece for _ in range(total // PIECE))), client


def messages_http2(port: int, total: int) -> tuple[int, socket.socket]:
    client = http2(port)
    stream = client.next
    client.socket.sendall(client.websocket())
    piece = message(bytes(PIECE), 2)
    sent = 0
    while sent < total and client.data(stream, piece, time.monotonic() + STALLED_S):
        sent += PIECE
    return sent, client.socket


def requests(port: int, total: int) -> tuple[int, socket.socket]:
    client = http1(port)
    head = f"POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: {1 << 20}\r\n\r\n".encode()
    return send(client, (head + bytes(1 << 20) for _ in range(total >> 20))), client


def requests_http2(port: int, total: int) -> tuple[int, socket.socket]:
    client = http2(port)
    sent = 0
    while sent < total:
        stream = client.next
        client.socket.sendall(client.post("/echo"))
        if not client.data(stream, bytes(1 << 20), time.monotonic() + STALLED_S, is_last=True):
            break
        sent += 1 << 20
    return sent, client.socket


CASES = {
    "messages": (messages, 64 << 20, False),
    "messages-http2": (messages_http2, 64 << 20, False),
    "messages-200": (messages, 200 << 20, False),
    "requests": (requests, 64 << 20, False),
    "requests-200": (requests, 200 << 20, False),
    "requests-http2": (requests_http2, 64 << 20, False),
    "crowd": (messages, 64 << 20, True),
    "crowd-http2": (requests_http2, 64 << 20, True),
}


class Other:
    """Another client, which sends a request every 20 ms on a connection of its own."""

    def __init__(self, port: int) -> None:
        self.times: list[float] = []
        self.port, self.is_over = port, False
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self) -> None:
        with socket.create_connection(("127.0.0.1", self.port), 60) as client:
            while not self.is_over:
                began = time.monotonic()
                client.sendall(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
                reply = b""
                while not reply.endswith(b"small"):
                    came = client.recv(4096)
                    if not came:
                        raise RuntimeError("the other client's connection was closed")
                    reply += came
                self.times.append(time.monotonic() - began)
                time.sleep(0.02)

    def stop(self) -> list[float]:
        self.is_over = True
        self.thread.join()
        return sorted(self.times)


def crowd(port: int) -> list[socket.socket]:
    clients = []
    for _ in range(CROWD):
        clients.append(http1(port))
        clients[-1].sendall(b"GET /large HTTP/1.1\r\nHost: a\r\n\r\n")
    return clients


def measure(name: str, port: int) -> bool:
    send, total, has_crowd = CASES[name]
    server = subprocess.Popen(r_code("rookery", APP % (LARGE, port, port + 1, build.OUT / "tls.pem")), stdout=subprocess.PIPE, env=environment())
    held: list[object] = []
    try:
        server.stdout.readline()
        for _ in range(600):
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                break
            time.sleep(0.1)
        # The buffers of an earlier client stay in the server's pool. They are not a cost of the
        # case.
        for warm in (messages, requests, requests_http2):
            warm(port, 16 << 20)[1].close()
        time.sleep(5)
        other = Other(port)
        time.sleep(1)
        pid = server.pid
        before, most, is_over = anonymous(pid), 0, threading.Event()

        def watch() -> None:
            nonlocal most
            while not is_over.wait(0.02):
                most = max(most, anonymous(pid))

        watcher = threading.Thread(target=watch)
        watcher.start()
        held.extend(crowd(port) if has_crowd else [])
        sent, client = send(port, total)
        held.append(client)
        time.sleep(2)
        is_over.set()
        watcher.join()
        times = other.stop()
    finally:
        server.kill()
        server.wait()
    more = most - before
    p99 = times[min(len(times) - 1, int(len(times) * 0.99))]
    print(f"{name:16} sent {sent >> 20:4} MiB, memory {more / (1 << 20):+6.1f} MiB, another client's p99"
          f" {p99 * 1e3:6.1f} ms, most {times[-1] * 1e3:6.1f} ms of {len(times)}", flush=True)  # fmt: skip
    return more <= MORE


def main() -> int:
    names = sys.argv[1:] or list(CASES)
    if set(names) - set(CASES):
        print(f"usage: unread.py [case ...]; cases: {' '.join(CASES)}", file=sys.stderr)
        return 2
    build.certificate()
    results = [measure(name, 18_900 + 2 * at) for at, name in enumerate(names)]
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
