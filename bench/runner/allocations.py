"""Allocations per request on the thread that does the network, counted from outside with bench/load/alloccount.c.

Two counted runs of N and 2N requests, each on a connection of its own: their difference divided by N is what a request
allocates, without what a connection or the start of the server does.
"""

import shutil
import socket
import struct
from pathlib import Path

from . import build, peers
from .plan import Options, Servers, static_folder
from .sampling import OK, Cell
from .scenarios import Scenario

SLOTS, SLOT = 256, struct.Struct("=qQQQ")
REQUESTS = 1_000
# Peers without a thread for the network: all of their allocations count.
ONE_THREAD = ("hyper", "bare-epoll")


def measure(row: list[Cell], scenario: Scenario, _: Servers, options: Options) -> None:
    preload = build.c_preload("alloccount")
    for cell in row:
        if cell.status != OK:
            continue
        # Each program that Rscript goes through opens a file of its own; the folder takes them all away.
        folder = build.OUT / "allocations"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        prefix = folder / cell.peer
        variables = {"LD_PRELOAD": str(preload), "BENCH_ALLOC_FILE": str(prefix)}
        try:
            server = peers.start(cell.peer, scenario.workload, static_folder(), options.placement, variables)
        except (RuntimeError, OSError) as error:
            cell.fail(str(error))
            continue
        try:
            _measure_one(cell, server, scenario, Path(f"{prefix}.{server.process.pid}"))
        except (RuntimeError, OSError) as error:
            cell.fail(f"{error}; {server.last_words()}")
        finally:
            server.stop()
            shutil.rmtree(folder, ignore_errors=True)


def _measure_one(cell: Cell, server: peers.Server, scenario: Scenario, counters: Path) -> None:
    _ask(server.port, scenario.path, REQUESTS)
    counted = []
    for requests in (REQUESTS, 2 * REQUESTS):
        before = _read(counters)
        _ask(server.port, scenario.path, requests)
        after = _read(counters)
        counted.append({key: after[key][0] - before.get(key, (0, 0))[0] for key in after})
    once, twice = counted
    main = server.process.pid
    each = {thread: (twice[thread] - once.get(thread, 0)) / REQUESTS for thread in twice}
    if cell.peer in ONE_THREAD:
        cell.single["allocs_per_request"] = sum(each.values())
    else:
        cell.single["allocs_per_request"] = sum(value for thread, value in each.items() if thread != main)
        cell.single["allocs_per_request_on_R_thread"] = each.get(main, 0.0)


def _read(path: Path) -> dict[int, tuple[int, int]]:
    """Calls and bytes by thread id."""
    data = path.read_bytes()
    slots = [SLOT.unpack_from(data, position * SLOT.size) for position in range(SLOTS)]
    return {thread: (calls, size) for thread, calls, size, _ in slots if thread != 0}


def _ask(port: int, path: str, requests: int) -> None:
    """That many requests one after the other over one connection."""
    request = f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode()
    with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        size = None
        for _ in range(requests):
            connection.sendall(request)
            answer = b""
            while size is None or len(answer) < size:
                piece = connection.recv(65536)
                if not piece:
                    raise RuntimeError("the server closed the connection")
                answer += piece
                if size is None:
                    size = _size(answer)
            if not answer.startswith(b"HTTP/1.1 200"):
                raise RuntimeError(f"unexpected answer {answer[:40]!r}")


def _size(answer: bytes) -> int | None:
    """The length of the whole answer, once its head is here; all answers of a run are of one length."""
    head, separator, _ = answer.partition(b"\r\n\r\n")
    if not separator:
        return None
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            return len(head) + 4 + int(line.split(b":")[1])
    raise RuntimeError("an answer without Content-Length")
