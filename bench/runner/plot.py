"""One SVG per group: a bar per peer and scenario on the group's metric, with the spread as a line."""

import textwrap
from html import escape

from .goals import number
from .report import COLUMNS, ratio_metric
from .sampling import OK, Cell
from .scenarios import Group

WIDTH, BAR, GAP, LEFT, RIGHT = 760, 15, 5, 150, 130
# Colours that stay apart in print and for the colour-blind (Okabe and Ito); ours is the first.
COLOURS = ("#d55e00", "#0072b2", "#009e73", "#e69f00", "#56b4e9", "#cc79a7", "#999999", "#000000")


def svg(group: Group, cells: list[Cell], subtitle: str) -> str:
    peers = list(dict.fromkeys([group.ours, *[cell.peer for cell in cells]]))
    colours = {peer: COLOURS[min(position, len(COLOURS) - 1)] for position, peer in enumerate(peers)}
    body: list[str] = []
    subtitles = textwrap.wrap(subtitle, 115)
    y = 37 + 15 * len(subtitles)
    for scenario in group.scenarios:
        row = [cell for cell in cells if cell.scenario == scenario.name]
        if row:
            y = _scenario(body, group, scenario.name, row, colours, y)
    return _framed(group.name, subtitles, body, y + 10)


def _framed(title: str, subtitles: list[str], body: list[str], height: float) -> str:
    head = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" '
        f'viewBox="0 0 {WIDTH} {height}" font-family="sans-serif" font-size="11">',
        f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
        f'<text x="10" y="20" font-size="15" font-weight="bold">{escape(title)}</text>',
        *[
            f'<text x="10" y="{37 + 15 * line}" fill="#555555">{escape(text)}</text>'
            for line, text in enumerate(subtitles)
        ],
    ]
    return "\n".join([*head, *body, "</svg>"]) + "\n"


def overview(title: str, subtitles: list[str], peers: tuple[str, ...], rows: list[tuple[str, list[tuple[float, str]]]]) -> str:
    """A line of thin bars for each row, to its own scale; a row has a figure and its text for each peer (0: no bar)."""
    left, thin = 330, 10
    y = 37 + 15 * len(subtitles)
    body = []
    for position, peer in enumerate(peers):
        x = 10 + 110 * position
        body.append(f'<rect x="{x}" y="{y - 4}" width="{thin}" height="{thin}" fill="{COLOURS[position]}"/>')
        body.append(f'<text x="{x + 15}" y="{y + 5}">{escape(peer)}</text>')
    y += 22
    for label, figures in rows:
        longest = max((figure for figure, _ in figures), default=0) or 1
        body.append(f'<text x="{left - 8}" y="{y + thin * len(figures) / 2 + 4:.0f}" text-anchor="end">{escape(label)}</text>')
        for colour, (figure, text) in zip(COLOURS, figures):
            length = max(1.0, figure / longest * (WIDTH - left - 90)) if figure else 0
            body.append(
                f'<rect x="{left}" y="{y}" width="{length:.1f}" height="{thin - 1}" fill="{colour}"/>'
                f'<text x="{left + length + 5:.1f}" y="{y + thin - 2}" font-size="9">{escape(text)}</text>'
            )
            y += thin
        y += 10
    return _framed(title, subtitles, body, y)


def _scenario(body: list[str], group: Group, name: str, row: list[Cell], colours: dict[str, str], y: int) -> int:
    good = [cell for cell in row if cell.status == OK]
    metric = ratio_metric(group, good[0]) if good else None
    label = f"{name}: {COLUMNS.get(metric, metric)}" if metric else name
    body.append(f'<text x="10" y="{y + 12}" font-weight="bold">{escape(label)}</text>')
    y += 19
    longest = max((cell.spread(metric)[1] for cell in good if cell.spread(metric)), default=0) if metric else 0
    scale = (WIDTH - LEFT - RIGHT) / longest if longest > 0 else 0
    for cell in row:
        body.append(f'<text x="{LEFT - 8}" y="{y + BAR - 4}" text-anchor="end">{escape(cell.peer)}</text>')
        middle = cell.middle(metric) if metric else None
        spread = cell.spread(metric) if metric else None
        if middle is None or spread is None:
            body.append(f'<text x="{LEFT}" y="{y + BAR - 4}" fill="#aa0000">{escape(cell.status)}</text>')
        else:
            length = max(1.0, middle * scale)
            low, high = LEFT + spread[0] * scale, LEFT + spread[1] * scale
            centre = y + BAR / 2
            body.append(
                f'<rect x="{LEFT}" y="{y}" width="{length:.1f}" height="{BAR}" fill="{colours[cell.peer]}"/>'
                f'<line x1="{low:.1f}" y1="{centre}" x2="{high:.1f}" y2="{centre}" stroke="#000000"/>'
                f'<text x="{max(high, LEFT + length) + 6:.1f}" y="{y + BAR - 4}">{number(middle)}</text>'
            )
        y += BAR + GAP
    return y + 10
