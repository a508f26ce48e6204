"""Bars as one SVG: those of a group beside its tables, and those of the README."""

import textwrap
from html import escape

WIDTH, LEFT, RIGHT, TOP, LINE, BAR, GAP = 760, 330, 90, 37, 15, 10, 10
# Colours that stay apart in print and for the colour-blind (Okabe and Ito); ours is the first.
COLOURS = ("#d55e00", "#0072b2", "#009e73", "#e69f00", "#56b4e9", "#cc79a7", "#999999", "#000000")


# What is written behind a bar, its length, and from where to where it varied.
Bar = tuple[str, float, tuple[float, float] | None]


def svg(title: str, subtitles: list[str], legend: tuple[str, ...], rows: list[tuple[str, list[Bar]]]) -> str:
    """A line of bars for each row, to its own scale. The legend names the colours of the bars of all rows."""
    subtitles = [line for text in subtitles for line in textwrap.wrap(text, 115)]
    body = [f'<text x="10" y="20" font-size="15" font-weight="bold">{escape(title)}</text>']
    for line, text in enumerate(subtitles):
        body.append(f'<text x="10" y="{TOP + LINE * line}" fill="#555555">{escape(text)}</text>')
    y = TOP + LINE * len(subtitles)
    for position, name in enumerate(legend):
        x = 10 + 110 * position
        body.append(f'<rect x="{x}" y="{y - 4}" width="{BAR}" height="{BAR}" fill="{COLOURS[position]}"/>')
        body.append(f'<text x="{x + 15}" y="{y + 5}">{escape(name)}</text>')
    y += 22 if legend else 0
    for label, bars in rows:
        middle = y + BAR * len(bars) / 2 + 4
        body.append(f'<text x="{LEFT - 8}" y="{middle:.0f}" text-anchor="end">{escape(label)}</text>')
        longest = max(max(length, *(spread or (0, 0))) for _, length, spread in bars) or 1
        for position, (text, length, spread) in enumerate(bars):
            ends = [end / longest * (WIDTH - LEFT - RIGHT) for end in (length, *(spread or ()))]
            body.append(_bar(text, COLOURS[position % len(COLOURS)], *ends, y=y))
            y += BAR
        y += GAP
    frame = f'width="{WIDTH}" height="{y}"'
    head = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {frame} viewBox="0 0 {WIDTH} {y}" font-family="sans-serif" font-size="11">',
        f'<rect {frame} fill="#ffffff"/>',
    ]
    return "\n".join([*head, *body, "</svg>"]) + "\n"


def _bar(text: str, colour: str, length: float, low: float = 0, high: float = 0, *, y: int) -> str:
    drawn = ""
    if length:
        length = max(1.0, length)
        drawn += f'<rect x="{LEFT}" y="{y}" width="{length:.1f}" height="{BAR - 1}" fill="{colour}"/>'
    if high:
        line = f'x1="{LEFT + low:.1f}" y1="{y + 4.5}" x2="{LEFT + high:.1f}" y2="{y + 4.5}"'
        drawn += f'<line {line} stroke="#000000"/>'
    x = LEFT + max(length, high) + 5
    return f'{drawn}<text x="{x:.1f}" y="{y + BAR - 2}" font-size="9">{escape(text)}</text>'
