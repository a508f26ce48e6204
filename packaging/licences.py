"""Lists the crates in the program, checks their licences against deny.toml, and collects the texts of these licences.

scripts/r/licences reads the same sources for the tarball of the R package, which has more crates: those for other systems, and
those that only builds need.
"""

import hashlib
import json
import re
import tomllib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from common import ROOT, Failed, run
from program import TARGETS

TEXT = re.compile(r"^(LICEN[CS]E|COPYING|COPYRIGHT|NOTICE|UNLICENSE)", re.I)
WITHOUT = "These crates contain no text of their licence, and name it only:"
# The parts of the program that are not crates: their names, licences, authors, and files with the texts of the licences.
SCRIPTS = (("uPlot 1.6.32", "MIT", "Leon Sorokin", "crates/status/page/uplot.LICENSE"),)


@dataclass(frozen=True)
class Crate:
    """A crate that the program is linked with."""

    name: str
    version: str
    licence: str
    authors: tuple[str, ...]
    folder: Path
    repository: str
    checksum: str

    @property
    def is_changed_copy(self) -> bool:
        """Whether this is a copy of a third-party crate with changes of ours, which has no checksum."""
        return is_changed_copy(self.folder)

    @property
    def is_own(self) -> bool:
        return not self.checksum and not self.is_changed_copy


def is_changed_copy(folder: Path) -> bool:
    return folder.parent.name == "third-party"


def metadata(tree: Path, *options: str) -> dict:
    return json.loads(run(["cargo", "metadata", "--locked", "--format-version", "1", *options], cwd=tree))


def files(folder: Path) -> list[Path]:
    """Returns the files with licences in a crate. Some crates contain libraries in C, whose licences are in folders further down."""
    return sorted(file for file in folder.rglob("*") if TEXT.match(file.name) and file.is_file())


def crates(packages: list[str], targets: Iterable[str] = TARGETS, tree: Path = ROOT) -> list[Crate]:
    """Returns the crates in these packages, with the features that the packages choose, without those that only builds need."""
    words = ["cargo", "tree", "--locked", "--edges", "normal", "--prefix", "none", "--format", "{p}"]
    words += [word for name in packages for word in ("-p", name)]
    words += [word for triple in targets for word in ("--target", triple)]
    listed = run(words, cwd=tree)
    wanted = {tuple(line.split()[:2]) for line in listed.splitlines() if line.strip()}
    known = metadata(tree)["packages"]
    lock = tomllib.loads((tree / "Cargo.lock").read_text())["package"]
    checksums = {(package["name"], package["version"]): package.get("checksum", "") for package in lock}
    found = []
    for package in known:
        key = package["name"], package["version"]
        if (key[0], f"v{key[1]}") in wanted:
            found.append(
                Crate(
                    *key,
                    licence=package["license"] or "",
                    authors=tuple(package["authors"]),
                    folder=Path(package["manifest_path"]).parent,
                    repository=package["repository"] or "",
                    checksum=checksums[key],
                )
            )
    if len(found) < len(wanted):
        raise Failed(f"cargo metadata lacks {sorted(wanted - {(crate.name, f'v{crate.version}') for crate in found})}")
    return sorted(found, key=lambda crate: (crate.name, crate.version))


def is_permitted(expression: str, permitted: set[str]) -> bool:
    """Evaluates an SPDX expression: `A OR B` needs one of the licences, `A AND B` both. `A/B` is the old form of `A OR B`."""
    tokens = re.findall(r"[()]|[^\s()]+", expression.replace("/", " OR "))
    at = 0

    def term() -> bool:
        nonlocal at
        token = tokens[at]
        at += 1
        if token == "(":
            result = either()
            at += 1
            return result
        if tokens[at : at + 1] == ["WITH"]:
            token = f"{token} WITH {tokens[at + 1]}"
            at += 2
        return token in permitted

    def operands(operand: Callable[[], bool], operator: str) -> list[bool]:
        nonlocal at
        found = [operand()]
        while tokens[at : at + 1] == [operator]:
            at += 1
            found.append(operand())
        return found

    def both() -> bool:
        return all(operands(term, "AND"))

    def either() -> bool:
        return any(operands(both, "OR"))

    return bool(tokens) and either()


def refused(found: list[Crate], tree: Path = ROOT) -> list[str]:
    """Returns the crates whose licences deny.toml does not permit."""
    rules = tomllib.loads((tree / "deny.toml").read_text())["licenses"]
    exceptions = {rule["crate"]: set(rule["allow"]) for rule in rules.get("exceptions", [])}
    permitted = set(rules["allow"])
    return [
        f"{crate.name} {crate.version}: {crate.licence or 'no licence'}"
        for crate in found
        if not is_permitted(crate.licence, permitted | exceptions.get(crate.name, set()))
    ]


def texts(found: list[Crate], tree: Path = ROOT) -> str:
    """Returns the document with the crates, their authors and the texts of their licences. Each text occurs once."""
    third = [crate for crate in found if not crate.is_own]
    lines = ["This program contains the following works of others. The texts of their licences are below.", ""]
    bodies: dict[str, tuple[str, list[str]]] = {}
    without = []
    for crate in third:
        who = f"\n  Authors: {', '.join(crate.authors)}" if crate.authors else ""
        lines.append(f"{crate.name} {crate.version}\n  Licence: {crate.licence}{who}")
        found_files = files(crate.folder)
        if not found_files:
            without.append(crate)
        for file in found_files:
            body = file.read_text(encoding="utf-8", errors="replace").strip()
            key = hashlib.sha256(" ".join(body.split()).encode()).hexdigest()
            bodies.setdefault(key, (body, []))[1].append(f"{crate.name} {crate.version} ({file.relative_to(crate.folder)})")
    for name, licence, authors, file in SCRIPTS:
        lines.append(f"{name} (a script of the live page)\n  Licence: {licence}\n  Authors: {authors}")
        bodies[name] = (tree / file).read_text().strip(), [name]
    if without:
        names = ", ".join(f"{crate.name} {crate.version}" for crate in without)
        lines += ["", f"{WITHOUT} {names}"]
    for body, users in bodies.values():
        lines += ["", "-" * 80, *users, "-" * 80, "", body]
    return "\n".join(lines) + "\n"
