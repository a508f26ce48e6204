"""Groups, scenarios and goals, read from the two tables of text in each file of bench/scenarios and its
folder micro.

An unknown name in a file is an error. A misspelt goal that is silently not checked would be worse
than no goal.
"""

import fnmatch
import json
import tomllib
from argparse import Namespace
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path

# The kinds of groups, and the default way of measuring their scenarios (see groups.WAYS).
KINDS = {
    "micro": "micro", "ablation": "micro", "http": "http", "websocket": "echo", "memory": "transfer",
    "startup": "startup", "call": "call",
}  # fmt: skip
# The length of a sample of a server in a quick run, in seconds.
QUICK_S = 0.6
# The prefix of the shapes of a contender whose earlier build (--before) is measured.
EARLIER = "before-"
GOAL_KINDS = ("ratio_max", "ratio_min", "difference_max", "max", "min")


@dataclass
class Scenario:
    name: str
    what: str
    contenders: list[str]
    # The way of measuring.
    measure: str
    # The amount: iterations of a program, or seconds of a sample of a server; and whether a quick
    # run includes the scenario.
    iterations: int = 0
    quick_iterations: int = 0
    seconds: float = 2.0
    quick: bool = True
    # `free`: the kernel places the server and the load generator, whatever the option of the run.
    placement: str = ""
    # The scenario with which this one is interleaved, because a goal compares the two.
    in_turns_with: str = ""
    # The workload of the server (a name in bench/contenders/handlers.R), and the requests to it.
    workload: str = ""
    path: str = "/"
    connections: int = 1
    # Concurrent streams on each HTTP/2 connection. A contender with HTTP/1.1 gets as many more
    # connections.
    streams: int = 1
    headers: int = 0
    body_bytes: int = 0
    # Further headers, the method if it is neither GET nor the POST of a body, and whether the body
    # is sent chunked.
    send: dict[str, str] = field(default_factory=dict)
    method: str = ""
    chunked: bool = False
    # The status of the response, and the number of bytes of its body.
    status: int = 200
    answer_bytes: int | None = None
    # The size of a WebSocket message, and the number of messages per second for each connection.
    payload_bytes: int = 0
    rate: int = 0
    # The rate as a fraction of the server's measured maximum; used instead of `rate`.
    load: float = 0.0
    # The operations under callgrind, if the automatic choice does not fit; and whether the gate
    # compares their count.
    callgrind_iterations: int = 0
    gate_instructions: bool = True
    # The label in the README's table, and the unit of its figures.
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
    # Instead of another contender: the same contender in another scenario.
    beside: str | None = None


@dataclass
class Group:
    name: str
    kind: str
    what: str
    # The contender to which the ratios refer, and the metric whose ratio the tables show.
    ours: str
    metric: str
    scenarios: list[Scenario]
    goals: list[Goal]
    # The scenario with which a last table compares the others; most groups have none.
    base: str = ""

    def chosen(self, asked: Namespace) -> list[Scenario]:
        """Returns the scenarios of a run, with its contenders, its placement and its length of
        samples.
        """
        found = []
        for one in self.scenarios:
            is_wanted = one.name in asked.scenario if asked.scenario else one.quick or not asked.quick
            contenders = [contender for contender in one.contenders if not asked.contender or contender in asked.contender]
            if asked.before:
                contenders = [build for contender in contenders for build in (contender, *_earlier(contender))]
            short = {"seconds": QUICK_S, "iterations": one.quick_iterations} if asked.quick else {}
            if is_wanted and contenders:
                found.append(replace(one, contenders=contenders, placement=one.placement or asked.placement, **short))
        return found


def _earlier(contender: str) -> list[str]:
    """Returns the names of the earlier builds that are measured with a contender: one or none."""
    name, _, shape = contender.partition("/")
    if name != "rookery" or (shape and not shape.startswith("worker")):
        return []
    return [f"rookery/{EARLIER}{shape}".removesuffix("-")]


def load_groups(folder: Path) -> dict[str, Group]:
    return {path.stem: load_group(path) for path in sorted(folder.rglob("*.toml"), key=lambda path: path.stem)}


def load_group(path: Path) -> Group:
    """Reads a group. Raises ValueError for a file that cannot be run as it is."""
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
    """Returns the rows of a table. The first line names the columns, `|` separates cells, and `#`
    begins a comment.
    """
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    head, *rows = [[cell.strip() for cell in line.split("|")] for line in lines] or [[]]
    for row in rows:
        if len(row) > len(head):
            raise ValueError(f"more cells than columns: {row}")
    return [{name: cell for name, cell in zip(head, row) if cell} for row in rows]


def _scenario(entry: dict, sets: dict[str, list[str]]) -> Scenario:
    """Makes a scenario of a row. Each column is a field: a number, true or false, or a string; `with`
    has the rare ones.
    """
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
    """Returns a goal for each scenario that the row names (or that fits a pattern), each metric and
    each other contender.
    """
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
