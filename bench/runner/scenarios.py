"""Groups, scenarios and goals as bench/scenarios/<group>.toml states them: two tables in text, a line each.

A file that says something this module does not know is an error: a misspelt goal that is silently not checked would be
worse than no goal.
"""

import fnmatch
import json
import tomllib
from argparse import Namespace
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path

# The kinds of groups, and how their scenarios are measured that do not say it: see groups.WAYS.
KINDS = {
    "micro": "micro", "ablation": "micro", "http": "http", "websocket": "echo", "memory": "transfer",
    "startup": "startup", "call": "call",
}  # fmt: skip
# How long a sample of a server is in a quick run.
QUICK_S = 0.6
GOAL_KINDS = ("ratio_max", "ratio_min", "difference_max", "max", "min")


@dataclass
class Scenario:
    name: str
    what: str
    contenders: list[str]
    # The way that it is measured in.
    measure: str
    # How much of it: iterations for programs, seconds a sample for servers; and whether a quick run includes it at all.
    iterations: int = 0
    quick_iterations: int = 0
    seconds: float = 2.0
    quick: bool = True
    # `free`: as the kernel places server and load generator, whatever the run does.
    placement: str = ""
    # The scenario that it takes turns with, because a goal compares the two.
    in_turns_with: str = ""
    # What the server answers (a name that bench/contenders/handlers.R knows) and how it is asked.
    workload: str = ""
    path: str = "/"
    connections: int = 1
    # At once on each connection of HTTP/2; who speaks HTTP/1.1 gets as many connections more.
    streams: int = 1
    headers: int = 0
    body_bytes: int = 0
    # Headers to send besides, the method where it is not GET or POST by the body, and whether the body is sent chunked.
    send: dict[str, str] = field(default_factory=dict)
    method: str = ""
    chunked: bool = False
    # What is answered, with this many bytes of body.
    status: int = 200
    answer_bytes: int | None = None
    # Of a WebSocket message; and how many messages a second each connection is to get.
    payload_bytes: int = 0
    rate: int = 0
    # Operations under callgrind, where the automatic choice does not fit; and whether the gate compares their count.
    callgrind_iterations: int = 0
    gate_instructions: bool = True
    # What the README's table calls it, and the unit of its figures, where it stands in that.
    readme: str = ""


@dataclass
class Goal:
    scenario: str
    metric: str
    kind: str
    floor: float
    ours: str
    source: str = ""
    aim: float | None = None
    against: str | None = None
    # In place of a rival: the same contender in another scenario.
    beside: str | None = None


@dataclass
class Group:
    name: str
    kind: str
    what: str
    # The contender that the ratios are for, and the metric whose ratio the tables show.
    ours: str
    metric: str
    scenarios: list[Scenario]
    goals: list[Goal]
    # The scenario that a last table compares the others with; most groups have none.
    base: str = ""

    def chosen(self, asked: Namespace) -> list[Scenario]:
        """The scenarios of a run, with its contenders, its placement and its length of samples."""
        found = []
        for one in self.scenarios:
            is_wanted = one.name in asked.scenario if asked.scenario else one.quick or not asked.quick
            contenders = [contender for contender in one.contenders if not asked.contender or contender in asked.contender]
            if asked.before and "rookery" in contenders:
                contenders.insert(contenders.index("rookery") + 1, "rookery/before")
            short = {"seconds": QUICK_S, "iterations": one.quick_iterations} if asked.quick else {}
            if is_wanted and contenders:
                found.append(replace(one, contenders=contenders, placement=one.placement or asked.placement, **short))
        return found


def load_groups(folder: Path) -> dict[str, Group]:
    return {path.stem: load_group(path) for path in sorted(folder.glob("*.toml"))}


def load_group(path: Path) -> Group:
    """Raises ValueError for a file that cannot be run as written."""
    try:
        return _group(path.stem, **tomllib.loads(path.read_text(encoding="utf-8")))
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{path}: {error}") from error


def _group(
    name: str, kind: str = "micro", what: str = "", ours: str = "", metric: str = "", base: str = "",
    contenders: dict | None = None, defaults: dict | None = None, scenarios: str = "", goals: str = "",
) -> Group:  # fmt: skip
    entries = [{"what": "", "measure": KINDS[kind], **(defaults or {}), **row} for row in _table(scenarios)]
    known = {entry["name"]: _scenario(entry, contenders or {}) for entry in entries}
    if len(known) < len(entries):
        raise ValueError("two scenarios of one name")
    if base and base not in known:
        raise ValueError(f"no scenario {base!r} to compare with")
    is_program = kind in ("micro", "ablation")
    ours = ours or ("ours" if is_program else "rookery")
    metric = metric or ("ns_per_op" if is_program else "requests_per_second")
    judged = [_goal({"ours": ours, **one}, known) for row in _table(goals) for one in _each(row, known)]
    return Group(name, kind, what, ours, metric, list(known.values()), judged, base)


def _table(text: str) -> list[dict[str, str]]:
    """The rows of a table: the first line names its columns, `|` stands between cells, `#` begins a line that is none."""
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    head, *rows = [[cell.strip() for cell in line.split("|")] for line in lines] or [[]]
    for row in rows:
        if len(row) > len(head):
            raise ValueError(f"more cells than columns: {row}")
    return [{name: cell for name, cell in zip(head, row) if cell} for row in rows]


def _scenario(entry: dict, sets: dict[str, list[str]]) -> Scenario:
    """Every column is a field: a number, true or false, or the word as it is; `with` has those that are rare."""
    entry |= tomllib.loads(f"with = {{ {entry.pop('with', '')} }}")["with"]
    if isinstance(entry["contenders"], str):
        entry["contenders"] = sets.get(entry["contenders"]) or entry["contenders"].split()
    for name, cell in entry.items():
        if isinstance(cell, str) and name not in ("name", "what", "readme"):
            with suppress(ValueError):
                entry[name] = json.loads(cell)
    scenario = Scenario(**entry)
    scenario.quick_iterations = scenario.quick_iterations or max(1, scenario.iterations // 10)
    return scenario


def _each(row: dict[str, str], names: dict[str, Scenario]) -> list[dict[str, str]]:
    """A goal for each scenario that the row names (or that fits a pattern), each metric and each rival."""
    chosen = []
    for pattern in row["scenario"].split():
        chosen += fnmatch.filter(names, pattern) or [pattern]
    several = {"scenario": chosen, **{name: row[name].split() for name in ("metric", "against") if name in row}}
    return [{**row, **dict(zip(several, one))} for one in product(*several.values())]


def _goal(entry: dict, scenarios: dict[str, Scenario]) -> Goal:
    goal = Goal(**entry | {name: float(entry[name]) for name in ("floor", "aim") if name in entry})
    if goal.kind not in GOAL_KINDS:
        raise ValueError(f"unknown kind of goal {goal.kind!r}")
    if bool(goal.against) + bool(goal.beside) != (goal.kind not in ("max", "min")):
        raise ValueError(f"goal {goal.scenario}/{goal.metric}: {goal.kind} and `against` or `beside` do not fit")
    for name in (goal.scenario, goal.beside or goal.scenario):
        if name not in scenarios:
            raise ValueError(f"a goal for the unknown scenario {name!r}")
    for contender in (goal.ours, goal.against or goal.ours):
        if contender not in scenarios[goal.scenario].contenders:
            raise ValueError(f"scenario {goal.scenario} has no contender {contender!r}, but a goal names it")
    return goal
