"""The table of settings, as docs/settings.md has it: where each may be given, and its former names."""

import re
from pathlib import Path

PAGE = Path(__file__).resolve().parent.parent.parent / "docs" / "settings.md"


class Row:
    """A setting: its option, its path below `options:` of `_server.yml`, and its environment variable; None where there is none."""

    def __init__(self, name, where):
        self.name = name
        first = lambda pattern: next(iter(re.findall(pattern, where)), None)
        self.option = first(r"`(--[a-z0-9-]+)")
        self.is_limit = "`--limit " in where
        self.is_flag = bool(re.search(r"`--[a-z0-9-]+`", where))
        self.path = first(r"`([a-z0-9_.]+):`")
        self.variable = first(r"`(ROOKERY_[A-Z0-9_]+)`")


def read():
    text = PAGE.read_text()
    rows = re.findall(r"^### `([a-z0-9_]+)`$.*?^- Where: ([^\n]*)\.$", text, re.M | re.S)
    former = re.findall(r"^\| `([a-z0-9_]+)` \| .*? \| `([a-z0-9_]+)`", text, re.M)
    return {name: Row(name, where) for name, where in rows}, {new: old for old, new in reversed(former)}


ROWS, FORMER = read()
