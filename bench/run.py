#!/usr/bin/env python3
"""Measures what this project claims, and compares it with other servers and libraries (contenders).

    python3 bench/run.py                         every group
    python3 bench/run.py --group r-http --quick  one group, short samples
    python3 bench/run.py --gate                  the regression gate of the micro groups (--gate-write stores it)

Exit status: 0 on success, also if a contender is MISSING in the tables (`make contenders` installs them); 1 if a cell
FAILED, a goal's floor was missed or not measured (with --goals), or the gate differs; 2 for wrong arguments, and for
results that cannot be used for the README; 3 if a program for the gate is missing.
"""

import argparse
import os
import sys
import time
from pathlib import Path

from runner import build, contenders, gate, groups, machine, readme
from runner.figures import FAILED, MISSING, all_floors_met, count_line
from runner.measure import sampling
from runner.report import Report
from runner.scenarios import Group, load_groups


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--group", action="append", default=[], help="a group to run (may be repeated); default: all")
    parser.add_argument("--scenario", action="append", default=[], help="only this scenario (may be repeated)")
    parser.add_argument("--contender", "--peer", action="append", default=[], help="only this contender (may be repeated)")
    parser.add_argument("--before", type=Path, help="a library with an earlier build, which is measured as rookery/before")
    parser.add_argument("--quick", action="store_true", help="short samples and the quick scenarios only")
    parser.add_argument("--goals", action="store_true", help="exit 1 unless every floor is met")
    parser.add_argument("--placement", choices=("pinned", "free"), default=machine.default_placement())
    parser.add_argument("--out", type=Path, default=build.OUT, help="the folder for .json, .md and .svg")
    parser.add_argument("--flame", action="store_true", help="draw a flame graph of each server in HTTP scenarios")
    parser.add_argument("--gate", action="store_true", help="compare with bench/gate.json (with --group: only those groups; r-process is R's process)")
    parser.add_argument("--gate-write", action="store_true", help="write bench/gate.json")
    parser.add_argument("--readme", type=Path, help="write the table of the last results into this file, and the plot")
    parser.add_argument("--list", action="store_true", help="list the groups and their scenarios")
    return parser.parse_args()


def measured(group: Group, asked: argparse.Namespace) -> Report:
    named = {contender for scenario in group.scenarios for contender in scenario.contenders}
    about = machine.describe() | build.identity(contenders.ROOKERY_LIB) | contenders.versions(named)
    sampling.other_programs.share()
    began = time.monotonic()
    cells = groups.run(group, asked)
    others = sampling.other_programs.share()
    about["network"] = "a namespace of its own" if machine.own_network() else "the machine's loopback"
    about["took"] = f"{time.monotonic() - began:.0f} s"
    about["other programs during the samples"] = f"{others:.0%} of the cores' time"
    found = Report(group, asked, cells, about, others)
    found.write()
    # The terminal shows the goals of all groups together at the end.
    print(found.markdown(with_goals=False), flush=True)
    return found


def main() -> int:
    asked = arguments()
    if asked.before:
        os.environ["ROOKERY_BEFORE"] = str(asked.before.resolve())
    machine.raise_descriptor_limit()
    build.find_go()
    try:
        if asked.readme is not None:
            readme.put_into(asked.readme, asked.out)
            return 0
        known = load_groups(build.SCENARIOS)
    except (OSError, ValueError) as error:
        print(error, file=sys.stderr)
        return 2
    is_gate = asked.gate or asked.gate_write
    # The instructions of R's process are counted only by the gate.
    has_r = is_gate and (not asked.group or gate.R_GROUP in asked.group)
    names = [name for name in asked.group or known if not (has_r and name == gate.R_GROUP)]
    if unknown := [name for name in names if name not in known]:
        there_are = [*known, gate.R_GROUP] if is_gate else known
        print(f"no group {', '.join(unknown)}; there are {', '.join(there_are)}", file=sys.stderr)
        return 2
    chosen = [known[name] for name in names]
    if is_gate:
        return gate.run(chosen, asked.gate_write, has_r)
    if asked.list:
        for group in chosen:
            print(f"{group.name} ({group.kind}): {', '.join(scenario.name for scenario in group.scenarios)}")
        return 0
    chosen.sort(key=lambda group: group.kind not in ("micro", "ablation"))
    asked.out.mkdir(parents=True, exist_ok=True)
    return finish([measured(group, asked) for group in chosen], asked.goals)


def finish(reports: list[Report], is_judged: bool) -> int:
    verdicts = [verdict for report in reports for verdict in report.verdicts]
    cells = [cell for report in reports for cell in report.cells]
    for verdict in verdicts:
        print(verdict.line())
    print(count_line(verdicts))

    def named(status: str) -> str:
        return ", ".join(sorted({f"{cell.contender} in {cell.scenario}" for cell in cells if cell.status == status}))

    noisy = ", ".join(f"{one.group.name} ({one.others:.0%})" for one in reports if one.others > machine.QUIET)
    lines = {
        "NOT TO BE QUOTED, because other programs used the machine": noisy,
        "MISSING (`make contenders` installs them)": named(MISSING),
        "FAILED": named(FAILED),
    }
    for what, which in lines.items():
        if which:
            print(f"{what}: {which}")
    return 1 if named(FAILED) or (is_judged and not all_floors_met(verdicts)) else 0


if __name__ == "__main__":
    sys.exit(main())
