"""WebSocket echo, and what an idle connection costs."""

import json
import subprocess
import threading
import time
from collections.abc import Callable

from . import build
from .machine import GENERATOR_CORE, clean_environment, pinned, sample
from .peers import Server
from .plan import Options, Servers
from .sampling import Cell
from .scenarios import Scenario

# How long R gets to come to rest before its memory is read.
SETTLE_S = 1.0


def measure_echo(row: list[Cell], scenario: Scenario, servers: Servers, options: Options) -> None:
    generator = str(build.c_program("wsload"))
    servers.interleave(row, scenario, lambda server, seconds: _echo(server, scenario, seconds, options.placement, generator))


def _echo(server: Server, scenario: Scenario, seconds: float, placement: str, generator: str) -> dict[str, float]:
    load = ["echo", server.port, scenario.path, scenario.connections, seconds, scenario.payload_bytes]
    text, spent = sample([*pinned(GENERATOR_CORE, placement), generator, *map(str, load)], seconds + 30, server)
    result = json.loads(text)
    if result["errors"] > 0:
        raise RuntimeError(f"{result['errors']} wrong answers among {result['messages']} messages")
    if result["messages"] == 0:
        raise RuntimeError("no message came back")
    return {
        "messages_per_second": result["messages"] / result["seconds"],
        "p50_us": float(result["p50"]),
        "p99_us": float(result["p99"]),
        "p999_us": float(result["p999"]),
        "cpu_us_per_message": spent / result["messages"] * 1e6,
    }


def measure_idle(row: list[Cell], scenario: Scenario, servers: Servers, _: Options) -> None:
    """Resident memory and CPU time of the server with `connections` open and silent, less what it was without them."""
    mode = "idle" if scenario.workload == "ws" else "idle-http"

    def measure(cell: Cell, server: Server) -> None:
        line = [str(build.c_program("wsload")), mode, str(server.port), scenario.path]
        # A few connections first: what a server allocates once is not what a connection costs.
        _hold(line, 20, lambda: None)
        before = settled_memory(server)
        figures: dict[str, float] = {}

        def read() -> None:
            resident = settled_memory(server)
            figures["resident_bytes"] = float(resident)
            figures["bytes_per_connection"] = max(0.0, (resident - before) / scenario.connections)
            spent = server.cpu_seconds()
            time.sleep(1.0)
            figures["idle_cpu_ms_per_second"] = (server.cpu_seconds() - spent) * 1000

        _hold(line, scenario.connections, read)
        cell.single.update(figures)

    servers.each(row, measure)


def settled_memory(server: Server) -> int:
    """The resident set after the handler of `/gc` has collected R's garbage, twice: the first frees what the second needs."""
    for _ in range(2):
        server.get("/gc")
        time.sleep(SETTLE_S / 2)
    return server.memory_bytes("VmRSS")


def _hold(line: list[str], connections: int, meanwhile: Callable[[], None]) -> None:
    holder = subprocess.Popen(
        [*line, str(connections)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=clean_environment(),
    )
    timer = threading.Timer(60, holder.kill)
    timer.start()
    try:
        opened = holder.stdout.readline()
        if not opened:
            raise RuntimeError(f"the connections could not be opened: {holder.stderr.read().strip()[-200:]}")
        meanwhile()
    finally:
        timer.cancel()
        holder.communicate("\n", timeout=10)
