"""The regression gate: allocations exact and instructions within 2 %, for every micro group, against bench/gate.json.

It does not depend on the machine's mood. An improvement must be checked in as well (`--gate-write`), or the next
regression up to the old figure would pass unseen. Only our own cells are gated; the peers are none of our business.
"""

import json
import os
import platform
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from . import build, callgrind, micro_group
from .scenarios import Group, Scenario, load_group

PATH = build.BENCH / "gate.json"
# The same source gives the same count; two per cent leaves room for a patch release of the compiler or of libc.
INSTRUCTIONS_WITHIN = 0.02
# Start-up differs by some dozens of instructions from run to run: over fewer operations that is more than 2 %.
FEWEST = 1_000
EXACT = ("allocs_per_op", "bytes_per_op", "peak_bytes")
# What the kernel decides is not exact: see micro_group.SOCKETS, and which of two threads is ahead.
UNGATED = (*micro_group.SOCKETS, "arena/concurrent")


def groups(wanted: list[str]) -> list[Group]:
    """The gated groups, or those of them that are wanted."""
    found = [load_group(path) for path in sorted(build.SCENARIOS.glob("*.toml"))]
    gated = [group for group in found if group.kind in ("micro", "ablation") and group.name not in UNGATED]
    return [group for group in gated if not wanted or group.name in wanted]


def measure(group: Group, say: Callable[[str], None]) -> dict[str, dict[str, float]]:
    """{"scenario/peer": {metric: figure}} of our own cells. Raises BuildError or RuntimeError."""
    # Neither Go nor any other peer outside crates.io is needed here.
    binary = build.rust_binary(group.name)
    cases = set(build.micro_cases(binary)[0])
    rivals = _rivals(group)
    own = [
        (scenario, peer)
        for scenario in group.scenarios
        for peer in scenario.peers
        if peer not in rivals and (scenario.name, peer) in cases and f"{group.name}/{scenario.name}" not in UNGATED
    ]
    say(f"{group.name}: {len(own)} cases")
    with ThreadPoolExecutor(max_workers=len(os.sched_getaffinity(0))) as pool:
        figures = pool.map(lambda case: _one(binary, *case), own)
        return {f"{scenario.name}/{peer}": each for (scenario, peer), each in zip(own, figures)}


def _rivals(group: Group) -> set[str]:
    """Peers that are not ours: all but `ours` and its variants, which are written `ours-...`."""
    names = {peer for scenario in group.scenarios for peer in scenario.peers}
    return {name for name in names if name != group.ours and not name.startswith(group.ours + "-")}


def _one(binary: Path, scenario: Scenario, peer: str) -> dict[str, float]:
    printed = micro_group.run_once(binary, scenario.name, peer, scenario.quick_iterations, "free")
    figures = {name: printed[name] for name in EXACT if name in printed}
    countable = scenario.extra.get("callgrind_iterations", FEWEST) >= FEWEST
    if countable and scenario.extra.get("gate_instructions", True):
        figures["instructions"] = round(micro_group.instructions(binary, scenario, peer), 3)
    return figures


def compare(stored: dict, found: dict, instructions: bool = True) -> list[str]:
    """What differs, a line each; empty when the gate is passed."""
    complaints = []
    for group in sorted(set(stored) | set(found)):
        before, now = stored.get(group, {}), found.get(group, {})
        for case in sorted(set(before) | set(now)):
            if case not in now:
                complaints.append(f"{group} {case}: stands in gate.json but was not measured")
            elif case not in before:
                complaints.append(f"{group} {case}: is not in gate.json yet")
            else:
                complaints += _compare_case(f"{group} {case}", before[case], now[case], instructions)
    return complaints


def _compare_case(case: str, before: dict[str, float], now: dict[str, float], instructions: bool) -> list[str]:
    complaints = []
    for metric in sorted(set(before) | set(now)):
        if metric == "instructions" and not instructions:
            continue
        if metric not in before or metric not in now:
            complaints.append(f"{case} {metric}: only {'measured' if metric in now else 'in gate.json'}")
            continue
        old, new = before[metric], now[metric]
        room = INSTRUCTIONS_WITHIN * old if metric == "instructions" else 0.0
        if abs(new - old) > room + 1e-9:
            word = "better: check it in with --gate-write" if new < old else "worse"
            complaints.append(f"{case} {metric}: {new:g}, was {old:g} ({word})")
    return complaints


def toolchain() -> dict[str, str]:
    """What instruction counts depend on besides the source: figures of another compiler or libc are not comparable."""
    compiler = subprocess.run(["rustc", "--version"], capture_output=True, text=True, check=True).stdout.strip()
    return {"compiler": compiler, "libc": " ".join(platform.libc_ver()), "processor": platform.machine()}


def run(write: bool, wanted: list[str], say: Callable[[str], None]) -> int:
    """Exit status: 0 passed (or written), 1 something differs, 3 valgrind or a group's binary is missing."""
    if not callgrind.is_here():
        print("gate: MISSING: valgrind, which counts the instructions, is not installed")
        return 3
    found: dict[str, dict] = {}
    missing = []
    for group in groups(wanted):
        try:
            found[group.name] = measure(group, say)
        except (build.BuildError, RuntimeError) as error:
            missing.append(f"{group.name}: MISSING: {error}")
    for line in missing:
        print(line)
    if write:
        return _write(found)
    stored = json.loads(PATH.read_text(encoding="utf-8")) if PATH.exists() else {"groups": {}}
    here = toolchain()
    is_comparable = all(stored.get(name) == value for name, value in here.items())
    if not is_comparable:
        was = ", ".join(str(stored.get(name)) for name in here)
        print(f"gate: allocations only: gate.json counts instructions of {was}; this is {', '.join(here.values())}")
    known = {name: cases for name, cases in stored["groups"].items() if not wanted or name in wanted}
    complaints = compare(known, found, is_comparable)
    for line in complaints:
        print(f"gate: {line}")
    cases = sum(len(cases) for cases in found.values())
    print(f"gate: {cases} cases, {len(complaints)} differ")
    if complaints:
        return 1
    return 3 if missing else 0


def as_text(here: dict[str, str], groups: dict[str, dict]) -> str:
    """A line a case, so that a difference is one of git's too."""
    lines = [f" {json.dumps(name)}: {json.dumps(value)}" for name, value in here.items()]
    inner = []
    for group, cases in groups.items():
        each = ",\n".join(f"   {json.dumps(case)}: {json.dumps(figures)}" for case, figures in cases.items())
        inner.append(f"  {json.dumps(group)}: {{\n{each}\n  }}")
    return "{\n" + ",\n".join([*lines, ' "groups": {\n' + ",\n".join(inner) + "\n }"]) + "\n}\n"


def _write(found: dict[str, dict]) -> int:
    """Stores what was found, and keeps the groups that were not measured if they are of the same toolchain."""
    if not found:
        print("gate: nothing was measured, gate.json is left as it is")
        return 3
    here = toolchain()
    stored = json.loads(PATH.read_text(encoding="utf-8")) if PATH.exists() else {}
    kept = stored.get("groups", {}) if all(stored.get(name) == value for name, value in here.items()) else {}
    PATH.write_text(as_text(here, {**kept, **found}), encoding="utf-8")
    print(f"gate: wrote {sum(len(cases) for cases in found.values())} cases to {PATH}")
    return 0
