"""Groups of kind `call`: the ways from the loop to the R handler, timed in one process and seen in a server's rate."""

import json
import subprocess
from collections.abc import Callable
from dataclasses import replace

from . import build, http_group, peers
from .machine import SERVER_CORE, bystanders, pinned
from .plan import Options, Servers, open_cells, prepare
from .sampling import MISSING, OK, Cell, interleave
from .scenarios import Group, Scenario

TIME_LIMIT_S = 120


def run(group: Group, options: Options, isolate: Callable[[], bool]) -> list[Cell]:
    scenarios = options.chosen(group.scenarios)
    served = [scenario for scenario in scenarios if scenario.workload]
    absent = prepare(served)
    try:
        build.bare_epoll()
        reason = ""
    except build.BuildError as error:
        reason = str(error)
    isolate()
    cells: list[Cell] = []
    with Servers(options) as servers:
        for scenario in scenarios:
            options.say(f"{group.name}: {scenario.name}")
            row = open_cells(scenario, absent)
            if scenario.workload:
                servers.switch(scenario.workload)
                # The issue asks for a flame graph of each way; a quick run goes without.
                http_group.measure(row, scenario, servers, replace(options, flame=options.flame or not options.quick))
            else:
                _time_calls(row, scenario, options, reason)
            cells += row
    return cells


def _time_calls(row: list[Cell], scenario: Scenario, options: Options, missing: str) -> None:
    calls = options.iterations(scenario)

    def take(cell: Cell) -> dict[str, float]:
        script = build.BENCH / "peers" / "call.R"
        way = cell.peer.partition("/")[2]
        line = [*pinned(SERVER_CORE, options.placement), "Rscript", "--vanilla", str(script), way, str(calls)]
        others = bystanders.sample()
        done = subprocess.run(
            line, env=peers.environment(), capture_output=True, text=True, timeout=TIME_LIMIT_S, check=False
        )
        others.end(0.0)
        if done.returncode != 0:
            raise RuntimeError(done.stderr.strip()[-200:])
        printed = json.loads(done.stdout.strip().splitlines()[-1])
        cell.single["frames"] = float(printed["frames"])
        return {name: printed[name] for name in ("microseconds_per_call", "microseconds_added")}

    for cell in row:
        if missing and cell.status == OK:
            cell.status, cell.reason = MISSING, missing
    interleave(row, take)
