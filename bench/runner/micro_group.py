"""Micro benchmarks: one binary per group (and one in Go where the peer is), run by the contract of bench/README.md."""

import json
import os
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from . import build, callgrind
from .machine import SERVER_CORE, pinned, sample
from .plan import Options
from .sampling import MISSING, OK, Cell, interleave
from .scenarios import Scenario

TIME_LIMIT_S = 120
# Groups whose program starts servers and is their load generator: its own instructions say nothing of them, and how
# many messages a wake-up brings is the kernel's decision.
SOCKETS = ("websocket",)
# What a sample is; everything else that a run prints is deterministic and kept once.
TIMES = ("ns_per_op",)


class Binaries:
    """The programs of a group and which of them has which case, the first where two do; `absent` says why there are
    not more."""

    def __init__(self, programs: list[Callable[[], Path]], counts: bool = True) -> None:
        self.counts = counts
        self.homes: dict[tuple[str, str], Path] = {}
        reasons = []
        for program in programs:
            try:
                binary = program()
                cases, said = build.micro_cases(binary)
                reasons.append(said)
                for case in cases:
                    self.homes.setdefault(case, binary)
            except (build.BuildError, OSError, subprocess.CalledProcessError, ValueError) as error:
                reasons.append(str(error))
        self.absent = "; ".join(reason for reason in reasons if reason)


def measure(scenario: Scenario, binaries: Binaries, options: Options) -> list[Cell]:
    row = []
    for peer in scenario.peers:
        cell = Cell(scenario.name, peer)
        if (scenario.name, peer) not in binaries.homes:
            cell.status = MISSING
            cell.reason = binaries.absent or f"no binary of the group offers {scenario.name} with {peer}"
        row.append(cell)
    _time(row, scenario, binaries.homes, options)
    if binaries.counts and callgrind.is_here():
        _count(row, scenario, binaries.homes, options.quick)
    return row


def _time(row: list[Cell], scenario: Scenario, homes: dict[tuple[str, str], Path], options: Options) -> None:
    iterations = options.iterations(scenario)

    def take(cell: Cell) -> dict[str, float]:
        figures = run_once(homes[cell.scenario, cell.peer], cell.scenario, cell.peer, iterations, options.placement)
        for name, value in figures.items():
            if name not in TIMES:
                cell.single[name] = value
        return {name: value for name, value in figures.items() if name in TIMES}

    interleave(row, take)


def _count(row: list[Cell], scenario: Scenario, homes: dict[tuple[str, str], Path], quick: bool) -> None:
    def count(cell: Cell) -> None:
        try:
            cell.single["instructions"] = instructions(homes[cell.scenario, cell.peer], scenario, cell.peer, quick)
        except RuntimeError as error:
            cell.reason = str(error)

    # callgrind does not follow the runtime of Go.
    counted = [cell for cell in row if cell.status == OK and not build.is_go(homes[cell.scenario, cell.peer])]
    # Counts do not depend on what else runs, so they share the cores.
    with ThreadPoolExecutor(max_workers=len(os.sched_getaffinity(0))) as pool:
        list(pool.map(count, counted))


def instructions(binary: Path, scenario: Scenario, peer: str, quick: bool = False) -> float:
    """The scenario's `callgrind_iterations` where it names them, else as many as make the figure steady."""
    wanted = scenario.extra.get("callgrind_iterations")
    if wanted is None:
        enough = callgrind.QUICKLY_ENOUGH if quick else callgrind.ENOUGH
        wanted = callgrind.iterations_for(binary, scenario.name, peer, max(scenario.iterations, 1), enough)
    return callgrind.instructions_per_op(binary, scenario.name, peer, wanted)


def run_once(binary: Path, scenario: str, peer: str, iterations: int, placement: str) -> dict[str, float]:
    line = [*pinned(SERVER_CORE, placement), str(binary), "run", scenario, peer, str(iterations)]
    text, _ = sample(line, TIME_LIMIT_S)
    printed = json.loads(text.strip().splitlines()[-1])
    return {name: float(value) for name, value in printed.items() if type(value) in (int, float) and name != "iterations"}
