"""Groups of kind `ablation`: each cost put back by a patch, in a micro benchmark and in a server under load."""

from collections.abc import Callable
from functools import partial

from . import build, http_group, micro_group, websocket_group
from .plan import Options, Servers, open_cells, prepare
from .sampling import OK, Cell
from .scenarios import Group


def run(group: Group, options: Options, isolate: Callable[[], bool]) -> list[Cell]:
    scenarios = options.chosen(group.scenarios)
    costs = {peer for scenario in scenarios if not scenario.workload for peer in scenario.peers}
    binaries = micro_group.Binaries([partial(build.ablation_binary, cost) for cost in sorted(costs)])
    absent = prepare([scenario for scenario in scenarios if scenario.workload])
    generator = str(build.c_program("wsload"))
    isolate()
    cells: list[Cell] = []
    for scenario in scenarios:
        options.say(f"{group.name}: {scenario.name}")
        if not scenario.workload:
            cells += micro_group.measure(scenario, binaries, options)
            continue
        row = open_cells(scenario, absent)
        with Servers(options) as servers:
            servers.switch(scenario.workload)
            if scenario.workload == "ws":
                ready = [cell for cell in row if cell.status == OK and servers.get(cell) is not None]
                websocket_group.measure_echo(ready, scenario, servers, options, generator)
            else:
                http_group.measure(row, scenario, servers, options)
        cells += row
    return cells
