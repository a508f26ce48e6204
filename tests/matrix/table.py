"""The table of settings, as docs/settings.md has it: which kind of value each has, and where it may be given."""

import re
from pathlib import Path

# How the page begins the description of a kind of values; the first pattern that matches decides.
KINDS = {
    "flag": "yes or no", "percent": "a whole number of percent", "count": r"(\w+, or )?a whole number", "time": "a time",
    "size": r"(\w+, or )?a size", "rate": "whole bytes per second", "path": "the path", "list": "(addresses|e-mail addresses|host names|paths) ",
    "text": "",
}
PAGE = Path(__file__).resolve().parent.parent.parent / "docs" / "settings.md"


class Row:
    """A setting: its option, its path below `options:` of `_server.yml`, its environment variable, the function and argument of R,
    and whether it is an option of R; None where there is none."""

    def __init__(self, name, value, default, where):
        self.name, self.default = name, default
        self.kind = next(kind for kind, pattern in KINDS.items() if re.match(pattern, value))
        first = lambda pattern: next(iter(re.findall(pattern, where)), None)
        self.option = first(r"`(--[a-z0-9-]+)")
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

    def form(self, place):
        """Returns what distinguishes the ways in which a place gives settings: the function of R, and the section of the file."""
        return {"R": self.function, "_server.yml": (self.path or "").rpartition(".")[0]}.get(place)


def read():
    # Each point of a list is one line here, however the page wraps it.
    text = re.sub(r"\n  (?=\S)", " ", PAGE.read_text())
    rows = re.findall(r"^### `([a-z0-9_]+)`$.*?^- Value: ([^\n]*?)\. Default: ([^\n]*)\.$\n^- Set by: ([^\n]*)\.$", text, re.M | re.S)
    return {name: Row(name, value, default.strip("`"), where) for name, value, default, where in rows}


ROWS = read()
