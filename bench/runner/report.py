"""The results of a run as JSON and as Markdown tables. Tables are printed, never typed."""

import json
import time
from dataclasses import asdict
from pathlib import Path
from statistics import median

from . import build, machine, peers
from .goals import Verdict, count_line, number
from .plan import Options
from .sampling import OK, SAMPLES, Cell, pairwise, ratio
from .scenarios import Group

# What each metric is called at the head of a column, in the order of the columns.
COLUMNS = {
    "requests_per_second": "requests/s",
    "messages_per_second": "messages/s",
    "ns_per_op": "ns/op",
    "instructions": "instructions/op",
    "allocs_per_op": "allocs/op",
    "bytes_per_op": "bytes/op",
    "p50_us": "p50 us",
    "p99_us": "p99 us",
    "p999_us": "p99.9 us",
    "cpu_us_per_request": "CPU us/request",
    "cpu_us_per_message": "CPU us/message",
    "seconds": "seconds",
    "microseconds_per_call": "us/call",
    "microseconds_added": "us over a bare Rf_eval",
    "frames": "R frames",
    "allocs_per_request": "allocs/request, I/O thread",
    "first_answer_ms": "first answer ms",
    "load_ms": "load ms",
    "installed_bytes": "installed",
    "bytes_per_connection": "bytes/connection",
    "delay_p50_ms": "late ms, p50",
    "delay_p90_ms": "p90",
    "delay_p99_ms": "p99",
    "idle_cpu_ms_per_second": "idle CPU ms/s",
    "resident_bytes": "resident",
    "growth_bytes": "growth",
    "peak_bytes": "peak memory",
}
HIDDEN = ("failed",)
# Where more is better; everywhere else less is.
MORE_IS_BETTER = ("requests_per_second", "messages_per_second")
SIZES = ("resident_bytes", "peak_bytes", "growth_bytes", "installed_bytes")


def as_json(group: Group, cells: list[Cell], verdicts: list[Verdict], about: dict, options: Options) -> dict:
    names = {scenario.name: scenario for scenario in group.scenarios}
    measured = list(dict.fromkeys(cell.scenario for cell in cells))
    return {
        "group": group.name,
        "what": group.what,
        "when": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "quick": options.quick,
        "placement": options.placement,
        "others": options.others,
        "machine": about,
        "scenarios": [
            {
                "name": name,
                "what": names[name].what,
                "cells": [_cell_json(cell, cells, group) for cell in cells if cell.scenario == name],
            }
            for name in measured
        ],
        "goals": [
            dict(asdict(verdict.goal), status=verdict.status, figure=_finite(verdict.figure), reason=verdict.reason)
            for verdict in verdicts
        ],
    }


def _finite(value: float | None) -> float | str | None:
    return value if value is None or abs(value) != float("inf") else str(value)


def _cell_json(cell: Cell, cells: list[Cell], group: Group) -> dict:
    entry: dict = {"peer": cell.peer, "status": cell.status}
    if cell.reason:
        entry["reason"] = cell.reason
    if cell.status == OK:
        entry["median"] = {name: cell.middle(name) for name in cell.metrics()}
        entry["spread"] = {name: cell.spread(name) for name in cell.metrics() if name not in cell.single}
        entry["samples"] = cell.samples
        turns = _turns(cell, cells, group)
        if turns:
            entry["ratio_of_ours"] = {"metric": group.metric, "turns": [_finite(turn) for turn in turns]}
    return entry


def _turns(cell: Cell, cells: list[Cell], group: Group) -> list[float]:
    ours = [other for other in cells if other.scenario == cell.scenario and other.peer == group.ours]
    if not ours or ours[0] is cell:
        return []
    metric = ratio_metric(group, ours[0])
    return pairwise(ours[0], cell, metric, ratio) if metric else []


def ratio_metric(group: Group, cell: Cell) -> str | None:
    """The group's own metric, or the first column of the scenario where it does not have that one."""
    names = cell.metrics()
    if group.metric in names and group.kind != "ablation":
        return group.metric
    return next((name for name in COLUMNS if name in names), None)


def markdown(
    group: Group, cells: list[Cell], verdicts: list[Verdict], about: dict, options: Options, with_goals: bool = True
) -> str:
    lines = [f"## {group.name}", ""]
    if group.what:
        lines += [group.what, ""]
    lines += [conditions(group, options), ""]
    for scenario in group.scenarios:
        row = [cell for cell in cells if cell.scenario == scenario.name]
        if row:
            lines += [f"### {scenario.name}", ""]
            lines += [scenario.what, ""] if scenario.what else []
            lines += table(group, row)
            lines += [f"- {cell.peer}: {cell.status}: {_one_line(cell.reason)}" for cell in row if cell.reason]
            if group.kind == "ablation":
                lines += _without_difference(row)
            lines.append("")
    lines += _beside_base(group, cells)
    lines += ["### Machine and versions", ""]
    lines += [f"- {name}: {value}" for name, value in about.items()]
    if verdicts and with_goals:
        lines += ["", "### Goals", "", "```", *[verdict.line() for verdict in verdicts], count_line(verdicts), "```"]
    return "\n".join(lines) + "\n"


def conditions(group: Group, options: Options) -> str:
    turns = f"{SAMPLES} interleaved samples (A B C A B C); median (lowest..highest); the ratio is taken turn by turn."
    if group.kind in ("micro", "ablation"):
        where = "Each run is pinned to core 0." if options.placement == "pinned" else "Runs are not pinned to a core."
        if group.kind == "ablation" and options.placement == "pinned":
            where = "Each run and each server is pinned to core 0, the load generators to core 1."
    elif group.kind in ("http", "websocket", "memory", "call"):
        where = "The server, with all its threads, is pinned to core 0 and the load generator to core 1."
        if any("placement" in scenario.extra for scenario in group.scenarios):
            where += " Scenarios that say otherwise are not pinned."
        if options.placement != "pinned":
            where = "Server and load generator share the cores as the kernel places them."
    else:
        where = ""
    short = "Quick run: short samples, for a look and not for a claim." if options.quick else ""
    noisy = (
        f"NOT TO BE QUOTED: other programs used {options.others:.0%} of the machine during the samples."
        if options.others > machine.QUIET
        else ""
    )
    return " ".join(part for part in (turns, where, short, noisy) if part)


def _one_line(text: str) -> str:
    return " ".join(text.split())[:300]


def table(group: Group, row: list[Cell]) -> list[str]:
    shown = [name for name in COLUMNS if any(name in cell.metrics() for cell in row)]
    shown += sorted({name for cell in row for name in cell.metrics()} - set(shown) - set(HIDDEN))
    base = group.ours if any(cell.peer == group.ours for cell in row) else row[0].peer
    ours = next((cell for cell in row if cell.peer == base and cell.status == OK), None)
    metric = ratio_metric(group, ours) if ours is not None else None
    head = ["peer", *[COLUMNS.get(name, name.replace("_", " ")) for name in shown]]
    if metric is not None and len(row) > 1:
        head.insert(2, f"{base} / it")
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for cell in row:
        fields = [cell.peer]
        for position, name in enumerate(shown):
            fields.append(_field(cell, name))
            if position == 0 and metric is not None and len(row) > 1:
                fields.append(_ratio_field(ours, cell, metric))
        lines.append("| " + " | ".join(fields) + " |")
    return lines


def _beside_base(group: Group, cells: list[Cell]) -> list[str]:
    """All scenarios of a group with a `base` in one table: what a row costs beside the base, and beside the other peer.

    CPU time as well as the rate: it also tells where the generator, or a peer that waits, sets the rate.
    """
    by_key = {(cell.scenario, cell.peer): cell for cell in cells}
    base = by_key.get((group.base, group.ours))
    if base is None or base.status != OK:
        return []
    cost = "cpu_us_per_request"
    others = list(dict.fromkeys(cell.peer for cell in cells if cell.peer != group.ours))
    head = [f"{group.ours}: {COLUMNS[group.metric]}", f"of {group.base}", COLUMNS[cost], f"of {group.base}"]
    for other in others:
        head += [f"{group.ours} / {other}", f"{other}: {COLUMNS[cost]}", f"{group.ours} / {other}"]
    lines = [f"### Beside {group.base}", "", "| | " + " | ".join(head) + " |", "|---" * (len(head) + 1) + "|"]
    for scenario in dict.fromkeys(cell.scenario for cell in cells):
        ours = by_key.get((scenario, group.ours))
        if ours is None or ours.status != OK:
            continue
        fields = []
        for metric in (group.metric, cost):
            fields += [number(ours.middle(metric)), number(ratio(ours.middle(metric), base.middle(metric)))]
        for other in (by_key.get((scenario, peer)) for peer in others):
            is_ok = other is not None and other.status == OK
            times = [number(median(pairwise(ours, other, metric, ratio))) if is_ok else "-" for metric in (group.metric, cost)]
            fields += [times[0], number(other.middle(cost)) if is_ok else "-", times[1]]
        lines.append(f"| {scenario} | " + " | ".join(fields) + " |")
    return [*lines, ""]


def _without_difference(row: list[Cell]) -> list[str]:
    """A cost that does not show in its row is named: the ratio's turns lie on both sides of one."""
    metric = next((name for name in COLUMNS if name in row[0].metrics()), None)
    lines = []
    for cell in row[1:]:
        turns = pairwise(row[0], cell, metric, ratio) if metric else []
        if turns and min(turns) <= 1 <= max(turns):
            lines.append(f"- {cell.peer}: no difference in {COLUMNS[metric]} beyond the spread of the samples")
    return lines


def _field(cell: Cell, name: str) -> str:
    if cell.status != OK:
        return cell.status
    middle, spread = cell.middle(name), cell.spread(name)
    if middle is None or spread is None:
        return "-"
    text = size(middle) if name in SIZES else number(middle)
    if name in cell.single or len(cell.values(name)) == 1:
        return text
    if name in ("p50_us", "p99_us", "p999_us", "cpu_us_per_request", "cpu_us_per_message"):
        return text
    low, high = (size(end) if name in SIZES else number(end) for end in spread)
    return f"{text} ({low}..{high})"


def _ratio_field(ours: Cell | None, cell: Cell, metric: str) -> str:
    if ours is None or cell is ours:
        return "1" if cell is ours else "-"
    turns = pairwise(ours, cell, metric, ratio)
    if not turns:
        return "-"
    middle = number(median(turns))
    return middle if len(set(turns)) == 1 else f"{middle} ({number(min(turns))}..{number(max(turns))})"


def size(value: float) -> str:
    for unit, factor in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if abs(value) >= factor:
            return f"{value / factor:.1f} {unit}"
    return f"{value:.0f} B"


def peer_versions(group: Group) -> dict[str, str]:
    if group.kind in ("micro", "call", "ablation"):
        return {}
    names = sorted({peer for scenario in group.scenarios for peer in scenario.peers})
    return {peer: text for peer in names if (text := peers.version(peer))}


def write(folder: Path, name: str, results: dict, text: str, picture: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.json").write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    (folder / f"{name}.md").write_text(text, encoding="utf-8")
    (folder / f"{name}.svg").write_text(picture, encoding="utf-8")


DEFAULT_FOLDER = build.OUT
