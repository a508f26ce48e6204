"""Interleaved samples and what is said of them.

Peers take turns, A B C A B C, so that a machine that slows down in the middle slows all of them. A ratio is taken turn
by turn and then summarised; the ratio of two medians would mix turns.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from statistics import median

SAMPLES = 5
OK, MISSING, FAILED = "ok", "MISSING", "FAILED"


class Missing(RuntimeError):
    """A peer or program that is not here; the text says what was looked for, or how its compilation ended."""


@dataclass
class Cell:
    """One peer in one scenario."""

    scenario: str
    peer: str
    status: str = OK
    reason: str = ""
    # Of each metric a figure for each turn, or one alone that stands for all of them.
    figures: dict[str, list[float]] = field(default_factory=dict)

    @contextmanager
    def attempt(self) -> Iterator[None]:
        """What the block raises is the end of this cell, and not of the run."""
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
    """a / b, where nothing against nothing is as much, and something against nothing is infinitely more."""
    if b == 0:
        return 1.0 if a == 0 else float("inf")
    return a / b


def pairwise(
    ours: Cell, other: Cell, metric: str, combine: Callable[[float, float], float] = ratio
) -> list[float]:
    """`combine` of ours and the other's figure, turn by turn."""
    if ours.status != OK or other.status != OK:
        return []
    left, right = ours.figures.get(metric, []), other.figures.get(metric, [])
    turns = max(len(left), len(right))
    left, right = (values * turns if len(values) == 1 else values for values in (left, right))
    return [combine(a, b) for a, b in zip(left, right)]


def interleave(turns: list[tuple[Cell, Callable[[], dict[str, float]]]], samples: int = SAMPLES) -> None:
    """Takes so many samples of each cell that still stands, one after the other."""
    for _ in range(samples):
        for cell, take in turns:
            if cell.status == OK:
                with cell.attempt():
                    cell.add(take())
