"""The figures of a run, measured in interleaved turns, and the verdicts about the goals.

The samples of contenders are interleaved, A B C A B C, so that a machine that slows down during a
run slows all of them. A ratio is computed for each turn and then summarised; a ratio of two medians
would mix different turns.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from statistics import median

from .scenarios import Goal, Group

SAMPLES = 5
OK, MISSING, FAILED = "ok", "MISSING", "FAILED"
MET_AIM, MET, MISSED, NOT_MEASURED = "aim met", "met", "missed", "not measured"


class Missing(RuntimeError):
    """A contender or program is not available. The message says what was looked for, or how its build
    ended.
    """


@dataclass
class Cell:
    """The result of one contender in one scenario."""

    scenario: str
    contender: str
    status: str = OK
    reason: str = ""
    # For each metric a figure for each turn, or one figure that applies to all of them.
    figures: dict[str, list[float]] = field(default_factory=dict)

    @contextmanager
    def attempt(self) -> Iterator[None]:
        """Turns an error of the block into the result of this cell, so that the run continues."""
        try:
            yield
        except (OSError, RuntimeError, ValueError) as error:
            self.status = MISSING if isinstance(error, Missing) else FAILED
            self.reason = str(error)

    def add(self, sample: dict[str, float]) -> None:
        for name, value in sample.items():
            self.figures.setdefault(name, []).append(value)

    def middle(self, metric: str) -> float | None:
        values = self.figures.get(metric)
        return median(values) if values and self.status == OK else None


def ratio(a: float, b: float) -> float:
    """Returns a / b, which is 1 for 0 / 0 and infinite for a positive number divided by 0."""
    if b == 0:
        return 1.0 if a == 0 else float("inf")
    return a / b


def pairwise(
    ours: Cell, other: Cell, metric: str, combine: Callable[[float, float], float] = ratio
) -> list[float]:
    """Returns `combine` of our figure and the other's for each turn."""
    if ours.status != OK or other.status != OK:
        return []
    left, right = ours.figures.get(metric, []), other.figures.get(metric, [])
    turns = max(len(left), len(right))
    left, right = (values * turns if len(values) == 1 else values for values in (left, right))
    return [combine(a, b) for a, b in zip(left, right)]


def interleave(turns: list[tuple[Cell, Callable[[], dict[str, float]]]], samples: int = SAMPLES) -> None:
    """Takes `count` interleaved samples of each cell that has not failed."""
    for _ in range(samples):
        for cell, take in turns:
            if cell.status == OK:
                with cell.attempt():
                    cell.add(take())


@dataclass
class Verdict:
    goal: Goal
    status: str
    figure: float | None
    reason: str = ""
    # The figures of the turns, of which `figure` is the median. With five turns, their range is an
    # interval of the median with a confidence of 94 %.
    turns: tuple[float, ...] = ()

    def line(self) -> str:
        goal = self.goal
        whose = goal.ours
        if goal.beside is not None:
            whose = f"{goal.ours} / {goal.ours} in {goal.beside}"
        elif goal.against is not None:
            whose = f"{goal.ours} {'/' if goal.kind.startswith('ratio') else '-'} {goal.against}"
        sign = ">=" if goal.kind in ("ratio_min", "min") else "<="
        aim = "" if goal.aim is None else f", aim {number(goal.aim)}"
        source = f" ({goal.source})" if goal.source else ""
        figure = self.reason if self.figure is None else number(self.figure)
        if len(self.turns) > 1:
            figure += f" ({number(min(self.turns))}..{number(max(self.turns))})"
        bounds = f"floor {sign} {number(goal.floor)}{aim}{source}"
        return f"{self.status:>12}  {goal.scenario} {goal.metric}: {whose} = {figure}, {bounds}"


def judge(group: Group, cells: list[Cell]) -> list[Verdict]:
    """Returns one verdict for each goal."""
    by_key = {(cell.scenario, cell.contender): cell for cell in cells}
    return [_verdict(goal, by_key) for goal in group.goals]


def _verdict(goal: Goal, cells: dict[tuple[str, str], Cell]) -> Verdict:
    compared = [cells.get((goal.scenario, goal.ours))]
    if goal.kind not in ("max", "min"):
        compared.append(cells.get((goal.beside, goal.ours) if goal.beside else (goal.scenario, goal.against)))
    if None in compared:
        return Verdict(goal, NOT_MEASURED, None, "left out of this run")
    if absent := [f"{cell.contender} {cell.status}" for cell in compared if cell.status != OK]:
        return Verdict(goal, NOT_MEASURED, None, ", ".join(absent))
    combine = ratio if goal.kind.startswith("ratio") else lambda a, b: a - b
    turns = pairwise(*compared, goal.metric, combine) if len(compared) == 2 else compared[0].figures.get(goal.metric)
    if not turns:
        return Verdict(goal, NOT_MEASURED, None, f"no figure {goal.metric}")
    figure = median(turns)

    def reaches(bound: float) -> bool:
        return figure >= bound if goal.kind in ("ratio_min", "min") else figure <= bound

    status = MET if reaches(goal.floor) else MISSED
    if goal.aim is not None and reaches(goal.aim):
        status = MET_AIM
    return Verdict(goal, status, figure, turns=tuple(turns))


def count_line(verdicts: list[Verdict]) -> str:
    statuses = [verdict.status for verdict in verdicts]
    met = statuses.count(MET) + statuses.count(MET_AIM)
    aims = sum(verdict.goal.aim is not None for verdict in verdicts)
    return (
        f"goals: {met} of {len(verdicts)} floors met, {statuses.count(MET_AIM)} of {aims} aims met, "
        f"{statuses.count(MISSED)} missed, {statuses.count(NOT_MEASURED)} not measured"
    )


def all_floors_met(verdicts: list[Verdict]) -> bool:
    """Returns true if all floors are met. A goal that was not measured is not met."""
    return all(verdict.status in (MET, MET_AIM) for verdict in verdicts)


def number(value: float) -> str:
    """Formats a number with three significant digits, a thousands separator and no exponent."""
    if abs(value) >= 100:
        return f"{value:,.0f}"
    if abs(value) >= 10:
        return f"{value:.1f}"
    return f"{value:.3g}" if abs(value) < 1 else f"{value:.2f}"
