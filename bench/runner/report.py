"""The results of a group as JSON, Markdown tables and a plot. Tables are printed and never written by
hand.
"""

import json
import textwrap
import time
from argparse import Namespace
from collections.abc import Iterable
from html import escape
from statistics import median

from . import machine
from .figures import OK, SAMPLES, Cell, count_line, judge, number, pairwise, ratio
from .scenarios import Group

# The order of the columns. Other columns follow them.
COLUMNS = (
    "requests_per_second", "messages_per_second", "handshakes_per_cpu_second", "handshakes_per_second", "ns_per_op", "instructions", "allocs_per_op", "bytes_per_op", "p50_us",
    "p99_us", "p999_us", "cpu_us_per_request", "cpu_us_per_message", "seconds", "microseconds_per_call",
    "microseconds_added", "frames", "allocs_per_request", "first_response_ms", "load_ms", "installed_bytes",
    "bytes_per_connection", "delay_p50_ms", "delay_p90_ms", "delay_p99_ms", "idle_cpu_ms_per_second", "resident_bytes",
    "front_bytes", "routes_bytes", "kept_bytes", "next_response_ms", "slow_p50_ms",
    "growth_bytes", "peak_bytes",
)  # fmt: skip
WITHOUT_SPREAD = ("p50_us", "p99_us", "p999_us", "cpu_us_per_request", "cpu_us_per_message")
SIZES = ("routes_bytes", "kept_bytes", "resident_bytes", "front_bytes", "peak_bytes", "growth_bytes", "installed_bytes")

WIDTH, LEFT, RIGHT, TOP, LINE, BAR, GAP = 760, 330, 90, 37, 15, 10, 10
# Colours that can be distinguished in print and by colour-blind people (Okabe and Ito); the first
# is ours.
COLOURS = ("#d55e00", "#0072b2", "#009e73", "#e69f00", "#56b4e9", "#cc79a7", "#999999", "#000000")
# The text of a bar, its length, and the range of its samples.
Bar = tuple[str, float, tuple[float, float] | None]


class Report:
    """The results of a group. `others` is the share of the machine that other programs used."""

    def __init__(self, group: Group, asked: Namespace, cells: list[Cell], about: dict[str, str], others: float) -> None:
        self.group, self.asked, self.cells, self.about, self.others = group, asked, cells, about, others
        self.verdicts = judge(group, cells)
        found = {one.name: [cell for cell in cells if cell.scenario == one.name] for one in group.scenarios}
        self.rows = {name: row for name, row in found.items() if row}

    def write(self) -> None:
        for suffix, text in {"json": self.as_json(), "md": self.markdown(), "svg": self.picture()}.items():
            (self.asked.out / f"{self.group.name}.{suffix}").write_text(text, encoding="utf-8")

    def as_json(self) -> str:
        found = {
            "group": self.group.name,
            "what": self.group.what,
            "when": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "quick": self.asked.quick,
            "placement": self.asked.placement,
            "others": self.others,
            "machine": self.about,
            "scenarios": [{"name": name, "cells": [self._cell(cell) for cell in row]} for name, row in self.rows.items()],
            "goals": [
                vars(verdict.goal) | {"status": verdict.status, "figure": verdict.figure, "turns": verdict.turns, "reason": verdict.reason}
                for verdict in self.verdicts
            ],
        }
        return json.dumps(found, indent=1) + "\n"

    def _cell(self, cell: Cell) -> dict:
        entry: dict = {"contender": cell.contender, "status": cell.status, "reason": cell.reason, "samples": cell.figures}
        entry["median"] = {name: cell.middle(name) for name in cell.figures}
        ours = self._ours(self.rows[cell.scenario])
        if ours is not cell:
            entry["ratio_of_ours"] = {"turns": pairwise(ours, cell, self.metric(ours))}
        return entry

    def _ours(self, row: list[Cell]) -> Cell:
        """Returns the cell to which the ratios of a row refer."""
        return next((cell for cell in row if cell.contender == self.group.ours), row[0])

    def metric(self, cell: Cell) -> str:
        """Returns the metric of the group, or the first column of a scenario that does not have it."""
        if self.group.metric in cell.figures and self.group.kind != "ablation":
            return self.group.metric
        return next((name for name in COLUMNS if name in cell.figures), "")

    def markdown(self, with_goals: bool = True) -> str:
        lines = [f"## {self.group.name}", "", self.group.what, "", self.conditions(), ""]
        for scenario in self.group.scenarios:
            if row := self.rows.get(scenario.name):
                lines += [f"### {scenario.name}", "", scenario.what, "", *self._table(row)]
                reasons = {cell.contender: " ".join(cell.reason.split())[:300] for cell in row}
                lines += [f"- {cell.contender}: {cell.status}: {reasons[cell.contender]}" for cell in row if cell.reason]
                lines += [*self._without_difference(row), ""]
        lines += self._beside_base()
        lines += ["### Machine and versions", "", *(f"- {name}: {value}" for name, value in self.about.items())]
        if self.verdicts and with_goals:
            judged = [*(verdict.line() for verdict in self.verdicts), count_line(self.verdicts)]
            lines += ["", "### Goals", "", "```", *judged, "```"]
        return "\n".join(lines) + "\n"

    def conditions(self) -> str:
        said = [f"{SAMPLES} interleaved samples (A B C A B C); median (lowest..highest); the ratio is taken turn by turn."]
        if self.asked.placement == "pinned":
            said.append("Servers and programs are pinned to core 0 with all their threads, and load generators to core 1.")
            if any(scenario.placement for scenario in self.group.scenarios):
                said.append("Scenarios with another placement are not pinned.")
        else:
            said.append("The kernel places servers, programs and load generators on the cores.")
        if self.asked.quick:
            said.append("Quick run: the samples are short and not precise enough to quote.")
        if self.others > machine.QUIET:
            said.append(f"NOT TO BE QUOTED: other programs used {self.others:.0%} of the machine during the samples.")
        return " ".join(said)

    def _table(self, row: list[Cell]) -> list[str]:
        measured = {name for cell in row for name in cell.figures}
        shown = [*(name for name in COLUMNS if name in measured), *sorted(measured - set(COLUMNS))]
        ours = self._ours(row)
        lines = [[cell.contender, *(_field(cell, name) for name in shown)] for cell in row]
        head = ["contender", *map(title, shown)]
        if ours.status == OK and len(row) > 1:
            head.insert(2, f"{ours.contender} / it")
            for line, cell in zip(lines, row):
                line.insert(2, _ratio_field(ours, cell, self.metric(ours)))
        return table(head, lines)

    def _beside_base(self) -> list[str]:
        """Returns one table of all scenarios of a group with a `base`: the cost of each row compared
        with the base and with other contenders.

        The table has CPU time besides the rate, because CPU time also shows where the load
        generator, or a contender that waits, limits the rate.
        """
        ours = self.group.ours
        by_key = {(cell.scenario, cell.contender): cell for cell in self.cells if cell.status == OK}
        base = by_key.get((self.group.base, ours))
        if base is None:
            return []
        others = list(dict.fromkeys(cell.contender for cell in self.cells if cell.contender != ours))
        head, lines = [""], {name: [name] for name in self.rows if (name, ours) in by_key}
        for metric in (self.group.metric, "cpu_us_per_request"):
            head += [f"{ours}: {title(metric)}", f"of {base.scenario}"]
            head += [text for other in others for text in (f"{other}: {title(metric)}", f"{ours} / {other}")]
            for name, line in lines.items():
                cell = by_key[name, ours]
                middle = cell.middle(metric)
                line += [number(middle), number(ratio(middle, base.middle(metric)))]
                for other in (by_key.get((name, contender)) for contender in others):
                    turns = pairwise(cell, other, metric) if other else []
                    line += [number(other.middle(metric)), number(median(turns))] if turns else ["-", "-"]
        return [f"### Beside {base.scenario}", "", *table(head, lines.values()), ""]

    def _without_difference(self, row: list[Cell]) -> list[str]:
        """Names the costs that do not show in their row of the ablation, because the ratios of the
        turns are on both sides of one.
        """
        metric = self.metric(row[0])
        turns = {cell.contender: pairwise(row[0], cell, metric) for cell in row[1:]} if self.group.kind == "ablation" else {}
        hidden = [contender for contender, each in turns.items() if each and min(each) <= 1 <= max(each)]
        return [f"- {contender}: no difference in {title(metric)} beyond the spread of the samples" for contender in hidden]

    def picture(self) -> str:
        """Draws a bar for each contender and scenario, of the metric of its ratio."""
        rows = []
        for name, row in self.rows.items():
            metric = self.metric(self._ours(row))
            bars = []
            for cell in row:
                middle, figures = cell.middle(metric), cell.figures.get(metric)
                text = f"{cell.contender} {cell.status if middle is None else number(middle)}"
                bars.append((text, middle or 0, (min(figures), max(figures)) if middle else None))
            rows.append((f"{name}: {title(metric)}", bars))
        return svg(self.group.name, [self.conditions()], (), rows)


def table(head: list[str], rows: Iterable[list[str]]) -> list[str]:
    lines = ["|" + "".join(f" {cell} |" if cell else " |" for cell in line) for line in (head, *rows)]
    return [lines[0], "|" + "---|" * len(head), *lines[1:]]


def title(metric: str) -> str:
    """Returns the heading of a metric's column."""
    text = metric.replace("_per_second", "/s").replace("_per_", "/").removesuffix("_bytes").replace("_", " ")
    return text.replace("cpu", "CPU").replace("p999", "p99.9")


def _field(cell: Cell, metric: str) -> str:
    middle = cell.middle(metric)
    if middle is None:
        return "-" if cell.status == OK else cell.status
    figures = cell.figures[metric]
    text, low, high = ((size if metric in SIZES else number)(value) for value in (middle, min(figures), max(figures)))
    return text if metric in WITHOUT_SPREAD or low == high else f"{text} ({low}..{high})"


def _ratio_field(ours: Cell, cell: Cell, metric: str) -> str:
    if cell is ours:
        return "1"
    turns = pairwise(ours, cell, metric)
    if not turns:
        return "-"
    middle, low, high = (number(value) for value in (median(turns), min(turns), max(turns)))
    return middle if low == high else f"{middle} ({low}..{high})"


def size(value: float) -> str:
    for unit, factor in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if abs(value) >= factor:
            return f"{value / factor:.1f} {unit}"
    return f"{value:.0f} B"


def svg(title: str, subtitles: list[str], legend: tuple[str, ...], rows: list[tuple[str, list[Bar]]]) -> str:
    """Draws a line of bars for each row, each row in its own scale. The legend names the colours."""
    subtitles = [line for text in subtitles for line in textwrap.wrap(text, 115)]
    body = [f'<text x="10" y="20" font-size="15" font-weight="bold">{escape(title)}</text>']
    for line, text in enumerate(subtitles):
        body.append(f'<text x="10" y="{TOP + LINE * line}" fill="#555555">{escape(text)}</text>')
    y = TOP + LINE * len(subtitles)
    for position, name in enumerate(legend):
        x = 10 + 110 * position
        body.append(f'<rect x="{x}" y="{y - 4}" width="{BAR}" height="{BAR}" fill="{COLOURS[position]}"/>')
        body.append(f'<text x="{x + 15}" y="{y + 5}">{escape(name)}</text>')
    y += 22 if legend else 0
    room = max((10 + 5 * len(text) for _, bars in rows for text, *_ in bars), default=0)
    for label, bars in rows:
        middle = y + BAR * len(bars) / 2 + 4
        body.append(f'<text x="{LEFT - 8}" y="{middle:.0f}" text-anchor="end">{escape(label)}</text>')
        longest = max(max(length, *(spread or (0, 0))) for _, length, spread in bars) or 1
        for position, (text, length, spread) in enumerate(bars):
            ends = [end / longest * (WIDTH - LEFT - max(RIGHT, room)) for end in (length, *(spread or ()))]
            body.append(_bar(text, COLOURS[position % len(COLOURS)], *ends, y=y))
            y += BAR
        y += GAP
    frame = f'width="{WIDTH}" height="{y}"'
    head = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {frame} viewBox="0 0 {WIDTH} {y}" font-family="sans-serif" font-size="11">',
        f'<rect {frame} fill="#ffffff"/>',
    ]
    return "\n".join([*head, *body, "</svg>"]) + "\n"


def _bar(text: str, colour: str, length: float, low: float = 0, high: float = 0, *, y: int) -> str:
    drawn = ""
    if length:
        length = max(1.0, length)
        drawn += f'<rect x="{LEFT}" y="{y}" width="{length:.1f}" height="{BAR - 1}" fill="{colour}"/>'
    if high:
        line = f'x1="{LEFT + low:.1f}" y1="{y + 4.5}" x2="{LEFT + high:.1f}" y2="{y + 4.5}"'
        drawn += f'<line {line} stroke="#000000"/>'
    x = LEFT + max(length, high) + 5
    return f'{drawn}<text x="{x:.1f}" y="{y + BAR - 2}" font-size="9">{escape(text)}</text>'
