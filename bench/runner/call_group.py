"""The ways from the loop to the R handler, timed in one process."""

import json

from . import build, peers
from .machine import SERVER_CORE, pinned, sample
from .plan import Options, Servers
from .sampling import MISSING, Cell, interleave
from .scenarios import Scenario

TIME_LIMIT_S = 120


def measure(row: list[Cell], scenario: Scenario, _: Servers, options: Options) -> None:
    try:
        build.bare_epoll()
    except build.BuildError as error:
        for cell in row:
            cell.status, cell.reason = MISSING, str(error)
    calls = options.iterations(scenario)

    def take(cell: Cell) -> dict[str, float]:
        script = build.BENCH / "peers" / "call.R"
        way = cell.peer.partition("/")[2]
        line = [*pinned(SERVER_CORE, options.placement), "Rscript", "--vanilla", str(script), way, str(calls)]
        text, _ = sample(line, TIME_LIMIT_S, environment=peers.environment())
        printed = json.loads(text.strip().splitlines()[-1])
        cell.single["frames"] = float(printed["frames"])
        return {name: printed[name] for name in ("microseconds_per_call", "microseconds_added")}

    interleave(row, take)
