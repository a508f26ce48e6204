"""What 1 GiB in and 1 GiB out do to the server's memory."""

import socket
import time

from .peers import Server
from .plan import ONE_GIB, Options, Servers, one_gib_file
from .sampling import SAMPLES, Cell
from .scenarios import Scenario

PIECE = 1 << 20
# One transfer of a GiB; httpuv takes a few seconds for it.
TIME_LIMIT_S = 120.0


def measure(row: list[Cell], scenario: Scenario, servers: Servers, options: Options) -> None:
    if scenario.workload == "body-out":
        one_gib_file()
    for _ in range(SAMPLES):
        servers.each(row, lambda cell, server: _transfer(cell, server, scenario))


def _transfer(cell: Cell, server: Server, scenario: Scenario) -> None:
    before = server.memory_bytes("VmRSS")
    server.reset_peak()
    spent, began = server.cpu_seconds(), time.monotonic()
    try:
        with socket.create_connection(("127.0.0.1", server.port), timeout=TIME_LIMIT_S) as connection:
            if scenario.workload == "body-in":
                _upload(connection)
            else:
                _download(connection)
    except (RuntimeError, OSError) as error:
        raise RuntimeError(f"{error!r}; {server.last_words()}") from error
    cell.samples.append(
        {
            "seconds": time.monotonic() - began,
            "growth_bytes": float(max(0, server.memory_bytes("VmHWM") - before)),
            "cpu_seconds": server.cpu_seconds() - spent,
        }
    )


def _upload(connection: socket.socket) -> None:
    head = f"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {ONE_GIB}\r\nConnection: close\r\n\r\n"
    connection.sendall(head.encode())
    piece = bytes(PIECE)
    for _ in range(ONE_GIB // PIECE):
        connection.sendall(piece)
    answer = b""
    while more := connection.recv(65536):
        answer += more
    if not answer.startswith(b"HTTP/1.1 200") or not answer.endswith(b"\r\n\r\n" + str(ONE_GIB).encode()):
        raise RuntimeError(f"unexpected answer {answer[:60]!r} .. {answer[-20:]!r}")


def _download(connection: socket.socket) -> None:
    connection.sendall(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
    buffer = bytearray(PIECE)
    head = b""
    while b"\r\n\r\n" not in head:
        more = connection.recv(65536)
        if not more:
            raise RuntimeError(f"the head did not end: {head[:60]!r}")
        head += more
    got = len(head) - head.index(b"\r\n\r\n") - 4
    while size := connection.recv_into(buffer):
        got += size
    if not head.startswith(b"HTTP/1.1 200") or got != ONE_GIB:
        raise RuntimeError(f"{got} bytes of body after {head[:30]!r}")
