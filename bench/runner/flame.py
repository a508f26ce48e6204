"""Flame graphs of a loaded server: perf samples its stacks while wrk asks, and one SVG shows where the time goes.

Widths are shares of samples, with the outermost frame at the bottom; hovering a box names it and its share. Frames
without a symbol (R's own static functions) carry the name of their library.
"""

import re
import shutil
import subprocess
import threading
from dataclasses import dataclass, field
from html import escape
from pathlib import Path

from . import wrk
from .peers import Server
from .scenarios import Scenario

HERTZ = 499
SECONDS = 2
# Deeper stacks are cut by the kernel's copy of the stack; R with its evaluator needs some kilobytes.
STACK_BYTES = 16_384

WIDTH, ROW, MARGIN = 1200, 16, 10
# Boxes narrower than this share of the width are left out.
NARROWEST = 0.002


@dataclass
class Frame:
    name: str
    samples: int = 0
    inner: dict[str, "Frame"] = field(default_factory=dict)


def record(server: Server, scenario: Scenario, placement: str, target: Path) -> str:
    """Draws the server under the scenario's load into `target`. Returns why not, or an empty string."""
    if shutil.which("perf") is None:
        return "perf is not installed"
    data = target.with_suffix(".perf")
    load = threading.Thread(target=_load, args=(server, scenario, placement))
    load.start()
    line = ["perf", "record", "-q", "-F", str(HERTZ), "--call-graph", f"dwarf,{STACK_BYTES}", "-o", str(data)]
    try:
        done = subprocess.run(
            [*line, "-p", str(server.process.pid), "--", "sleep", str(SECONDS)],
            capture_output=True,
            text=True,
            check=False,
        )
        load.join()
        if done.returncode != 0:
            return f"perf record failed: {done.stderr.strip()[-200:]}"
        script = subprocess.run(
            ["perf", "script", "-i", str(data), "-F", "comm,tid,ip,sym,dso"], capture_output=True, text=True, check=False
        )
        if script.returncode != 0:
            return f"perf script failed: {script.stderr.strip()[-200:]}"
    finally:
        load.join()
        data.unlink(missing_ok=True)
    root = fold(script.stdout)
    if root.samples == 0:
        return "perf took no sample"
    target.write_text(svg(root, f"{server.peer}, {scenario.name}"), encoding="utf-8")
    return ""


def _load(server: Server, scenario: Scenario, placement: str) -> None:
    try:
        wrk.run(server, scenario, SECONDS + 1, placement)
    except (RuntimeError, OSError, subprocess.TimeoutExpired):
        pass  # the graph of a server that fails is still a graph; the samples proper say that it fails


def fold(text: str) -> Frame:
    """The tree of stacks that `perf script` printed: a line for the thread, lines for frames, an empty line."""
    root = Frame("all")
    for block in text.split("\n\n"):
        lines = [line for line in block.splitlines() if line.strip()]
        if len(lines) < 2:
            continue
        thread = lines[0].strip().rsplit(None, 1)[0]
        names = [name for line in lines[1:] if (name := _name(line))]
        _add(root, [thread, *reversed(_without_repeats(names))])
    return root


def _name(line: str) -> str:
    found = re.match(r"\s*[0-9a-f]+ (.*?)(?:\+0x[0-9a-f]+)? \(([^()]*)\)\s*$", line)
    if found is None:
        return ""
    symbol, library = found[1], Path(found[2]).name
    if symbol == "[unknown]":
        return "" if library in ("[unknown]", "") else f"[{library}]"
    return symbol


def _without_repeats(names: list[str]) -> list[str]:
    """Nameless frames of one library that follow each other are one box."""
    return [name for i, name in enumerate(names) if not (name.startswith("[") and i > 0 and names[i - 1] == name)]


def _add(root: Frame, stack: list[str]) -> None:
    root.samples += 1
    at = root
    for name in stack:
        at = at.inner.setdefault(name, Frame(name))
        at.samples += 1


def svg(root: Frame, title: str) -> str:
    depth = _depth(root, root.samples)
    height = (depth + 1) * ROW + 60
    boxes: list[str] = []
    _draw(boxes, root, root.samples, MARGIN, height - MARGIN - ROW, WIDTH - 2 * MARGIN)
    head = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" '
        f'viewBox="0 0 {WIDTH} {height}" font-family="monospace" font-size="11">',
        f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
        f'<text x="{MARGIN}" y="22" font-size="15">{escape(title)}: {root.samples} samples</text>',
    ]
    return "\n".join([*head, *boxes, "</svg>"]) + "\n"


def _depth(frame: Frame, total: int) -> int:
    shown = [inner for inner in frame.inner.values() if inner.samples >= NARROWEST * total]
    return 1 + max((_depth(inner, total) for inner in shown), default=0)


def _draw(boxes: list[str], frame: Frame, total: int, x: float, y: float, width: float) -> None:
    share = frame.samples / total
    # Colour by name, so that one function has one colour in every graph: warm hues, as flame graphs have.
    tone = sum(frame.name.encode()) % 60
    label = escape(frame.name)
    room = int(width / 6.7)
    text = "" if room < 4 else label if len(frame.name) <= room else escape(frame.name[: room - 1]) + "~"
    boxes.append(
        f'<g><title>{label}: {frame.samples} samples, {share:.1%}</title>'
        f'<rect x="{x:.1f}" y="{y}" width="{max(width - 0.5, 0.5):.1f}" height="{ROW - 1}" '
        f'fill="rgb({225 - tone // 3},{120 + tone * 2},{60 + tone})"/>'
        f'<text x="{x + 2:.1f}" y="{y + ROW - 5}">{text}</text></g>'
    )
    at = x
    for inner in sorted(frame.inner.values(), key=lambda one: one.name):
        inner_width = width * inner.samples / frame.samples
        if inner.samples >= NARROWEST * total:
            _draw(boxes, inner, total, at, y - ROW, inner_width)
        at += inner_width
