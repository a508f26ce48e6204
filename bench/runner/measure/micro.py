"""Micro benchmarks: one binary for each group (and one in Go for contenders in Go), with the interface
that bench/README.md describes.

The instructions per operation are the difference of two runs under callgrind, of N and of 2N
operations. The difference leaves out start-up, the contender's own warm-up and the parsing of
arguments, and does not depend on the load of the machine. It depends on the compiler, which
bench/gate.json names. It would also depend on the processor, because the C library chooses its
string functions by the processor's features; ONE_PROCESSOR makes that choice the same everywhere.
"""

import json
import math
import os
import re
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from .. import build, contenders
from ..figures import OK, Cell, Missing, interleave
from ..machine import SERVER_CORE, clean_environment, pinned, run
from .sampling import sample
from ..scenarios import Group, Scenario

RUN_LIMIT_S = 120
# callgrind is some fifty times slower than the machine, which may have other work.
COUNT_LIMIT_S = 600
# Start-up and output differ by some hundred instructions between runs, which are negligible in this
# many.
ENOUGH = 20_000_000
QUICKLY_ENOUGH = 2_000_000
TRIAL = 200
# Without these features all x86-64 processors get the same `memcpy`. Between two machines, that
# choice changed the count of the scenario `head` by 2.3 %.
ONE_PROCESSOR = {"GLIBC_TUNABLES": "glibc.cpu.hwcaps=-AVX512VL,-AVX512BW,-AVX2,-AVX2_Usable,-AVX_Fast_Unaligned_Load,-ERMS,-FSRM"}
# Groups whose program is the load generator of servers. Its own instructions say nothing about
# them, and the kernel decides how many messages a wake-up delivers.
SOCKETS = ("websocket",)


def built(group: Group, scenarios: list[Scenario]) -> tuple[dict[tuple[str, str], Path], str]:
    """Returns the program for each (scenario, contender), and the reason for missing ones. The first
    program wins.
    """
    if group.kind == "ablation":
        costs = {contender for scenario in scenarios for contender in scenario.contenders}
        builds = [partial(build.ablation_binary, cost) for cost in sorted(costs)]
    else:
        has_go = build.go_module(group.name) is not None
        builds = [partial(each, group.name) for each in (build.rust_binary, build.go_binary)[: 1 + has_go]]
    homes: dict[tuple[str, str], Path] = {}
    reasons = []
    for program in builds if scenarios else []:
        try:
            binary = program()
            offered, said = cases(binary)
            homes = dict.fromkeys(offered, binary) | homes
            reasons.append(said)
        except (OSError, RuntimeError, ValueError) as error:
            reasons.append(str(error))
    return homes, "; ".join(filter(None, reasons))


def cases(binary: Path) -> tuple[list[tuple[str, str]], str]:
    """Returns the cases that the program offers, and its output about those that it cannot offer here."""
    done = run([str(binary), "list"], RUN_LIMIT_S)
    entries = [json.loads(line) for line in done.stdout.splitlines()]
    return [(entry["scenario"], entry["contender"]) for entry in entries], done.stderr.strip()


def measure(
    scenario: Scenario, homes: dict[tuple[str, str], Path], why_no_more: str, is_counted: bool, quick: bool
) -> list[Cell]:
    row = [Cell(scenario.name, contender) for contender in scenario.contenders]
    turns = []
    for cell in row:
        with cell.attempt():
            if (scenario.name, cell.contender) not in homes:
                raise Missing(why_no_more or f"no binary of the group offers {scenario.name} with {cell.contender}")
            turns.append((cell, partial(once, homes[scenario.name, cell.contender], scenario, cell.contender, scenario.iterations)))
    interleave(turns)

    def count(cell: Cell) -> None:
        try:
            cell.add({"instructions": instructions(homes[cell.scenario, cell.contender], scenario, cell.contender, quick)})
        except RuntimeError as error:
            cell.reason = str(error)

    if is_counted and has_callgrind():
        # callgrind does not support the runtime of Go.
        standing = [cell for cell in row if cell.status == OK]
        at_once(count, [cell for cell in standing if homes[cell.scenario, cell.contender].parent.name != "go"])
    return row


def at_once(function: Callable, cases: list) -> list:
    """Runs counting in parallel, because counts do not depend on other load."""
    with ThreadPoolExecutor(max_workers=len(os.sched_getaffinity(0))) as pool:
        return list(pool.map(function, cases))


def once(binary: Path, scenario: Scenario, contender: str, iterations: int) -> dict[str, float]:
    return _printed([str(binary), "run", scenario.name, contender, str(iterations)], scenario)


def call(contender: str, scenario: Scenario, _: float) -> dict[str, float]:
    """Measures the ways from bare-epoll's loop to the R handler in one process."""
    script, way = str(build.BENCH / "contenders" / "call.R"), contender.partition("/")[2]
    return _printed(["Rscript", "--vanilla", script, way, str(scenario.iterations)], scenario, contenders.environment())


def _printed(line: list[str], scenario: Scenario, environment: dict[str, str] | None = None) -> dict[str, float]:
    """Returns the figures that a program prints at its end as one JSON object."""
    text, _ = sample([*pinned(SERVER_CORE, scenario.placement), *line], RUN_LIMIT_S, environment=environment)
    found = json.loads(text.strip().splitlines()[-1])
    return {name: float(value) for name, value in found.items() if type(value) in (int, float) and name != "iterations"}


def has_callgrind() -> bool:
    return shutil.which("valgrind") is not None


def instructions(binary: Path, scenario: Scenario, contender: str, quick: bool = False) -> float:
    """Returns the instructions per operation, over as many operations as the scenario names or a
    steady figure needs.
    """
    most = scenario.callgrind_iterations or max(scenario.iterations, 1)
    each = partial(_instructions, [str(binary), "run", scenario.name, contender])
    if scenario.callgrind_iterations or most <= TRIAL:
        return each(most)
    # A power of ten of operations that take about this many instructions in total.
    enough = (QUICKLY_ENOUGH if quick else ENOUGH) / max(1.0, each(TRIAL))
    return each(min(most, max(10, 10 ** math.floor(math.log10(enough)))))


def _instructions(program: list[str], iterations: int) -> float:
    counted = []
    for count in (iterations, 2 * iterations):
        line = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", *program, str(count)]
        said = run(line, COUNT_LIMIT_S, clean_environment() | ONE_PROCESSOR).stderr
        found = re.search(r"Collected\s*:\s*(\d+)", said)
        if found is None:
            raise RuntimeError(f"callgrind counted nothing: {said.strip()[-200:]}")
        counted.append(int(found[1]))
    return (counted[1] - counted[0]) / iterations
