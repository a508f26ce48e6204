"""The load of the soak test: honest clients whose responses are checked, and clients that misbehave, in one process.

    python3 bench/soak/load.py <port>       until SIGTERM; then one line of JSON: {kind: [done, failed, first reason]}

Each kind of client has a number of tasks, and a pause after each round on a connection of its own, so the rate is
bounded whatever the server does. All connections use the loopback device.
"""

import asyncio
import json
import random
import signal
import socket
import struct
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from soak.websocket import frame, handshake  # noqa: E402

# The timeout of an honest client; a machine with other load may need seconds.
PATIENCE_S = 30
# More than the 1 MiB of a body that the server keeps in memory, so this body is spooled to a file.
SPOOLED = 3 << 20
BIG = 4 << 20
STREAM = 20_000
HELLO = b"Hello, World!"
NONSENSE = (b"GET / HTTP/9.9\r\n\r\n", b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x02\x00", bytes(200))


class Client:
    """One connection, with access to the raw bytes."""

    def __init__(self, receive_buffer: int = 0) -> None:
        self.socket = socket.socket()
        self.socket.setblocking(False)
        if receive_buffer:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.rest = b""

    async def __aenter__(self) -> "Client":
        await asyncio.get_running_loop().sock_connect(self.socket, ("127.0.0.1", PORT))
        return self

    async def __aexit__(self, *_: object) -> None:
        self.socket.close()

    def reset(self) -> None:
        """Closes with RST instead of FIN, like a client that ends with unread data or whose host is
        lost.
        """
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()

    async def send(self, data: bytes) -> None:
        await asyncio.get_running_loop().sock_sendall(self.socket, data)

    async def receive(self, size: int = 1 << 16) -> bytes:
        data = await asyncio.get_running_loop().sock_recv(self.socket, size)
        if not data:
            raise ConnectionResetError("closed by the server")
        return data

    async def exactly(self, size: int) -> bytes:
        pieces, have = [self.rest], len(self.rest)
        while have < size:
            pieces.append(await self.receive())
            have += len(pieces[-1])
        data = b"".join(pieces)
        self.rest = data[size:]
        return data[:size]

    async def head(self) -> bytes:
        while b"\r\n\r\n" not in self.rest:
            self.rest += await self.receive()
        head, self.rest = self.rest.split(b"\r\n\r\n", 1)
        return head

    async def chunk(self) -> bytes:
        """Returns the next chunk of a chunked body; empty at its end."""
        while b"\r\n" not in self.rest:
            self.rest += await self.receive()
        line, self.rest = self.rest.split(b"\r\n", 1)
        return (await self.exactly(int(line, 16) + 2))[:-2]

    async def ask(self, path: str, body: bytes | None = None) -> tuple[int, bytes]:
        method, length = ("GET", "") if body is None else ("POST", f"Content-Length: {len(body)}\r\n")
        await self.send(f"{method} {path} HTTP/1.1\r\nHost: soak\r\n{length}\r\n".encode() + (body or b""))
        head = (await self.head()).lower()
        size = int(head.split(b"content-length:")[1].split(b"\r\n")[0])
        return int(head.split()[1]), await self.exactly(size)

    async def upgrade(self) -> None:
        await self.send(handshake("soak", "/ws"))
        head = await self.head()
        if not head.startswith(b"HTTP/1.1 101"):
            raise ValueError(f"handshake: {head[:40]!r}")

    async def message(self) -> tuple[int, bytes]:
        first, second = await self.exactly(2)
        size = second & 0x7F
        if size > 125:
            size = int.from_bytes(await self.exactly(2 if size == 126 else 8), "big")
        return first & 0x0F, await self.exactly(size)


# --- honest clients ---


async def ask(times: int, pause: float, path: str, status: int, expected: bytes | int | None, client: Client) -> None:
    """Sends that many GETs and checks the body, or its length."""
    for _ in range(times):
        answer = await client.ask(path)
        found = len(answer[1]) if isinstance(expected, int) else answer[1]
        if answer[0] != status or expected not in (found, None):
            raise ValueError(f"{path}: {answer[0]}, {len(answer[1])} bytes, {answer[1][:40]!r}")
        await asyncio.sleep(pause)


async def upload(times: int, pause: float, sizes: tuple[int, ...], client: Client) -> None:
    for _ in range(times):
        body = bytes(random.choice(sizes))
        answer = await client.ask("/upload", body)
        if answer != (200, str(len(body)).encode()):
            raise ValueError(f"upload: {answer[0]} {answer[1][:40]!r}")
        await asyncio.sleep(pause)


async def echo(client: Client) -> None:
    await client.upgrade()
    for payload in (b"a", b"b" * 200, b"c" * 70_000):
        await client.send(frame(1, payload))
        answer = await client.message()
        if answer != (1, payload):
            raise ValueError(f"echo: opcode {answer[0]}, {len(answer[1])} bytes")
    await client.send(frame(8, b"\x03\xe8"))
    if (await client.message())[0] != 8:
        raise ValueError("no Close frame came back")


async def stream(client: Client) -> None:
    await client.send(b"GET /stream HTTP/1.1\r\nHost: soak\r\n\r\n")
    head, size = await client.head(), 0
    if b"chunked" not in head.lower():
        raise ValueError(f"stream: {head[:40]!r}")
    while chunk := await client.chunk():
        size += len(chunk)
    if size != STREAM:
        raise ValueError(f"stream: {size} bytes")


async def events(client: Client) -> None:
    """Reads three events and disconnects."""
    await client.send(b"GET /events HTTP/1.1\r\nHost: soak\r\nAccept: text/event-stream\r\n\r\n")
    await client.head()
    seen = b""
    while seen.count(b"event: tick\n") < 3:
        seen += await client.chunk()


# --- misbehaving clients; half of them end with a reset ---


async def aborted_upload(client: Client) -> None:
    await client.send(f"POST /upload HTTP/1.1\r\nHost: soak\r\nContent-Length: {SPOOLED}\r\n\r\n".encode())
    await client.send(bytes(SPOOLED // 2))
    await asyncio.sleep(random.choice((0, 0.5)))


async def promise_left(client: Client) -> None:
    await client.send(b"GET /promise HTTP/1.1\r\nHost: soak\r\n\r\n")
    await asyncio.sleep(random.choice((0, 0.005)))


async def slow_head(client: Client) -> None:
    await client.send(b"GET / HTTP/1.1\r\nHost: soak\r\nX-Slow: ")
    # 40 s is longer than the deadline for a head.
    for _ in range(random.choice((4, 16, 80))):
        await asyncio.sleep(0.5)
        await client.send(b"x")


async def slow_reader(client: Client) -> None:
    await client.send(b"GET /big HTTP/1.1\r\nHost: soak\r\n\r\n")
    for _ in range(random.choice((10, 100))):
        await client.receive(1024)
        await asyncio.sleep(0.1)


async def websocket_reset(client: Client) -> None:
    await client.upgrade()
    await client.send(frame(1, b"r" * 200) * 10)
    client.reset()


async def websocket_never_reads(client: Client) -> None:
    await client.upgrade()
    echoed = frame(1, b"n" * 60_000)
    for _ in range(100):
        await client.send(echoed)
    await asyncio.sleep(2)


async def websocket_half(client: Client) -> None:
    await client.upgrade()
    half = frame(2, bytes(random.choice((100, 1 << 20))))
    await client.send(half[: len(half) // 2])
    await asyncio.sleep(random.choice((0, 1)))


async def stream_left(client: Client) -> None:
    await client.send(b"GET /stream HTTP/1.1\r\nHost: soak\r\n\r\n")
    await asyncio.sleep(random.random())


async def events_left(client: Client) -> None:
    await client.send(b"GET /events HTTP/1.1\r\nHost: soak\r\nAccept: text/event-stream\r\n\r\n")
    await asyncio.sleep(3 * random.random())


async def nonsense(client: Client) -> None:
    await client.send(random.choice(NONSENSE))


@dataclass
class Kind:
    act: Callable[[Client], Awaitable[None]]
    tasks: int
    pause: float
    is_honest: bool = True
    receive_buffer: int = 0
    done: int = 0
    failed: int = 0
    reason: str = ""

    async def loop(self) -> None:
        await asyncio.sleep(random.random() * self.pause)
        while True:
            try:
                # The server drops a misbehaving client sooner or later, which is right; for an
                # honest client it is a failure.
                async with asyncio.timeout(PATIENCE_S if self.is_honest else 120), Client(self.receive_buffer) as client:
                    await self.act(client)
                    if not self.is_honest and random.random() < 0.5:
                        client.reset()
                self.done += 1
            except (OSError, TimeoutError, IndexError, ValueError) as error:
                self.done += not self.is_honest
                self.failed += self.is_honest
                self.reason = self.reason or (f"{error!r}" if self.is_honest else "")
            await asyncio.sleep(self.pause)


# About 400 requests and 40 WebSockets per second in all: a quarter of a core for this program, and
# less for the server.
KINDS = {
    "get": Kind(partial(ask, 20, 0.05, "/", 200, HELLO), 2, 0.1),
    "post_small": Kind(partial(upload, 100, 0.01, (1, 100, 1000)), 4, 0.1),
    "post_large": Kind(partial(upload, 1, 0, (SPOOLED,)), 1, 0.5),
    "static": Kind(partial(ask, 10, 0.05, "/static/10k.txt", 200, 10240), 1, 0.1),
    "big": Kind(partial(ask, 1, 0, "/big", 200, BIG), 1, 1.0),
    "promise": Kind(partial(ask, 10, 0, "/promise", 200, HELLO), 2, 0.1),
    "app_error": Kind(partial(ask, 1, 0, "/stop", 500, None), 1, 1.0),
    "echo": Kind(echo, 2, 0.1),
    # 500 clients of each kind connect and disconnect.
    "stream": Kind(stream, 350, 5.0),
    "stream_left": Kind(stream_left, 150, 5.0, False),
    "events": Kind(events, 350, 3.0),
    "events_left": Kind(events_left, 150, 3.0, False),
    "aborted_upload": Kind(aborted_upload, 2, 1.0, False),
    "promise_left": Kind(promise_left, 1, 0.1, False),
    "slow_head": Kind(slow_head, 10, 0.1, False),
    "slow_reader": Kind(slow_reader, 4, 0.1, False, receive_buffer=4096),
    "websocket_reset": Kind(websocket_reset, 2, 0.1, False),
    "websocket_never_reads": Kind(websocket_never_reads, 1, 1.0, False, receive_buffer=4096),
    "websocket_half": Kind(websocket_half, 4, 0.2, False),
    "nonsense": Kind(nonsense, 1, 0.1, False),
}


async def main() -> None:
    ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    tasks = [asyncio.create_task(kind.loop()) for kind in KINDS.values() for _ in range(kind.tasks)]
    await ended.wait()
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    print(json.dumps({name: [kind.done, kind.failed, kind.reason] for name, kind in KINDS.items()}))


if __name__ == "__main__":
    PORT = int(sys.argv[1])
    asyncio.run(main())
