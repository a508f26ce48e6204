"""The places that name the version of Rookery: reads and raises them."""

import re
from datetime import date
from pathlib import Path

from common import Failed

FORM = re.compile(r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)")
# The files that contain the version, each with the text around it, which must occur exactly once.
PLACES = (
    ("Cargo.toml", r'(\[workspace\.package\]\nversion = ")([^"]+)(")'),
    ("r/DESCRIPTION", r"(^Version: )(\S+)($)"),
    ("compat/httpuv/DESCRIPTION", r"(\brookery \(>= )([^)]+)(\))"),
    ("r/vignettes/from-httpuv.Rmd", r"(rookery_)([0-9.]+)(\.tar\.gz)"),
    ("docs/operations.md", r"(^rookery )([0-9.]+)(: Shiny app)"),
)
# In lock files, each crate of ours has an entry. Those with 0.0.0 are of tests and never published.
LOCKS = ("Cargo.lock", "fuzz/Cargo.lock", "bench/Cargo.lock")
LOCKED = re.compile(r'(^name = "rookery-[^"]+"\nversion = ")((?!0\.0\.0")[^"]+)(")', re.M)
CHANGELOG, UNRELEASED = "CHANGELOG.md", "## Unreleased"
NEWS, DEVELOPMENT = "r/NEWS.md", "# rookery (development version)"


def parse(text: str) -> tuple[int, int, int]:
    found = FORM.fullmatch(text)
    if not found:
        raise Failed(f"{text!r} is not a version: write X.Y.Z, for example 0.2.0")
    return tuple(map(int, found.groups()))


def named(tree: Path) -> dict[str, set[str]]:
    """Returns the versions that each file names."""
    result = {}
    for name, pattern in PLACES:
        found = re.findall(pattern, (tree / name).read_text(), re.M)
        if len(found) != 1:
            raise Failed(f"{name} names the version {len(found)} times where packaging/versions.py looks for one: {pattern}")
        result[name] = {found[0][1]}
    for name in LOCKS:
        # The lock file of a workspace that does not use our crates has none.
        if (tree / name).exists():
            result[name] = {version for _, version, _ in LOCKED.findall((tree / name).read_text())}
    return result


def disagreements(tree: Path, version: str) -> list[str]:
    """Returns the places that name another version."""
    return [f"{name} has {', '.join(sorted(found))}" for name, found in named(tree).items() if found - {version}]


def section(tree: Path, version: str) -> str:
    """Returns the text of the version's section in the changelog, or an empty text."""
    text = (tree / CHANGELOG).read_text()
    found = re.search(rf"^## {re.escape(version)}(?: \([^)]*\))?\n(.*?)(?=^## |\Z)", text, re.M | re.S)
    return found[1].strip() if found else ""


def raise_to(tree: Path, version: str, day: date) -> None:
    """Writes the version into all places, and gives the unreleased changes its name."""
    named(tree)
    for name, pattern in PLACES:
        path = tree / name
        path.write_text(re.sub(pattern, rf"\g<1>{version}\g<3>", path.read_text(), flags=re.M))
    for name in LOCKS:
        path = tree / name
        if path.exists():
            path.write_text(LOCKED.sub(rf"\g<1>{version}\g<3>", path.read_text()))
    headings = {CHANGELOG: (UNRELEASED, f"## {version} ({day.isoformat()})"), NEWS: (DEVELOPMENT, f"# rookery {version}")}
    for name, (before, after) in headings.items():
        path = tree / name
        if path.exists():
            path.write_text(re.sub(rf"^{re.escape(before)}$", after, path.read_text(), count=1, flags=re.M))
