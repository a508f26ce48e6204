"""Flame graphs of a server under load: perf samples its stacks, and one SVG shows where the time is
spent.

Widths are shares of the samples, with the outermost frame at the top. Hovering over a box shows its
name and share. Frames without a symbol (R's own static functions) have the name of their library.
"""

import re
import shutil
import threading
from collections import Counter
from contextlib import suppress
from html import escape
from pathlib import Path

from . import load_generators
from ..machine import run
from ..scenarios import Scenario
from ..server import Server

HERTZ = 499
SECONDS = 2
# The kernel truncates deeper stacks in its copy of the stack. R with its evaluator needs some
# kilobytes.
STACK_BYTES = 16_384
LIMIT_S = 300

WIDTH, ROW, TOP = 1200, 16, 40
# Narrower boxes are left out.
NARROWEST = 0.002
Stack = tuple[str, ...]


def record(server: Server, scenario: Scenario, target: Path) -> str:
    """Draws the server under the scenario's load into `target`. Returns the reason for a failure, or
    an empty string.
    """
    if shutil.which("perf") is None:
        return "perf is not installed"

    def ask() -> None:
        # The graph of a server that fails is still useful, and the samples report the failure.
        with suppress(RuntimeError, OSError):
            load_generators.http(server, scenario, SECONDS + 1)

    data = target.with_suffix(".perf")
    graph = ["perf", "record", "-q", "-F", str(HERTZ), "--call-graph", f"dwarf,{STACK_BYTES}", "-o", str(data)]
    load = threading.Thread(target=ask)
    load.start()
    try:
        run([*graph, "-p", str(server.process.pid), "--", "sleep", str(SECONDS)], LIMIT_S)
        stacks = fold(run(["perf", "script", "-i", str(data), "-F", "comm,tid,ip,sym,dso"], LIMIT_S).stdout)
    except RuntimeError as error:
        return str(error)
    finally:
        load.join()
        data.unlink(missing_ok=True)
    if not stacks:
        return "perf took no sample"
    target.write_text(svg(stacks, f"{server.contender}, {scenario.name}"), encoding="utf-8")
    return ""


def fold(text: str) -> Counter[Stack]:
    """Returns the samples of each stack in the output of `perf script`, and of all its prefixes. A
    stack is a line for the thread, lines for frames, and an empty line.
    """
    samples: Counter[Stack] = Counter()
    for block in text.split("\n\n"):
        thread, *lines = block.strip().splitlines() or [""]
        names = [name for line in lines if (name := _name(line))]
        # Successive frames of one library without names become one box.
        names = [name for before, name in zip(["", *names], names) if not name.startswith("[") or name != before]
        stack = ("all", thread.rsplit(None, 1)[0], *reversed(names)) if lines else ()
        samples.update(stack[:depth] for depth in range(1, len(stack) + 1))
    return samples


def _name(line: str) -> str:
    found = re.match(r"\s*[0-9a-f]+ (.*?)(?:\+0x[0-9a-f]+)? \(([^()]*)\)\s*$", line)
    if found is None:
        return ""
    symbol, library = found[1], Path(found[2]).name
    if symbol == "[unknown]":
        return "" if library in ("[unknown]", "") else f"[{library}]"
    return symbol


def svg(samples: Counter[Stack], title: str) -> str:
    total = samples[("all",)]
    shown = sorted(stack for stack, count in samples.items() if count >= NARROWEST * total)
    height = TOP + ROW * max(map(len, shown))
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}" '
        'font-family="monospace" font-size="11">',
        f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
        f'<text x="10" y="22" font-size="15">{escape(title)}: {total} samples</text>',
    ]
    # The position of the next box on top of each box.
    free: dict[Stack, float] = {(): 0.0}
    for stack in shown:
        below, name, share = stack[:-1], escape(stack[-1]), samples[stack] / total
        left = free[stack] = free[below]
        free[below] += share * WIDTH
        # The colour depends on the name, so that a function has the same colour in all graphs: warm
        # hues, as usual.
        tone = sum(stack[-1].encode()) % 60
        # An inner svg clips text that is too long for its box.
        lines.append(
            f'<svg x="{left:.1f}" y="{TOP + ROW * (len(stack) - 1)}" width="{share * WIDTH:.1f}" height="{ROW - 1}">'
            f"<title>{name}: {samples[stack]} samples, {share:.1%}</title>"
            f'<rect width="100%" height="100%" fill="rgb({225 - tone // 3},{120 + tone * 2},{60 + tone})"/>'
            f'<text x="2" y="{ROW - 5}">{name}</text></svg>'
        )
    return "\n".join([*lines, "</svg>"]) + "\n"
