"""Whether the goals that stand beside the scenarios are met: one line each, and one that counts them."""

from dataclasses import dataclass
from statistics import median

from .sampling import Cell, pairwise, ratio
from .scenarios import Goal, Group

MET_AIM = "aim met"
MET = "met"
MISSED = "missed"
NOT_MEASURED = "not measured"


@dataclass
class Verdict:
    goal: Goal
    status: str
    figure: float | None
    reason: str = ""

    def line(self) -> str:
        goal = self.goal
        subject = f"{goal.scenario} {goal.metric}"
        rivals = f"{goal.ours} / {goal.against}" if goal.kind.startswith("ratio") else f"{goal.ours} - {goal.against}"
        if goal.beside is not None:
            rivals = f"{goal.ours} / {goal.ours} in {goal.beside}"
        whose = goal.ours if goal.kind in ("max", "min") else rivals
        sign = ">=" if goal.kind in ("ratio_min", "min") else "<="
        aim = "" if goal.aim is None else f", aim {number(goal.aim)}"
        source = f" ({goal.source})" if goal.source else ""
        figure = self.reason if self.figure is None else number(self.figure)
        return f"{self.status:>12}  {subject}: {whose} = {figure}, floor {sign} {number(goal.floor)}{aim}{source}"


def judge(group: Group, cells: list[Cell], measured: set[str]) -> list[Verdict]:
    """One verdict per goal. `measured` names the scenarios of this run; goals of the others are `not measured`."""
    by_key = {(cell.scenario, cell.peer): cell for cell in cells}
    verdicts = []
    for goal in group.goals:
        if not {goal.scenario, goal.beside or goal.scenario} <= measured:
            verdicts.append(Verdict(goal, NOT_MEASURED, None, "left out of this run"))
            continue
        ours = by_key.get((goal.scenario, goal.ours))
        rival = (goal.beside, goal.ours) if goal.beside is not None else (goal.scenario, goal.against)
        other = by_key.get(rival)
        if ours is None or (goal.kind not in ("max", "min") and other is None):
            verdicts.append(Verdict(goal, NOT_MEASURED, None, "a peer was left out of this run"))
            continue
        figure = _figure(goal, ours, other)
        if figure is None:
            reasons = [f"{cell.peer} {cell.status}" for cell in (ours, other) if cell is not None and cell.status != "ok"]
            reason = ", ".join(reasons) or f"no figure {goal.metric}"
            verdicts.append(Verdict(goal, NOT_MEASURED, None, reason))
            continue
        verdicts.append(Verdict(goal, _status(goal, figure), figure))
    return verdicts


def _figure(goal: Goal, ours: Cell, other: Cell | None) -> float | None:
    if other is None:
        return ours.middle(goal.metric)
    combine = ratio if goal.kind.startswith("ratio") else lambda a, b: a - b
    turns = pairwise(ours, other, goal.metric, combine)
    return median(turns) if turns else None


def _status(goal: Goal, figure: float) -> str:
    def reached(bound: float) -> bool:
        return figure >= bound if goal.kind in ("ratio_min", "min") else figure <= bound

    if goal.aim is not None and reached(goal.aim):
        return MET_AIM
    return MET if reached(goal.floor) else MISSED


def count_line(verdicts: list[Verdict]) -> str:
    def count(*statuses: str) -> int:
        return sum(verdict.status in statuses for verdict in verdicts)

    aims = sum(verdict.goal.aim is not None for verdict in verdicts)
    return (
        f"goals: {count(MET, MET_AIM)} of {len(verdicts)} floors met, {count(MET_AIM)} of {aims} aims met, "
        f"{count(MISSED)} missed, {count(NOT_MEASURED)} not measured"
    )


def all_floors_met(verdicts: list[Verdict]) -> bool:
    """A goal that was not measured is not met: silence is no evidence."""
    return all(verdict.status in (MET, MET_AIM) for verdict in verdicts)


def number(value: float) -> str:
    """Three significant digits, with thousands separated and no exponent."""
    if value in (float("inf"), float("-inf")):
        return "inf" if value > 0 else "-inf"
    if abs(value) >= 100:
        return f"{value:,.0f}"
    if abs(value) >= 10:
        return f"{value:.1f}"
    return f"{value:.3g}" if abs(value) < 1 else f"{value:.2f}"
