"""HTTP load: requests per second, latency and the server's CPU time through wrk."""

from dataclasses import dataclass

from . import flame, wrk
from .plan import Options, Servers
from .sampling import OK, Cell, interleave
from .scenarios import Scenario

# R compiles a closure at its second call and the allocators settle; this much load goes unmeasured first, and no less than a sample.
WARM_UP_S = 1.0


def in_turns(scenarios: list[Scenario]) -> list[tuple[Scenario, Scenario | None]]:
    """Each scenario with the one that takes turns with it, because a goal compares the two: a machine that slows down
    between them would slow one."""
    chosen = {scenario.name for scenario in scenarios}
    beside = {scenario.extra["in_turns_with"]: scenario for scenario in scenarios if "in_turns_with" in scenario.extra}
    return [(scenario, beside.get(scenario.name)) for scenario in scenarios
            if scenario.extra.get("in_turns_with") not in chosen]


@dataclass
class Row:
    """A scenario's cells, and the servers that answer it."""

    cells: list[Cell]
    scenario: Scenario
    servers: Servers

    def load(self, cell: Cell, length: float) -> dict[str, float]:
        with self.servers.running[cell.peer].in_turn() as server:
            return wrk.run(server, self.scenario, length, self.servers.placement)

    def warm_up(self, cell: Cell, seconds: float) -> None:
        server = self.servers.get(cell) if cell.status == OK else None
        if server is None:
            return
        try:
            with server.in_turn():
                wrk.check(server, self.scenario)
            self.load(cell, max(WARM_UP_S, seconds))
        except (RuntimeError, OSError) as error:
            cell.fail(str(error))


def measure(rows: list[Row], options: Options, flames: bool = False) -> None:
    # Of each peer its cells in one after the other: what is compared is measured in the same second.
    turns = [(row, cell) for cells in zip(*(row.cells for row in rows), strict=True) for row, cell in zip(rows, cells)]
    for row, cell in turns:
        row.warm_up(cell, options.seconds(row.scenario))
    of = {id(cell): row for row, cell in turns}

    def take(cell: Cell) -> dict[str, float]:
        row = of[id(cell)]
        return row.load(cell, options.seconds(row.scenario))

    interleave([cell for _, cell in turns], take)
    for row, cell in turns:
        if cell.status == OK:
            cell.single["peak_bytes"] = float(row.servers.running[cell.peer].memory_bytes("VmHWM"))
    if flames:
        for row in rows:
            draw_flames(row.cells, row.scenario, row.servers, options)


def draw_flames(row: list[Cell], scenario: Scenario, servers: Servers, options: Options) -> None:
    """A flame graph of each server that was measured, beside the tables: flame-<scenario>-<peer>.svg."""
    for cell in row:
        if cell.status != OK:
            continue
        name = f"flame-{scenario.name}-{cell.peer.replace('/', '-')}.svg"
        with servers.running[cell.peer].in_turn() as server:
            why_not = flame.record(server, scenario, servers.placement, options.out / name)
        options.say(f"{name}: {why_not}" if why_not else name)
