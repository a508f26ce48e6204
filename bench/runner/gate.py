"""The regression gate: allocations exact and instructions within 2 %, for every micro group, against bench/gate.json.

It does not depend on the machine's mood. An improvement must be checked in as well (`--gate-write`), or the next
regression up to the old figure would pass unseen. Only our own cells are gated; the peers are none of our business.
"""

import json
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from . import build, callgrind, micro_group
from .scenarios import Group, Scenario, load_group

PATH = build.BENCH / "gate.json"
# The same source gives the same count; two per cent leaves room for a patch release of the compiler or of libc.
INSTRUCTIONS_WITHIN = 0.02
EXACT = ("allocs_per_op", "bytes_per_op", "peak_bytes")


def groups() -> list[Group]:
    found = [load_group(path) for path in sorted(build.SCENARIOS.glob("*.toml"))]
    return [group for group in found if group.kind == "micro"]


def measure(group: Group, say: Callable[[str], None]) -> dict[str, dict[str, float]]:
    """{"scenario/peer": {metric: figure}} of our own cells. Raises BuildError or RuntimeError."""
    binaries = build.micro_binaries(group.name)
    cases = set(build.micro_cases(binaries[0]))
    rivals = _rivals(group)
    own = [
        (scenario, peer)
        for scenario in group.scenarios
        for peer in scenario.peers
        if peer not in rivals and (scenario.name, peer) in cases
    ]
    say(f"{group.name}: {len(own)} cases")
    with ThreadPoolExecutor(max_workers=len(os.sched_getaffinity(0))) as pool:
        figures = pool.map(lambda case: _one(binaries[0], *case), own)
        return {f"{scenario.name}/{peer}": each for (scenario, peer), each in zip(own, figures)}


def _rivals(group: Group) -> set[str]:
    """Peers that are not ours: all but `ours` and its variants, which are written `ours-...`."""
    names = {peer for scenario in group.scenarios for peer in scenario.peers}
    return {name for name in names if name != group.ours and not name.startswith(group.ours + "-")}


def _one(binary: Path, scenario: Scenario, peer: str) -> dict[str, float]:
    printed = micro_group.run_once(binary, scenario.name, peer, scenario.quick_iterations, "free")
    figures = {name: printed[name] for name in EXACT if name in printed}
    if callgrind.is_here() and scenario.extra.get("gate_instructions", True):
        figures["instructions"] = round(micro_group.instructions(binary, scenario, peer), 3)
    return figures


def compare(stored: dict, found: dict) -> list[str]:
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
                complaints += _compare_case(f"{group} {case}", before[case], now[case])
    return complaints


def _compare_case(case: str, before: dict[str, float], now: dict[str, float]) -> list[str]:
    complaints = []
    for metric in sorted(set(before) | set(now)):
        if metric not in before or metric not in now:
            complaints.append(f"{case} {metric}: only {'measured' if metric in now else 'in gate.json'}")
            continue
        old, new = before[metric], now[metric]
        room = INSTRUCTIONS_WITHIN * old if metric == "instructions" else 0.0
        if abs(new - old) > room + 1e-9:
            word = "better: check it in with --gate-write" if new < old else "worse"
            complaints.append(f"{case} {metric}: {new:g}, was {old:g} ({word})")
    return complaints


def run(write: bool, allow_missing: bool, compiler: str, say: Callable[[str], None]) -> int:
    """Exit status: 0 passed (or written), 1 something differs, 3 a group has no binary."""
    found: dict[str, dict] = {}
    missing = []
    for group in groups():
        try:
            found[group.name] = measure(group, say)
        except build.BuildError as error:
            missing.append(f"{group.name}: MISSING: {error}")
    for line in missing:
        print(line)
    if write:
        if not found:
            print("gate: nothing was measured, gate.json is left as it is")
            return 3
        stored = _stored()
        merged = {**stored.get("groups", {}), **found}
        PATH.write_text(json.dumps({"compiler": compiler, "groups": merged}, indent=1) + "\n", encoding="utf-8")
        print(f"gate: wrote {sum(len(cases) for cases in found.values())} cases to {PATH}")
        return 0
    stored = _stored()
    if stored.get("compiler") not in (None, compiler):
        print(f"gate: written with {stored['compiler']}, this is {compiler}")
    known = {name: cases for name, cases in stored.get("groups", {}).items() if name in found or not allow_missing}
    complaints = compare(known, found)
    for line in complaints:
        print(f"gate: {line}")
    cases = sum(len(cases) for cases in found.values())
    print(f"gate: {cases} cases, {len(complaints)} differ")
    if complaints:
        return 1
    return 3 if missing and not allow_missing else 0


def _stored() -> dict:
    return json.loads(PATH.read_text(encoding="utf-8")) if PATH.exists() else {}
