"""The regression gate: for each micro group, allocations have to equal those in bench/gate.json, and
instructions may differ by 2 %. The instructions of R's process for a request (group `r-process`),
which are counted with the library in ROOKERY_LIB, may differ by 4 %.

The result does not depend on the load of the machine. An improvement has to be stored as well
(`--gate-write`), because otherwise the next regression up to the old figure would pass. Only the
cells of our own programs are compared.
"""

import json
import platform
import re
import shutil
from dataclasses import replace
from functools import partial
from pathlib import Path

from . import build, machine
from .measure import micro
from .scenarios import Group, Scenario

PATH = build.BENCH / "gate.json"
# The same source gives the same count. Two per cent leave room for a patch release of the compiler
# or of libc.
INSTRUCTIONS_WITHIN = 0.02
# The counts of one build of R's process differ by 3.4 % between two machines with the same R and libc.
# `instructions.py --before` compares two builds on one machine within 0.5 %.
R_WITHIN = 0.04
# Start-up differs by some dozens of instructions between runs, which is more than 2 % of few
# operations.
FEWEST = 1_000
# The group of the requests to R, which only the gate has.
R_GROUP = "r-process"
EXACT = ("allocs_per_op", "bytes_per_op", "peak_bytes")
# Cases that depend on the kernel are not exact: those in micro.SOCKETS, and those with two threads.
UNGATED = (*micro.SOCKETS, "arena/concurrent")


def measure(group: Group) -> dict[str, dict[str, float]]:
    """Returns {"scenario/contender": {metric: figure}} of our own cells. Raises RuntimeError."""
    # Neither Go nor a contender outside crates.io is needed here.
    binary = build.rust_binary(group.name)
    offered = set(micro.cases(binary)[0])
    own = [
        (replace(scenario, placement="free"), contender)
        for scenario in group.scenarios
        for contender in scenario.contenders
        # `ours` and its variants
        if (contender == group.ours or contender.startswith(group.ours + "-"))
        and (scenario.name, contender) in offered
        and f"{group.name}/{scenario.name}" not in UNGATED
    ]
    machine.log(f"{group.name}: {len(own)} cases")
    figures = micro.at_once(lambda case: _one(binary, *case), own)
    return {f"{scenario.name}/{contender}": each for (scenario, contender), each in zip(own, figures)}


def _one(binary: Path, scenario: Scenario, contender: str) -> dict[str, float]:
    printed = micro.once(binary, scenario, contender, scenario.quick_iterations)
    figures = {name: float(printed[name]) for name in EXACT if name in printed}
    if scenario.gate_instructions and (scenario.callgrind_iterations or FEWEST) >= FEWEST:
        figures["instructions"] = round(micro.instructions(binary, scenario, contender), 3)
    return figures


def measure_r() -> dict[str, dict[str, float]]:
    """Returns the instructions of R's process for each request. Raises RuntimeError."""
    # This module is imported late, because it imports the modules of this package.
    import instructions

    if not (instructions.LIBRARY / "rookery").exists():
        raise RuntimeError(f"{instructions.LIBRARY} has no package rookery")
    machine.log(f"{R_GROUP}: {len(instructions.LEAST_POLLS)} cases")
    return {work: {"instructions": round(instructions.at_least_polls(work))} for work in instructions.LEAST_POLLS}


def compare(stored: dict, found: dict, instructions: bool = True) -> list[str]:
    """Returns the differences, one line each; none if the gate is passed."""
    before, now = (
        {
            (group, case, metric): figure
            for group, cases in groups.items()
            for case, figures in cases.items()
            for metric, figure in figures.items()
            if instructions or metric != "instructions"
        }
        for groups in (stored, found)
    )
    complaints = []
    for key in sorted(before.keys() | now.keys()):
        name, old, new = " ".join(key), before.get(key), now.get(key)
        if old is None or new is None:
            complaints.append(f"{name}: only {'measured' if old is None else 'in gate.json'}")
        elif abs(new - old) > _tolerance(*key) * old + 1e-9:
            word = "better: check it in with --gate-write" if new < old else "worse"
            complaints.append(f"{name}: {new:g}, was {old:g} ({word})")
    return complaints


def _tolerance(group: str, _case: str, metric: str) -> float:
    """Returns by which part of the stored figure a figure may differ."""
    if metric != "instructions":
        return 0.0
    return R_WITHIN if group == R_GROUP else INSTRUCTIONS_WITHIN


def toolchain() -> dict[str, str]:
    """Returns what instruction counts depend on besides the source: the compiler and libc, and for
    R's process the version of R.
    """
    compiler = machine.run(["rustc", "--version"], 60).stdout.strip()
    r = shutil.which("R") and machine.run(["R", "--version"], 60).stdout.partition("\n")[0]
    return {"compiler": compiler, "libc": " ".join(platform.libc_ver()), "processor": platform.machine(), "r": r or "none"}


def run(groups: list[Group], write: bool, has_r: bool) -> int:
    """Compares the groups and, with `has_r`, R's process. Returns the exit status: 0 passed (or
    written), 1 something differs, 3 valgrind, a group's binary or the R package is missing.
    """
    if not micro.has_callgrind():
        print("gate: MISSING: valgrind, which counts the instructions, is not installed")
        return 3
    gated = [group for group in groups if group.kind in ("micro", "ablation") and group.name not in UNGATED]
    stored = json.loads(PATH.read_text(encoding="utf-8"))
    here = toolchain()
    counts = {group.name: partial(measure, group) for group in gated}
    if has_r and (write or stored.get("r") == here["r"]):
        counts[R_GROUP] = measure_r
    elif has_r:
        print(f"gate: not R's process: gate.json counts instructions of {stored.get('r')}; this is {here['r']}")
    found: dict[str, dict] = {}
    for name, counted in counts.items():
        try:
            found[name] = counted()
        except RuntimeError as error:
            print(f"{name}: MISSING: {error}")
    is_comparable = all(stored.get(name) == value for name, value in here.items() if name != "r")
    if write and not found:
        print("gate: nothing was measured, gate.json is left as it is")
        return 3
    if write:
        # Groups that were not measured are kept if they have the same toolchain.
        kept = {**stored["groups"], **found} if is_comparable else found
        PATH.write_text(as_text(here, kept), encoding="utf-8")
        print(f"gate: wrote {sum(map(len, found.values()))} cases to {PATH}")
        return 0
    if not is_comparable:
        was = ", ".join(stored.get(name, "?") for name in here)
        print(f"gate: allocations only: gate.json counts instructions of {was}; this is {', '.join(here.values())}")
    known = {name: stored["groups"].get(name, {}) for name in counts}
    complaints = compare(known, found, is_comparable)
    for line in complaints:
        print(f"gate: {line}")
    print(f"gate: {sum(map(len, found.values()))} cases, {len(complaints)} differ")
    return 1 if complaints else 0 if len(found) == len(counts) else 3


def as_text(here: dict[str, str], groups: dict[str, dict]) -> str:
    """Formats the gate with one line for each case, so that git shows each difference."""
    text = json.dumps({**here, "groups": groups}, indent=1)
    return re.sub(r"\{[^{}]*\}", lambda case: json.dumps(json.loads(case[0])), text) + "\n"
