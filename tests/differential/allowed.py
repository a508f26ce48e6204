"""The differences that are allowed: allowed.toml, and which probe shows which of its entries.

    [[difference]]
    id = "a-name"
    section = "Requests"            # of the vignette
    what = "What happens"           # the three columns of the vignette's table, in Markdown
    rookery = "what Rookery does"
    reason = "why"
    probes = ["glob of probe ids: aspect, aspect"]
    since = "1.6.10"                # optional: beside an older httpuv, and beside `until` or a later one,
    until = "1.6.16"                # no probe has to show it
    theirs = "regular expression"   # optional: only where this is found in httpuv's side of the difference,
    ours = "regular expression"     # and this in Rookery's
    aspect = "status"               # optional: of the difference in this aspect, rather than in each
    changes.body = ["a -> b"]       # optional: of this aspect only these, as expressions for the whole of both sides with
                                    # ` -> ` between them; what the first part captures can be asked for in the second
    turn = "title case"             # optional: Rookery's side is httpuv's, turned so

Aspects that go together have one name: `result` for value, visible, shown and printed, `raised` for conditions and messages,
`response` for all that is read of an HTTP response, `app` for what an app sees, `all` for everything.
"""

import fnmatch
import re
import tomllib
from dataclasses import dataclass, field

GROUPS = {
    "result": {"value", "visible", "shown", "printed"},
    "raised": {"conditions", "messages"},
    "response": {"status", "version", "reason", "headers", "validators", "order", "case", "date", "connection", "framing", "body", "rest",
                 "fate"},
}
GROUPS["app"] = {"events", "req", "input"}
GROUPS["all"] = set.union(*GROUPS.values()) | {"frames", "stdout", "stderr", "outcome"}

FIELDS = {"id", "section", "what", "rookery", "reason", "probes", "since", "until", "theirs", "ours", "aspect", "changes", "turn"}
REQUIRED = FIELDS - {"since", "until", "theirs", "ours", "aspect", "changes", "turn"}

# What R's collector says when it finds a connection that httpuv has left open: at any time, on httpuv's side only.
COLLECTED = re.compile(r"Warning in [^\n]*:\s+closing unused connection \d+ \(\)\n")


def titled(name):
    """A header's name with each of its words capitalised, as hyper sends it."""
    return "-".join(word[:1].upper() + word[1:].lower() for word in name.split("-"))


TURNS = {
    "title case": lambda text: "\n".join(map(titled, text.split("\n"))),
    "marked as UTF-8": lambda text: text.replace("(unknown)", "(UTF-8)"),
}


def older(version, than):
    """Whether a version is older than another."""
    parts = [[int(part) for part in re.findall(r"\d+", each)] for each in (version, than)]
    return parts[0] < parts[1]


@dataclass
class Entry:
    """One entry of allowed.toml."""

    id: str
    section: str
    what: str
    rookery: str
    reason: str
    probes: list
    since: str | None = None
    until: str | None = None
    theirs: str = ""
    ours: str = ""
    aspect: str = ""
    changes: dict = field(default_factory=dict)
    turn: str | None = None

    def covers(self, probe, aspect, differences):
        """Whether the entry is about an aspect of a probe with these differences."""
        difference = differences.get(self.aspect or aspect)
        return (difference is not None
                and any(fnmatch.fnmatchcase(probe, glob) and aspect in aspects for glob, aspects in self.probes)
                and re.search(self.theirs, difference[0]) is not None and re.search(self.ours, difference[1]) is not None
                and self._is_named(aspect, *differences[aspect]))

    def _is_named(self, aspect, theirs, ours):
        """Whether the difference of an aspect is one of those that the entry names, if it names any."""
        if self.turn and TURNS[self.turn](theirs) != ours:
            return False
        if aspect == "stderr":
            theirs = COLLECTED.sub("", theirs)
        return aspect not in self.changes or any(
            re.fullmatch(change, f"{theirs} -> {ours}") is not None for change in self.changes[aspect])

    def has_to_show(self, version):
        """Whether a probe beside this httpuv has to show it."""
        return not (self.since and older(version, self.since)) and not (self.until and not older(version, self.until))


def entries(path):
    """The entries of the file, checked for their form."""
    with open(path, "rb") as file:
        tables = tomllib.load(file).get("difference", [])
    seen = set()
    for table in tables:
        name = table.get("id", "an entry without id")
        if not REQUIRED <= set(table) <= FIELDS:
            raise SystemExit(f"allowed.toml: `{name}` has {sorted(table)}; it needs {sorted(REQUIRED)}")
        if name in seen:
            raise SystemExit(f"allowed.toml: `{name}` is there twice")
        seen.add(name)
        unknown = set(table.get("changes", {})) - GROUPS["all"] | {table.get("turn", "title case")} - set(TURNS)
        if unknown:
            raise SystemExit(f"allowed.toml: `{name}` speaks of {sorted(unknown)}, which are no aspects and no turns")
        parsed = []
        for rule in table["probes"]:
            glob, _, aspects = rule.partition(":")
            names = {aspect.strip() for aspect in aspects.split(",")} - {""}
            if not names:
                raise SystemExit(f"allowed.toml: `{name}` names no aspect in `{rule}`")
            wrong = names - set(GROUPS) - GROUPS["all"]
            if wrong:
                raise SystemExit(f"allowed.toml: `{name}` speaks of {sorted(wrong)}, which are no aspects")
            parsed.append((glob.strip(), set().union(*(GROUPS.get(aspect, {aspect}) for aspect in names))))
        table["probes"] = parsed
    return [Entry(**table) for table in tables]


class Rules:
    """The entries, and which of them were shown beside a version of httpuv."""

    def __init__(self, those, version):
        self.entries = those
        self.version = version
        self.shown = set()

    @classmethod
    def read(cls, path, version):
        """The rules of the file, beside a version of httpuv."""
        return cls(entries(path), version)

    def match(self, probe, differences):
        """The entries that allow each of the differences of a probe, by aspect."""
        return {aspect: [entry for entry in self.entries if entry.covers(probe, aspect, differences)]
                for aspect in differences}

    def hit(self, those):
        """Counts entries as shown."""
        self.shown |= {entry.id for entry in those}

    def idle(self):
        """The ids of entries that a probe has to show, and none has."""
        return [entry.id for entry in self.entries if entry.id not in self.shown and entry.has_to_show(self.version)]
