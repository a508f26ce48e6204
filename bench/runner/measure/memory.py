"""The memory that connections, large bodies and requests cost a server, and its CPU time while idle."""

import http.client
import shutil
import struct
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path

from .. import build
from ..machine import clean_environment
from ..scenarios import Scenario
from ..server import Server

PIECE = 1 << 20
UPLOADED = 10 * 10**9
# The time for R and a server's timers to settle before the memory is read.
SETTLE_S = 6.0
CROWD = 1_500
IDLE_S = 5.0
# The limit of one transfer; httpuv takes a few seconds for a GiB.
TRANSFER_LIMIT_S = 300.0

# bench/load/alloccount.c counts the calls to malloc. Each program through which Rscript goes has a
# file of its own there.
COUNTS = build.OUT / "allocations"
SLOTS, SLOT = 256, struct.Struct("=qQQQ")
REQUESTS = 1_000
# Contenders without a network thread: all of their allocations count.
ONE_THREAD = ("hyper", "bare-epoll")


def idle(server: Server, scenario: Scenario, _: float, is_alone: bool = False) -> dict[str, float]:
    """Returns resident memory and CPU time of the server for `connections` silent connections, less
    those without them.
    """
    mode = "idle" if scenario.workload == "ws" else "idle-http"
    # First a large number of connections: memory that a server allocates or releases once is not
    # the cost of a connection.
    with held(server, mode, scenario.path, CROWD):
        settled_memory(server, is_alone)
    before = settled_memory(server, is_alone)
    with held(server, mode, scenario.path, scenario.connections):
        resident = settled_memory(server, is_alone)
        spent = _spent_in(server, 1.0)
    each = max(0.0, (resident - before) / scenario.connections)
    return {"resident_bytes": float(resident), "bytes_per_connection": each, "idle_cpu_ms_per_second": spent}


def idle_front(server: Server, scenario: Scenario, seconds: float) -> dict[str, float]:
    """Returns the same for the process that has the connections, and its memory before any connection."""
    server.get("/")
    time.sleep(1)
    return {"front_bytes": float(server.memory_bytes("VmRSS", True)), **idle(server, scenario, seconds, True)}


def idle_cpu(server: Server, _: Scenario, __: float) -> dict[str, float]:
    server.get("/")
    return {"idle_cpu_ms_per_second": _spent_in(server, IDLE_S)}


def _spent_in(server: Server, seconds: float) -> float:
    """Returns milliseconds of CPU time per second."""
    spent = server.cpu_seconds()
    time.sleep(seconds)
    return (server.cpu_seconds() - spent) / seconds * 1000


def settled_memory(server: Server, is_alone: bool = False) -> int:
    """Returns the resident set after `/gc` has collected R's garbage twice, because the first
    collection frees what the second needs.
    """
    for _ in range(2):
        time.sleep(SETTLE_S / 2)
        server.get("/gc")
    time.sleep(0.5)
    return server.memory_bytes("VmRSS", is_alone)


@contextmanager
def held(server: Server, mode: str, path: str, connections: int) -> Iterator[None]:
    line = ["timeout", "90", str(build.c_program("wsload")), *server.protocols, mode, str(server.port), path, str(connections)]
    pipes = {name: subprocess.PIPE for name in ("stdin", "stdout", "stderr")}
    # It keeps the connections until its input ends, which is at the end of the block.
    with subprocess.Popen(line, text=True, env=clean_environment(), **pipes) as holder:
        if not holder.stdout.readline():
            raise RuntimeError(f"the connections could not be opened: {holder.stderr.read().strip()[-200:]}")
        yield


def transfer(server: Server, scenario: Scenario, _: float) -> dict[str, float]:
    """Sends a GiB to the server, or receives one from it."""
    if scenario.workload == "body-in":
        return _growth(server, partial(_upload, server, scenario.path, build.ONE_GIB))
    return _growth(server, partial(_download, server, scenario.path, 0.0))


def slow(server: Server, scenario: Scenario, _: float) -> dict[str, float]:
    """Sends a GiB to a client that reads a MiB and waits."""
    return _growth(server, partial(_download, server, scenario.path, 0.005))


def upload(server: Server, scenario: Scenario, _: float) -> dict[str, float]:
    return _growth(server, partial(_upload, server, scenario.path, UPLOADED))


def _growth(server: Server, transferred: Callable[[], None]) -> dict[str, float]:
    """Returns the time of one transfer, and the server's memory in excess of its memory before."""
    before = server.memory_bytes("VmRSS")
    # Resets `VmHWM` to the current resident set.
    Path(f"/proc/{server.process.pid}/clear_refs").write_text("5", encoding="utf-8")
    spent, began = server.cpu_seconds(), time.monotonic()
    transferred()
    took, growth = time.monotonic() - began, server.memory_bytes("VmHWM") - before
    return {"seconds": took, "growth_bytes": float(max(0, growth)), "cpu_seconds": server.cpu_seconds() - spent}


def _upload(server: Server, path: str, size: int) -> None:
    piece = bytes(PIECE)
    pieces = (piece[: size - at] for at in range(0, size, PIECE))
    headers = {"Content-Length": str(size), "Connection": "close"}
    with server.answer("POST", path, pieces, headers, TRANSFER_LIMIT_S) as response:
        told = response.read()
    if response.status != 200 or told != str(size).encode():
        raise RuntimeError(f"status {response.status} and {told[:60]!r} to {size} bytes")


def _download(server: Server, path: str, pause_s: float) -> None:
    buffer, got = bytearray(PIECE), 0
    with server.answer("GET", path, headers={"Connection": "close"}, limit_s=TRANSFER_LIMIT_S) as response:
        while size := response.readinto(buffer):
            got += size
            time.sleep(pause_s)
    if response.status != 200 or got != build.ONE_GIB:
        raise RuntimeError(f"status {response.status} and {got} bytes")


def counting() -> dict[str, str]:
    """Returns the environment of a server whose allocations are counted."""
    shutil.rmtree(COUNTS, ignore_errors=True)
    COUNTS.mkdir(parents=True)
    preload = build.c_program("alloccount", "-shared", "-fPIC")
    return {"LD_PRELOAD": str(preload), "BENCH_ALLOC_FILE": str(COUNTS / "calls")}


def allocations(server: Server, scenario: Scenario, _: float) -> dict[str, float]:
    """Returns the allocations per request on the threads that are not R's: the difference of two runs
    of N and 2N requests, each on one connection, divided by N. The cost of a connection and of the
    server's start is thereby left out.
    """
    _ask(server, scenario.path, REQUESTS)
    counted = []
    for requests in (REQUESTS, 2 * REQUESTS):
        before = _calls(server)
        _ask(server, scenario.path, requests)
        counted.append({thread: calls - before.get(thread, 0) for thread, calls in _calls(server).items()})
    once, twice = counted
    each = {thread: (calls - once.get(thread, 0)) / REQUESTS for thread, calls in twice.items()}
    if server.contender in ONE_THREAD:
        return {"allocs_per_request": sum(each.values())}
    of_r = each.pop(server.process.pid, 0.0)
    return {"allocs_per_request": sum(each.values()), "allocs_per_request_on_R_thread": of_r}


def _calls(server: Server) -> dict[int | str, int]:
    """Returns the calls to malloc by thread, and those of Rookery's own allocator, which counts them
    itself.
    """
    own = {"own": int(server.get("/allocations"))} if server.contender.startswith("rookery") else {}
    data = (COUNTS / f"calls.{server.process.pid}").read_bytes()
    slots = [SLOT.unpack_from(data, position * SLOT.size) for position in range(SLOTS)]
    return {thread: calls for thread, calls, _, _ in slots if thread != 0} | own


def _ask(server: Server, path: str, requests: int) -> None:
    """Sends that many requests one after the other over one connection, with no header besides Host."""
    with closing(http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)) as connection:
        for _ in range(requests):
            connection.putrequest("GET", path, skip_accept_encoding=True)
            connection.endheaders()
            response = connection.getresponse()
            response.read()
            if response.status != 200 or response.will_close:
                raise RuntimeError(f"status {response.status}, or no connection that is kept")
