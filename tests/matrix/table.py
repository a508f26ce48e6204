"""The table of settings, as docs/settings.md has it: where each may be given, and its former names."""

import re
from pathlib import Path

PAGE = Path(__file__).resolve().parent.parent.parent / "docs" / "settings.md"


class Row:
    """A setting: its option, its path below `options:` of `_server.yml`, its environment variable, the function and argument of R,
    and whether it is an option of R; None where there is none."""

    def __init__(self, name, default, where):
        self.name, self.default = name, default
        first = lambda pattern: next(iter(re.findall(pattern, where)), None)
        self.option = first(r"`(--[a-z0-9-]+)")
        self.is_limit = "`--limit " in where
        self.is_flag = bool(re.search(r"`--[a-z0-9-]+`", where))
        self.path = first(r"`([a-z0-9_.]+):`")
        self.variable = first(r"`(ROOKERY_[A-Z0-9_]+)`")
        self.function, self.argument = first(r"`([a-z_]+)\(([a-z0-9_]+)\)`(?=,|$)") or (None, None)
        # An argument of an app, which is R and not a place of its own here.
        self.of_the_app = first(r"`app\$(\w+)`")
        self.is_r_option = "`options(rookery." in where


    def can_be_given(self, place):
        return bool({
            "command line": self.option, "_server.yml": self.path, "R": self.function, "option of R": self.is_r_option,
            "environment": self.variable,
        }[place])


def read():
    # Each point of a list is one line here, however the page wraps it.
    text = re.sub(r"\n  (?=\S)", " ", PAGE.read_text())
    rows = re.findall(r"^### `([a-z0-9_]+)`$.*?Default: ([^\n]*)\.$\n^- Set by: ([^\n]*)\.$", text, re.M | re.S)
    return {name: Row(name, default.strip("`"), where) for name, default, where in rows}


ROWS = read()
