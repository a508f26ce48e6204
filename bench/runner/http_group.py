"""Groups of kind `http`: requests per second, latency and the server's CPU time through wrk."""

from collections.abc import Callable

from . import allocations, flame, wrk
from .plan import Options, Servers, open_cells, prepare
from .sampling import MISSING, OK, Cell, interleave
from .scenarios import Group, Scenario

# R compiles a closure at its second call and the allocators settle; this much load goes unmeasured first, and no less than a sample.
WARM_UP_S = 1.0


def run(group: Group, options: Options, isolate: Callable[[], bool]) -> list[Cell]:
    scenarios = options.chosen(group.scenarios)
    absent = prepare(scenarios)
    if not wrk.is_here():
        absent = {peer: (MISSING, "wrk is not installed") for scenario in scenarios for peer in scenario.peers}
    isolate()
    cells: list[Cell] = []
    with Servers(options) as servers:
        for scenario in scenarios:
            options.say(f"{group.name}: {scenario.name}")
            row = open_cells(scenario, absent)
            if scenario.extra.get("measure") == "allocations":
                allocations.measure(row, scenario, options)
            else:
                servers.switch(scenario.workload, scenario.extra.get("placement"))
                measure(row, scenario, servers, options)
            cells += row
    return cells


def measure(row: list[Cell], scenario: Scenario, servers: Servers, options: Options) -> None:
    seconds = options.seconds(scenario)

    def load(cell: Cell, length: float) -> dict[str, float]:
        server = servers.running[cell.peer]
        server.resume()
        try:
            return wrk.run(server, scenario, length, servers.placement)
        finally:
            if server.is_alive():
                server.pause()

    for cell in row:
        if cell.status != OK or (server := servers.get(cell)) is None:
            continue
        try:
            server.resume()
            wrk.check(server, scenario)
            load(cell, max(WARM_UP_S, seconds))
        except (RuntimeError, OSError) as error:
            cell.fail(str(error))
            if server.is_alive():
                server.pause()
    interleave(row, lambda cell: load(cell, seconds))
    if options.flame:
        draw_flames(row, scenario, servers, options)
    for cell in row:
        if cell.status == OK:
            cell.single["peak_bytes"] = float(servers.running[cell.peer].memory_bytes("VmHWM"))


def draw_flames(row: list[Cell], scenario: Scenario, servers: Servers, options: Options) -> None:
    """A flame graph of each server that was measured, beside the tables: flame-<scenario>-<peer>.svg."""
    for cell in row:
        if cell.status != OK:
            continue
        server = servers.running[cell.peer]
        name = f"flame-{scenario.name}-{cell.peer.replace('/', '-')}.svg"
        server.resume()
        why_not = flame.record(server, scenario, servers.placement, options.out / name)
        options.say(f"{name}: {why_not}" if why_not else name)
        if server.is_alive():
            server.pause()
