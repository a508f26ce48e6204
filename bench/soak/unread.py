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
import ssl
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from runner import build  # noqa: E402
from runner.contenders import environment, r_code  # noqa: E402
from soak.websocket import frame, handshake  # noqa: E402

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

# HTTP/2 is served over TLS, at the port after that of HTTP/1.1.
TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
TLS.check_hostname, TLS.verify_mode = False, ssl.CERT_NONE
TLS.set_alpn_protocols(["h2"])

# HTTP/2 (RFC 9113): frame types, and header fields as HPACK literals without an index and without Huffman codes.
DATA, HEADERS, SETTINGS, PING, WINDOW_UPDATE = 0, 1, 4, 6, 8


def http2_frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def hpack(fields: dict[str, str]) -> bytes:
    block = b""
    for name, value in fields.items():
        block += b"\x00" + bytes([len(name)]) + name.encode() + bytes([len(value)]) + value.encode()
    return block


def anonymous(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) << 10
    raise RuntimeError("the server has ended")


class Sender:
    """A connection whose responses are never read, except for the HTTP/2 frames that are needed to
    continue sending.
    """

    def __init__(self, port: int, receive_buffer: int = 16 << 10) -> None:
        self.socket = socket.socket()
        # A small buffer, so that what the client's kernel accepts does not count as read.
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.socket.connect(("127.0.0.1", port))

    def send(self, pieces: Iterator[bytes]) -> int:
        self.socket.settimeout(STALLED_S)
        sent = 0
        for piece in pieces:
            view = memoryview(piece)
            while view:
                try:
                    taken = self.socket.send(view)
                except TimeoutError:
                    return sent
                view, sent = view[taken:], sent + taken
        return sent


class Http2(Sender):
    """HTTP/2 over TLS. The connection's flow-control window for responses has its initial size and is
    never extended.
    """

    def __init__(self, port: int) -> None:
        super().__init__(port + 1, 256 << 10)
        self.socket = TLS.wrap_socket(self.socket)
        self.windows = {0: 65_535}
        self.initial = 65_535
        self.buffer = b""
        self.socket.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + http2_frame(SETTINGS, 0, 0))

    def open(self, stream: int, fields: dict[str, str]) -> None:
        self.windows[stream] = self.initial
        self.socket.sendall(http2_frame(HEADERS, 4, stream, hpack(fields)))

    def on_frames(self, wait: float) -> None:
        self.socket.settimeout(wait)
        with contextlib.suppress(TimeoutError):
            self.buffer += self.socket.recv(1 << 16)
        while len(self.buffer) >= 9:
            size = int.from_bytes(self.buffer[:3], "big")
            if len(self.buffer) < 9 + size:
                return
            kind, flags = self.buffer[3], self.buffer[4]
            stream = int.from_bytes(self.buffer[5:9], "big") & 0x7FFF_FFFF
            payload, self.buffer = self.buffer[9 : 9 + size], self.buffer[9 + size :]
            if kind == WINDOW_UPDATE:
                self.windows[stream] = self.windows.get(stream, 0) + int.from_bytes(payload, "big")
            elif kind == SETTINGS and not flags & 1:
                for at in range(0, size, 6):
                    name, value = struct.unpack(">HI", payload[at : at + 6])
                    if name == 4:
                        for known in self.windows.keys() - {0}:
                            self.windows[known] += value - self.initial
                        self.initial = value
                self.socket.sendall(http2_frame(SETTINGS, 1, 0))
            elif kind == PING and not flags & 1:
                self.socket.sendall(http2_frame(PING, 1, 0, payload))

    def data(self, stream: int, payload: bytes, is_last: bool = False) -> bool:
        """Sends data as the flow-control windows allow. Returns false if they allow nothing for
        STALLED_S.
        """
        until = time.monotonic() + STALLED_S
        while payload:
            room = min(self.windows[0], self.windows[stream], 16_384, len(payload))
            if room <= 0:
                if time.monotonic() > until:
                    return False
                self.on_frames(0.2)
                continue
            until = time.monotonic() + STALLED_S
            piece, payload = payload[:room], payload[room:]
            self.windows[0] -= room
            self.windows[stream] -= room
            self.socket.settimeout(STALLED_S)
            try:
                self.socket.sendall(http2_frame(DATA, int(is_last and not payload), stream, piece))
            except TimeoutError:
                return False
        return True


def messages(port: int, total: int) -> tuple[int, Sender]:
    client = Sender(port)
    client.socket.sendall(handshake("127.0.0.1", "/"))
    piece = frame(2, bytes(PIECE))
    return client.send(piece for _ in range(total // PIECE)), client


def messages_http2(port: int, total: int) -> tuple[int, Sender]:
    client = Http2(port)
    client.on_frames(2)
    client.open(1, {":method": "CONNECT", ":protocol": "websocket", ":scheme": "http", ":path": "/",
                    ":authority": "127.0.0.1", "sec-websocket-version": "13"})  # fmt: skip
    piece = frame(2, bytes(PIECE))
    sent = 0
    while sent < total and client.data(1, piece):
        sent += PIECE
    return sent, client


def requests(port: int, total: int) -> tuple[int, Sender]:
    client = Sender(port)
    head = f"POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: {1 << 20}\r\n\r\n".encode()
    return client.send(head + bytes(1 << 20) for _ in range(total >> 20)), client


def requests_http2(port: int, total: int) -> tuple[int, Sender]:
    client = Http2(port)
    client.on_frames(2)
    sent = 0
    for at in range(total >> 20):
        client.open(2 * at + 1, {":method": "POST", ":scheme": "http", ":path": "/echo", ":authority": "a"})
        if not client.data(2 * at + 1, bytes(1 << 20), True):
            break
        sent += 1 << 20
    return sent, client


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
        client = Sender(port)
        client.socket.sendall(b"GET /large HTTP/1.1\r\nHost: a\r\n\r\n")
        clients.append(client.socket)
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
            warm(port, 16 << 20)[1].socket.close()
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
