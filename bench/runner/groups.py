"""Runs the scenarios of a group, each in its way of measuring."""

from argparse import Namespace
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from functools import partial

from . import contenders
from .contenders import Servers
from .figures import OK, SAMPLES, Cell, Missing, interleave
from .machine import log, own_network
from .measure import flame_graph, load_generators, memory, micro, observe, workers
from .scenarios import Group, Scenario
from .server import Server


@dataclass(frozen=True)
class Way:
    """A way of measuring a scenario."""

    # Returns the figures of one sample of the given length in seconds, of a server, or of the named
    # contender if none is started.
    sample: Callable[[Server, Scenario, float], dict[str, float]] | Callable[[str, Scenario, float], dict[str, float]]
    samples: int = SAMPLES
    quick_samples: int = SAMPLES
    # The seconds of unmeasured load before a sample, or the length of a sample if that is shorter.
    # R compiles a closure at its second call, and the allocators need time to settle.
    warm_up_s: float = 0.0
    # True if the server's memory is compared, so that the heap of an earlier scenario must not be
    # reused.
    is_fresh: bool = False
    has_server: bool = True
    variables: Callable[[], dict[str, str]] = dict


WAYS = {
    "admin-delays": Way(observe.admin_delays, 1, 1, variables=observe.variables),
    "allocations": Way(memory.allocations, 1, 1, is_fresh=True, variables=memory.counting),
    "call": Way(micro.call, has_server=False),
    "callbacks": Way(load_generators.callbacks, quick_samples=1),
    "death": Way(workers.death, 1, 1),
    "delay": Way(load_generators.piece_delays, quick_samples=1),
    "departure": Way(load_generators.departures, 1, 1),
    "echo": Way(load_generators.echo, warm_up_s=0.3, is_fresh=True),
    "h2": Way(load_generators.h2, warm_up_s=0.3),
    "handshakes": Way(load_generators.handshakes, warm_up_s=0.3),
    "http": Way(load_generators.http, warm_up_s=60.0),
    "http-beside": Way(load_generators.http_beside, warm_up_s=0.3),
    "idle": Way(memory.idle, 1, 1, is_fresh=True),
    "idle-front": Way(memory.idle_front, 1, 1, is_fresh=True),
    "idle-cpu": Way(memory.idle_cpu, 1, 1),
    "pieces": Way(load_generators.pieces, warm_up_s=0.3),
    "kept": Way(observe.kept, 1, 1, is_fresh=True, variables=observe.variables),
    "observed": Way(observe.observed, warm_up_s=60.0, variables=observe.variables),
    "naps": Way(workers.naps, 1, 1),
    "slow": Way(memory.slow, 1, 1, is_fresh=True),
    "static-busy": Way(workers.static_while_busy, warm_up_s=0.3),
    "startup": Way(load_generators.startup, has_server=False),
    "steady": Way(workers.steady, warm_up_s=0.3),
    "transfer": Way(memory.transfer, is_fresh=True),
    "upload": Way(memory.upload, 1, 1, is_fresh=True),
}


class Row:
    """The cells of a scenario, and the servers that they measure."""

    def __init__(self, scenario: Scenario, absent: dict[str, Missing], servers: Servers) -> None:
        self.scenario, self.servers, self.way = scenario, servers, WAYS[scenario.measure]
        self.cells = [Cell(scenario.name, contender) for contender in scenario.contenders]
        for cell in self.cells:
            with cell.attempt():
                if cell.contender in absent:
                    raise absent[cell.contender]
        servers.switch(self.way.is_fresh, scenario.workload, scenario.placement, self.way.variables())

    def sample(self, cell: Cell, seconds: float) -> dict[str, float]:
        if not self.way.has_server:
            return self.way.sample(cell.contender, self.scenario, seconds)
        with self.servers.get(cell.contender).in_turn() as server:
            return self.way.sample(server, self.scenario, seconds)

    def warm_up(self, cell: Cell) -> dict[str, float]:
        if self.scenario.measure in ("http", "h2", "observed"):
            with self.servers.get(cell.contender).in_turn() as server:
                load_generators.check(server, self.scenario)
        self.sample(cell, min(self.way.warm_up_s, self.scenario.seconds))
        return {}

    def peak(self, cell: Cell) -> dict[str, float]:
        return {"peak_bytes": float(self.servers.get(cell.contender).memory_bytes("VmHWM"))}


def measure(rows: list[Row], quick: bool) -> None:
    """Runs all rows in turns, and within a turn the cells of each contender one after the other. The
    figures that a goal compares are therefore measured directly after each other, and a machine
    that slows down affects both.
    """
    turns = [(row, cell) for cells in zip(*(row.cells for row in rows), strict=True) for row, cell in zip(rows, cells)]
    way = rows[0].way
    if way.warm_up_s:
        interleave([(cell, partial(row.warm_up, cell)) for row, cell in turns], 1)
    taken = [(cell, partial(row.sample, cell, row.scenario.seconds)) for row, cell in turns]
    interleave(taken, way.quick_samples if quick else way.samples)
    if way.warm_up_s:
        interleave([(cell, partial(row.peak, cell)) for row, cell in turns], 1)


def run(group: Group, asked: Namespace) -> list[Cell]:
    scenarios = group.chosen(asked)
    # Builds that need the network (cargo, Go) come first.
    absent = _absent({contender for one in scenarios if one.measure != "micro" for contender in one.contenders})
    built = micro.built(group, [one for one in scenarios if one.measure == "micro"])
    own_network()
    names = {scenario.name for scenario in scenarios}
    cells: list[Cell] = []
    with closing(Servers()) as servers, closing(Servers()) as others:
        for scenario in scenarios:
            if scenario.in_turns_with in names:
                continue  # measured together with that row
            together = [scenario, *(one for one in scenarios if one.in_turns_with == scenario.name)]
            log(f"{group.name}: {' and '.join(one.name for one in together)}")
            if scenario.measure == "micro":
                cells += micro.measure(scenario, *built, group.name not in micro.SOCKETS, asked.quick)
                continue
            rows = [Row(one, absent, pool) for one, pool in zip(together, (servers, others))]
            measure(rows, asked.quick)
            cells += [cell for row in rows for cell in row.cells]
            # Each way to call the handler gets a flame graph, except in a quick run.
            if scenario.measure == "http" and (asked.flame or (group.kind == "call" and not asked.quick)):
                for row in rows:
                    _draw_flames(row, asked)
            others.close()
    return cells


def _absent(names: set[str]) -> dict[str, Missing]:
    """Builds what the contenders' servers need, and returns the reasons for which some cannot run."""
    absent = {}
    for contender in names:
        try:
            contenders.command(contender, 0, "hello")
        except (RuntimeError, OSError) as error:
            absent[contender] = Missing(str(error))
    return absent


def _draw_flames(row: Row, asked: Namespace) -> None:
    """Writes a flame graph of each measured server beside the tables."""
    for cell in row.cells:
        if cell.status == OK:
            name = f"flame-{cell.scenario}-{cell.contender.replace('/', '-')}.svg"
            with row.servers.get(cell.contender).in_turn() as server:
                why_not = flame_graph.record(server, row.scenario, asked.out / name)
            log(f"{name}: {why_not}" if why_not else name)
