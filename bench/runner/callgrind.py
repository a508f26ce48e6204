"""Instructions per operation: two runs under callgrind, N and 2N operations, and their difference.

The difference leaves out start-up, the peer's own warm-up and the reading of arguments. The figure does not depend on
the machine's mood; it does depend on the compiler, which is why bench/gate.json names it.
"""

import math
import re
import shutil
from pathlib import Path

from .machine import run

# callgrind is some fifty times slower than the machine, which may have other things to do.
TIME_LIMIT_S = 600


def is_here() -> bool:
    return shutil.which("valgrind") is not None


# Start-up and the printing of figures differ by some hundred instructions from run to run; over this many they vanish.
ENOUGH = 20_000_000
QUICKLY_ENOUGH = 2_000_000
TRIAL = 200


def iterations_for(binary: Path, scenario: str, peer: str, most: int, enough: int = ENOUGH) -> int:
    """A power of ten of operations that together take about `enough` instructions, and no more than `most`."""
    if most <= TRIAL:
        return max(1, most)
    each = max(1.0, instructions_per_op(binary, scenario, peer, TRIAL))
    return min(most, max(10, 10 ** math.floor(math.log10(enough / each))))


def instructions_per_op(binary: Path, scenario: str, peer: str, iterations: int) -> float:
    once = _count(binary, scenario, peer, iterations)
    twice = _count(binary, scenario, peer, 2 * iterations)
    return (twice - once) / iterations


def _count(binary: Path, scenario: str, peer: str, iterations: int) -> int:
    program = [str(binary), "run", scenario, peer, str(iterations)]
    line = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", *program]
    said = run(line, TIME_LIMIT_S).stderr
    found = re.search(r"Collected\s*:\s*(\d+)", said)
    if found is None:
        raise RuntimeError(f"callgrind counted nothing: {said.strip()[-200:]}")
    return int(found[1])
