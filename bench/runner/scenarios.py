"""Groups, scenarios and goals as bench/scenarios/<group>.toml states them: two tables in text, a line each.

A file that says something this module does not know is an error: a misspelt goal that is silently not checked would be
worse than no goal.
"""

import fnmatch
import tomllib
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path

KINDS = ("micro", "http", "websocket", "memory", "startup", "call", "ablation")
GOAL_KINDS = ("ratio_max", "ratio_min", "difference_max", "max", "min")


class ScenarioError(Exception):
    """A scenario file that cannot be run as written."""


@dataclass
class Scenario:
    name: str
    what: str
    peers: list[str]
    # How much of it: iterations for micro groups, seconds a sample for the others.
    iterations: int = 0
    quick_iterations: int = 0
    seconds: float = 2.0
    quick_seconds: float = 0.6
    # Whether a quick run includes it at all.
    quick: bool = True
    # What the server answers (a name that bench/peers/handlers.R knows) and how it is asked.
    workload: str = ""
    path: str = "/"
    connections: int = 1
    headers: int = 0
    body_bytes: int = 0
    # Headers to send besides, the method where it is not GET or POST by the body, and whether the body is sent chunked.
    send: dict[str, str] = field(default_factory=dict)
    method: str = ""
    chunked: bool = False
    # What is answered.
    status: int = 200
    # This many bytes of body.
    answer_bytes: int | None = None
    payload_bytes: int = 0
    # Anything else the kind of group reads itself.
    extra: dict = field(default_factory=dict)


@dataclass
class Goal:
    scenario: str
    metric: str
    kind: str
    floor: float
    source: str
    ours: str
    aim: float | None = None
    against: str | None = None
    # In place of a rival: the same peer in another scenario.
    beside: str | None = None


@dataclass
class Group:
    name: str
    kind: str
    what: str
    # The peer that the ratios are for, and the metric whose ratio the tables show.
    ours: str
    metric: str
    scenarios: list[Scenario]
    goals: list[Goal]
    # The scenario that a last table compares the others with; most groups have none.
    base: str = ""


def group_names(folder: Path) -> list[str]:
    return sorted(path.stem for path in folder.glob("*.toml"))


def load_group(path: Path) -> Group:
    data = tomllib.loads(path.read_text(encoding="utf-8"))
    unknown = set(data) - {"kind", "what", "ours", "metric", "base", "peers", "defaults", "scenarios", "goals"}
    if unknown:
        raise ScenarioError(f"{path}: unknown keys {sorted(unknown)}")
    kind = data.get("kind", "micro")
    if kind not in KINDS:
        raise ScenarioError(f"{path}: unknown kind {kind!r}")
    ours = data.get("ours", "ours" if kind in ("micro", "ablation") else "rookery")
    sets, defaults = data.get("peers", {}), data.get("defaults", {})
    scenarios = [_scenario(path, row, sets, defaults) for row in _table(path, data.get("scenarios", ""))]
    names = [scenario.name for scenario in scenarios]
    if len(set(names)) != len(names):
        raise ScenarioError(f"{path}: two scenarios of one name")
    rows = [one for row in _table(path, data.get("goals", "")) for one in _each(path, row, names)]
    goals = [_goal(path, row, ours, scenarios) for row in rows]
    base = data.get("base", "")
    if base and base not in names:
        raise ScenarioError(f"{path}: no scenario {base!r} to compare with")
    return Group(
        name=path.stem,
        kind=kind,
        what=data.get("what", ""),
        ours=ours,
        metric=data.get("metric", "ns_per_op" if kind in ("micro", "ablation") else "requests_per_second"),
        scenarios=scenarios,
        goals=goals,
        base=base,
    )


def _table(path: Path, text: str) -> list[dict[str, str]]:
    """The rows of a table: the first line names its columns, `|` stands between cells, `#` begins a line that is none."""
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    head, *rows = [[cell.strip() for cell in line.split("|")] for line in lines] or [[]]
    for row in rows:
        if len(row) > len(head):
            raise ScenarioError(f"{path}: more cells than columns: {row}")
    return [{name: cell for name, cell in zip(head, row) if cell} for row in rows]


def _scenario(path: Path, row: dict[str, str], sets: dict[str, list[str]], defaults: dict) -> Scenario:
    """A column is a field of the scenario, or of what its kind of group reads itself; `with` has those that are rare."""
    if "name" not in row:
        raise ScenarioError(f"{path}: a scenario without name")
    entry = dict(defaults)
    for name, cell in row.items():
        if name in ("name", "what"):
            entry[name] = cell
        elif name == "peers":
            entry[name] = sets.get(cell) or cell.split()
        elif name == "with":
            entry.update(tomllib.loads(f"cell = {{ {cell} }}")["cell"])
        else:
            entry[name] = _value(cell)
    if "peers" not in entry:
        raise ScenarioError(f"{path}: a scenario without peers")
    known = {name: entry.pop(name) for name in Scenario.__dataclass_fields__ if name in entry}
    scenario = Scenario(**{"what": "", **known}, extra=entry)
    if scenario.quick_iterations == 0:
        scenario.quick_iterations = max(1, scenario.iterations // 10)
    return scenario


def _value(cell: str) -> object:
    """A number, true or false, or the word as it is."""
    if cell in ("true", "false"):
        return cell == "true"
    try:
        return float(cell) if "." in cell else int(cell)
    except ValueError:
        return cell


def _each(path: Path, row: dict[str, str], names: list[str]) -> list[dict[str, str]]:
    """A goal for each scenario that the row names (or that fits a pattern), each metric and each rival."""
    chosen = []
    for pattern in row.get("scenario", "").split():
        chosen += [name for name in names if fnmatch.fnmatchcase(name, pattern)] or [pattern]
    several = [chosen, *(row.get(column, "").split() or [""] for column in ("metric", "against"))]
    found = [dict(row, scenario=scenario, metric=metric, against=rival) for scenario, metric, rival in product(*several)]
    if not found:
        raise ScenarioError(f"{path}: a goal without scenario")
    return [{column: cell for column, cell in one.items() if cell} for one in found]


def _goal(path: Path, entry: dict[str, str], ours: str, scenarios: list[Scenario]) -> Goal:
    unknown = set(entry) - set(Goal.__dataclass_fields__)
    if unknown:
        raise ScenarioError(f"{path}: a goal with unknown columns {sorted(unknown)}")
    for required in ("scenario", "metric", "kind", "floor"):
        if required not in entry:
            raise ScenarioError(f"{path}: a goal without {required}")
    bounds = {name: float(entry[name]) for name in ("floor", "aim") if name in entry}
    goal = Goal(**{"ours": ours, "source": "", **entry, **bounds})
    if goal.kind not in GOAL_KINDS:
        raise ScenarioError(f"{path}: unknown kind of goal {goal.kind!r}")
    rivals = [rival for rival in (goal.against, goal.beside) if rival is not None]
    if len(rivals) != (goal.kind not in ("max", "min")):
        raise ScenarioError(f"{path}: goal {goal.scenario}/{goal.metric}: {goal.kind} and `against` or `beside` do not fit")
    by_name = {scenario.name: scenario for scenario in scenarios}
    if goal.scenario not in by_name:
        raise ScenarioError(f"{path}: a goal for the unknown scenario {goal.scenario!r}")
    if goal.beside is not None and goal.beside not in by_name:
        raise ScenarioError(f"{path}: a goal beside the unknown scenario {goal.beside!r}")
    for peer in (goal.ours, goal.against):
        if peer is not None and peer not in by_name[goal.scenario].peers:
            raise ScenarioError(f"{path}: scenario {goal.scenario} has no peer {peer!r}, but a goal names it")
    return goal
