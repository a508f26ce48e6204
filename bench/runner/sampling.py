"""Interleaved samples and what is said of them.

Peers take turns, A B C A B C, so that a machine that slows down in the middle slows all of them. A ratio is taken turn
by turn and then summarised; the ratio of two medians would mix turns.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import median

SAMPLES = 5

OK = "ok"
MISSING = "MISSING"
FAILED = "FAILED"


@dataclass
class Cell:
    """One peer in one scenario."""

    scenario: str
    peer: str
    status: str = OK
    reason: str = ""
    samples: list[dict[str, float]] = field(default_factory=list)
    # Figures measured once: instructions, allocations, peak memory.
    single: dict[str, float] = field(default_factory=dict)

    def fail(self, reason: str) -> None:
        self.status = FAILED
        self.reason = reason

    def values(self, metric: str) -> list[float]:
        if metric in self.single:
            return [self.single[metric]]
        return [sample[metric] for sample in self.samples if metric in sample]

    def middle(self, metric: str) -> float | None:
        values = self.values(metric)
        return median(values) if values and self.status == OK else None

    def spread(self, metric: str) -> tuple[float, float] | None:
        values = self.values(metric)
        return (min(values), max(values)) if values and self.status == OK else None

    def metrics(self) -> list[str]:
        names = list(self.single)
        for sample in self.samples:
            names += [name for name in sample if name not in names]
        return names


def pairwise(ours: Cell, other: Cell, metric: str, combine: Callable[[float, float], float]) -> list[float]:
    """`combine` of ours and the other's figure, turn by turn (a figure measured once stands for each turn)."""
    if ours.status != OK or other.status != OK:
        return []
    left, right = ours.values(metric), other.values(metric)
    if not left or not right:
        return []
    turns = max(len(left), len(right))
    left = left * turns if len(left) == 1 else left
    right = right * turns if len(right) == 1 else right
    return [combine(a, b) for a, b in zip(left, right)]


def ratio(a: float, b: float) -> float:
    """a / b, where nothing against nothing is as much, and something against nothing is infinitely more."""
    if b == 0:
        return 1.0 if a == 0 else float("inf")
    return a / b


def interleave(cells: list[Cell], take: Callable[[Cell], dict[str, float]], samples: int = SAMPLES) -> None:
    """Takes `samples` turns over the cells that still stand; a cell whose sample raises is marked FAILED."""
    for _ in range(samples):
        for cell in cells:
            if cell.status != OK:
                continue
            try:
                cell.samples.append(take(cell))
            except (OSError, RuntimeError, ValueError) as error:
                cell.fail(str(error))
