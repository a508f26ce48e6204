"""Runs the scenarios of a group, each in the way that it says it is measured."""

from collections.abc import Callable
from functools import partial

from . import allocations, build, call_group, http_group, memory_group, micro_group, startup_group, wake_group
from . import stream_group, websocket_group, wrk
from .plan import Options, Servers, open_cells, prepare
from .sampling import MISSING, OK, Cell
from .scenarios import Group, Scenario

# What a server does to its memory is compared: one scenario must not leave its heap to the next.
FRESH = ("echo", "idle", "transfer", "slow", "upload")
# No server of the runner's is measured.
IN_PROCESS = ("micro", "call")
NEED_WRK = ("http", "callbacks")


def way(group: Group, scenario: Scenario) -> str:
    """How a scenario is measured: as its `measure` says, or by its workload, or as its kind of group is."""
    if "measure" in scenario.extra:
        return scenario.extra["measure"]
    if scenario.extra.get("idle") or scenario.workload == "idle":
        return "idle"
    if scenario.workload in ("body-in", "body-out"):
        return "transfer"
    if scenario.workload == "ws":
        return "echo"
    own = {"micro": "micro", "ablation": "micro", "call": "call", "startup": "startup"}
    return "http" if scenario.workload else own[group.kind]


WAYS: dict[str, Callable[[list[Cell], Scenario, Servers, Options], None]] = {
    "allocations": allocations.measure,
    "call": call_group.measure,
    "callbacks": wake_group.measure_callbacks,
    "echo": websocket_group.measure_echo,
    "delay": stream_group.measure_delay,
    "departure": stream_group.measure_departure,
    "idle": websocket_group.measure_idle,
    "idle-cpu": wake_group.measure_idle_cpu,
    "pieces": stream_group.measure_pieces,
    "slow": stream_group.measure_slow,
    "startup": startup_group.measure,
    "transfer": memory_group.measure,
    "upload": stream_group.measure_upload,
}


def run(group: Group, options: Options, isolate: Callable[[], bool]) -> list[Cell]:
    scenarios = options.chosen(group.scenarios)
    ways = {scenario.name: way(group, scenario) for scenario in scenarios}
    # What needs the network (cargo, Go) is built first.
    absent = prepare([scenario for scenario in scenarios if ways[scenario.name] not in IN_PROCESS])
    binaries = _binaries(group, [scenario for scenario in scenarios if ways[scenario.name] == "micro"])
    isolate()
    cells: list[Cell] = []
    with Servers(options) as servers, Servers(options) as others:
        for scenario, beside in http_group.in_turns(scenarios):
            options.say(f"{group.name}: " + " and ".join(each.name for each in (scenario, beside) if each))
            how = ways[scenario.name]
            if how == "micro":
                cells += micro_group.measure(scenario, binaries, options)
                continue
            rows = [_row(scenario, how, absent, servers)]
            if how == "http":
                if beside:
                    rows.append(_row(beside, how, absent, others))
                # The issue asks for a flame graph of each way to call the handler; a quick run goes without.
                http_group.measure(rows, options, options.flame or (group.kind == "call" and not options.quick))
                others.stop_all()
            else:
                WAYS[how](rows[0].cells, scenario, servers, options)
            cells += [cell for row in rows for cell in row.cells]
    return cells


def _row(scenario: Scenario, how: str, absent: dict[str, tuple[str, str]], servers: Servers) -> http_group.Row:
    if how in FRESH:
        servers.stop_all()
    servers.switch(scenario.workload, scenario.extra.get("placement"))
    cells = open_cells(scenario, absent)
    for cell in cells:
        if how in NEED_WRK and not wrk.is_here() and cell.status == OK:
            cell.status, cell.reason = MISSING, "wrk is not installed"
    return http_group.Row(cells, scenario, servers)


def _binaries(group: Group, scenarios: list[Scenario]) -> micro_group.Binaries:
    programs = build.micro_binaries(group.name) if group.kind == "micro" else []
    if group.kind == "ablation":
        costs = sorted({peer for scenario in scenarios for peer in scenario.peers})
        programs = [partial(build.ablation_binary, cost) for cost in costs]
    return micro_group.Binaries(programs if scenarios else [], counts=group.name not in micro_group.SOCKETS)
