#!/usr/bin/env python3
"""Measures what this project claims, beside its peers.

    python3 bench/run.py                         every group
    python3 bench/run.py --group r-http --quick  one group, short samples
    python3 bench/run.py --gate                  the regression gate of the micro groups (--gate-write stores it)

Exit status: 0, also where a peer is MISSING: the tables name it (`make peers` installs them); 1 a cell FAILED, a goal's
floor is missed or was not measured (with --goals), or the gate differs; 2 wrong arguments, or results that are not for the
README; 3 the gate lacks a program.
"""

import argparse
import sys
import time
from pathlib import Path

from runner import build, gate, goals, groups, machine, peers, plot, readme, report
from runner.plan import Options
from runner.sampling import FAILED, MISSING, Cell
from runner.scenarios import Group, ScenarioError, group_names, load_group

# The groups that the project promises: one that is not there is MISSING, not forgotten.
PROMISED = (
    "ablation", "arena", "error", "frames", "memory", "r-call", "r-http", "r-websocket", "startup", "wake", "websocket",
)  # fmt: skip


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--group", action="append", default=[], help="a group to run (again for more); default: all")
    parser.add_argument("--scenario", action="append", default=[], help="only this scenario (again for more)")
    parser.add_argument("--quick", action="store_true", help="short samples and the quick scenarios only")
    parser.add_argument("--goals", action="store_true", help="exit 1 unless every floor is met")
    parser.add_argument("--placement", choices=("pinned", "free"), default=machine.default_placement())
    parser.add_argument("--peer", action="append", default=[], help="only this peer (again for more)")
    parser.add_argument("--out", type=Path, default=report.DEFAULT_FOLDER, help="where .json, .md and .svg go")
    parser.add_argument("--flame", action="store_true", help="draw a flame graph of each server of an HTTP scenario")
    parser.add_argument("--gate", action="store_true", help="compare with bench/gate.json (with --group: only that)")
    parser.add_argument("--gate-write", action="store_true", help="write bench/gate.json")
    parser.add_argument("--readme", type=Path, help="put the short table of the last results into this file, their plot into docs beside it, and stop")
    parser.add_argument("--list", action="store_true", help="name the groups and their scenarios")
    return parser.parse_args()


def say(text: str) -> None:
    print(f"  {text}", file=sys.stderr, flush=True)


_noisy: list[str] = []


def run_group(group: Group, options: Options, out: Path) -> tuple[list[Cell], list[goals.Verdict]]:
    about = machine.describe() | build.identity(peers.rookery_library())
    about.update({f"peer {name}": text for name, text in report.peer_versions(group).items()})
    machine.bystanders.reset()
    isolated: list[bool] = []
    began = time.monotonic()
    cells = groups.run(group, options, lambda: isolated.append(isolate()))
    about["network"] = "a namespace of its own" if isolated and isolated[0] else "the machine's loopback"
    about["took"] = f"{time.monotonic() - began:.0f} s"
    options.others = machine.bystanders.share()
    about["other programs during the samples"] = f"{options.others:.0%} of the cores' time"
    if options.others > machine.QUIET:
        _noisy.append(f"{group.name} ({options.others:.0%})")
    measured = {cell.scenario for cell in cells}
    verdicts = goals.judge(group, cells, measured)
    text = report.markdown(group, cells, verdicts, about, options)
    results = report.as_json(group, cells, verdicts, about, options)
    report.write(out, group.name, results, text, plot.svg(group, cells, report.conditions(group, options)))
    # On the terminal the goals of all groups stand together at the end.
    print(report.markdown(group, cells, verdicts, about, options, with_goals=False), flush=True)
    return cells, verdicts


_isolated: bool | None = None


def isolate() -> bool:
    """Into a network of its own, once: what needs the network (cargo) was built before."""
    global _isolated
    if _isolated is None:
        _isolated = machine.own_network()
    return _isolated


def main() -> int:
    asked = arguments()
    machine.raise_descriptor_limit()
    build.find_go()
    if asked.readme is not None:
        try:
            readme.put_into(asked.readme, asked.out)
        except (OSError, ValueError) as error:
            print(error, file=sys.stderr)
            return 2
        return 0
    if asked.gate or asked.gate_write:
        return gate.run(asked.gate_write, asked.group, say)
    known = group_names(build.SCENARIOS)
    wanted = asked.group or sorted({*known, *PROMISED})
    unknown = [name for name in wanted if name not in known and name not in PROMISED]
    if unknown:
        print(f"no group {', '.join(unknown)}; there are {', '.join(known)}", file=sys.stderr)
        return 2
    absent = [name for name in wanted if name not in known]
    try:
        chosen = [load_group(build.SCENARIOS / f"{name}.toml") for name in wanted if name in known]
    except ScenarioError as error:
        print(error, file=sys.stderr)
        return 2
    if asked.list:
        for group in chosen:
            print(f"{group.name} ({group.kind}): {', '.join(scenario.name for scenario in group.scenarios)}")
        return 0
    options = Options(asked.quick, asked.placement, asked.scenario, asked.peer, say, asked.out, asked.flame)
    cells: list[Cell] = []
    verdicts: list[goals.Verdict] = []
    for group in sorted(chosen, key=lambda group: group.kind not in ("micro", "ablation")):
        more_cells, more_verdicts = run_group(group, options, asked.out)
        cells += more_cells
        verdicts += more_verdicts
    return finish(asked, cells, verdicts, absent)


def finish(
    asked: argparse.Namespace, cells: list[Cell], verdicts: list[goals.Verdict], absent: list[str]
) -> int:
    for verdict in verdicts:
        print(verdict.line())
    print(goals.count_line(verdicts))
    missing = sorted({f"{cell.peer} in {cell.scenario}" for cell in cells if cell.status == MISSING})
    missing += [f"group {name} (no bench/scenarios/{name}.toml)" for name in absent]
    failed = sorted({f"{cell.peer} in {cell.scenario}" for cell in cells if cell.status == FAILED})
    if _noisy:
        print(f"NOT TO BE QUOTED, other programs used the machine meanwhile: {', '.join(_noisy)}")
    if missing:
        print(f"MISSING (`make peers` installs what can be): {', '.join(missing)}")
    if failed:
        print(f"FAILED: {', '.join(failed)}")
    if failed or (asked.goals and not goals.all_floors_met(verdicts)):
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
