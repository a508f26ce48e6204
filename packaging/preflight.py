"""The checks before a release. Each check reports one line: passed, failed, not checked (and why), or left for a person."""

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import debian
import licences
import sbom
import tarball
import versions
from common import Failed, run

# The crates for crates.io, in the order in which they are published: none depends on a later one.
CRATES = ("rookery-arena", "rookery-error", "rookery-websocket")
# CRAN's limit for a source package, and that of crates.io.
MOST = 10_000_000
QUICK = ("format", "layers", "words", "settings")


class Report:
    """The results so far. Prints each as it comes. `is_strict` makes what could not be built or started a failure."""

    def __init__(self, is_strict: bool = False) -> None:
        self.is_strict = is_strict
        self.failures: list[str] = []
        self.left: list[str] = []

    def passed(self, what: str) -> None:
        print(f"  passed       {what}", flush=True)

    def failed(self, what: str) -> None:
        self.failures.append(what)
        print(f"  FAILED       {what}", flush=True)

    def not_checked(self, what: str) -> None:
        print(f"  not checked  {what}", flush=True)

    def missing(self, what: str) -> None:
        """Reports what this machine could not build or start: a dry run goes on, a release does not."""
        (self.failed if self.is_strict else self.not_checked)(what)

    def left_for_a_person(self, what: str) -> None:
        self.left.append(what)
        print(f"  for a person {what}", flush=True)

    def check(self, is_so: bool, what: str, otherwise: str) -> None:
        if is_so:
            self.passed(what)
        else:
            self.failed(otherwise)


def branch(report: Report, tree: Path) -> None:
    """Checks that a release comes from `main`, and that `main` has everything that the published `main` has."""

    def succeeds(*words: str) -> bool:
        return subprocess.run(["git", "-C", str(tree), *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False).returncode == 0

    here = subprocess.run(["git", "-C", str(tree), "symbolic-ref", "--quiet", "--short", "HEAD"], stdout=subprocess.PIPE, text=True, check=False).stdout.strip()
    report.check(here == "main", "the branch is main", f"a release comes from the branch main, and this is {here or 'a detached HEAD'}: git switch main")
    # The published `main` is the one that git has last fetched.
    if not succeeds("rev-parse", "--verify", "--quiet", "origin/main^{commit}"):
        report.failed("there is no origin/main to compare with: git fetch origin")
    else:
        is_behind = not succeeds("merge-base", "--is-ancestor", "origin/main", "HEAD")
        report.check(not is_behind, "everything of origin/main is in this branch", "origin/main has commits that this branch lacks: git pull")


def before(report: Report, tree: Path, version: str, is_tagged: bool = False) -> None:
    """Checks the repository itself: nothing is uncommitted, and the version is new or `is_tagged` already."""
    changed = run(["git", "-C", tree, "status", "--porcelain"]).splitlines()
    report.check(not changed, "nothing is uncommitted", f"{len(changed)} files are not committed, and would be missing from the release: {', '.join(changed[:5])}")
    if is_tagged:
        report.passed(f"v{version} is tagged")
        return
    tags = [tag[1:] for tag in run(["git", "-C", tree, "tag", "--list", "v*"]).split() if versions.FORM.fullmatch(tag[1:])]
    newest = max(tags, key=versions.parse, default="")
    what = f"{version} is newer than the last release, {newest}" if newest else f"{version} is the first release: there is no tag v*"
    report.check(not newest or versions.parse(version) > versions.parse(newest), what, f"{version} is not newer than the last release, {newest}")


def texts(report: Report, tree: Path, version: str) -> None:
    """Checks what the raised tree says about itself."""
    wrong = versions.disagreements(tree, version)
    report.check(not wrong, f"{len(versions.named(tree))} files name the version {version}", f"these name another version: {'; '.join(wrong)}")
    entries = len(re.findall(r"^- ", versions.section(tree, version), re.M))
    report.check(entries > 0, f"CHANGELOG.md has {entries} entries for {version}", f"CHANGELOG.md has no entries below a heading `## {version}` or `{versions.UNRELEASED}`")
    if (tree / versions.NEWS).exists():
        heading = (tree / versions.NEWS).read_text().split("\n", 1)[0]
        report.check(heading == f"# rookery {version}", f"{versions.NEWS} begins with {version}", f"{versions.NEWS} begins with {heading!r}: write `# rookery {version}` or `{versions.DEVELOPMENT}`")
    measured = re.search(r"\brookery (\d+\.\d+\.\d+), later", (tree / "README.md").read_text())
    if measured and measured[1] != version:
        report.left_for_a_person(f"README.md shows figures of {measured[1]}: `make bench`, then python3 bench/run.py --readme README.md")
    for what, found in {"the maintainer in r/DESCRIPTION": debian.maintainer(tree), "`repository` in Cargo.toml": debian.homepage(tree)}.items():
        if ".invalid" in found:
            report.left_for_a_person(f"{what} is a placeholder: {found}")
        else:
            report.passed(f"{what} is {found}")


def licence(report: Report, tree: Path) -> None:
    found = licences.crates(sbom.PACKAGES, tree=tree)
    refused = licences.refused(found, tree)
    report.check(not refused, f"deny.toml permits the licences of all {len(found)} crates", f"deny.toml permits no licence of {'; '.join(refused)}")
    if shutil.which("cargo-deny"):
        done = subprocess.run(["cargo", "deny", "--offline", "check", "licenses", "bans", "sources"], cwd=tree, capture_output=True, text=True, check=False)
        report.check(done.returncode == 0, "cargo-deny: licences, duplicates, sources", f"cargo-deny:\n{done.stderr[-3000:]}")
    else:
        report.missing("by cargo-deny, which is missing: scripts/setup release")
    report.left_for_a_person("security advisories: `cargo deny check advisories` downloads them from GitHub")


def crates(report: Report, tree: Path) -> None:
    """Carries out everything of `cargo publish` but the upload (`alone` builds the tarballs), and compares the interfaces with the last release."""
    for crate in CRATES:
        done = subprocess.run(
            ["cargo", "publish", "--dry-run", "--locked", "--no-verify", "-p", crate], cwd=tree, capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            report.failed(f"cargo publish --dry-run -p {crate}:\n{done.stderr[-3000:]}")
            continue
        # Tests are not published, because they need a crate that is not.
        warnings = re.findall(r"^warning: (?!aborting upload|ignoring test ).*$", done.stderr, re.M)
        number, unit = re.search(r"([\d.]+)([KM])iB compressed", done.stderr).groups()
        size = float(number) * {"K": 1 << 10, "M": 1 << 20}[unit]
        report.check(
            size <= MOST and not warnings,
            f"cargo publish --dry-run -p {crate}: {size / 1e3:.0f} kB",
            f"{crate} has {size / 1e6:.1f} MB, of which {MOST / 1e6:.0f} are allowed; {'; '.join(warnings)}",
        )
    script(report, tree, "scripts/crates", "package", "alone")
    if run(["git", "-C", tree, "tag", "--list", "v*"]).strip():
        script(report, tree, "scripts/crates", "semver")
    else:
        report.not_checked("cargo semver-checks: no release yet that the interfaces could be compared with")


def checks(report: Report, tree: Path, is_full: bool) -> None:
    if not is_full:
        script(report, tree, "scripts/check", *QUICK)
        report.not_checked("tests, lints, portability, strangers: `--full` runs `make check test`, scripts/crates and scripts/stranger, as CI does")
        return
    script(report, tree, "make", "check", "test")
    script(report, tree, "scripts/check", "packaging", "tarball")
    script(report, tree, "scripts/crates", "docs", "no_std", "foreign", "oldest", "minimal")
    script(report, tree, "scripts/stranger")


def as_root() -> list[str]:
    """Returns the words before a command that let it run as root, if this user may do so without a password. The command then writes no bytecode
    into a tree that this user has to remove.
    """
    if os.geteuid() == 0 or not shutil.which("sudo"):
        return []
    if subprocess.run(["sudo", "--non-interactive", "true"], stdin=subprocess.DEVNULL, capture_output=True, check=False).returncode != 0:
        return []
    return ["sudo", "--non-interactive", "--preserve-env", "env", f"PATH={os.environ['PATH']}", "PYTHONDONTWRITEBYTECODE=1"]


def script(report: Report, tree: Path, *words: str, needs_root: bool = False) -> None:
    """Runs a script of the repository. Its output goes to a log, whose end is shown if it fails, and whose lines NOT RUN are reported."""
    log = tree.parent / "log" / f"{'-'.join(Path(word).name for word in words)[:60]}.log"
    log.parent.mkdir(exist_ok=True)
    with log.open("w") as out:
        line = [*(as_root() if needs_root else []), *words]
        status = subprocess.run(line, cwd=tree, stdin=subprocess.DEVNULL, stdout=out, stderr=out, check=False).returncode
    lines = log.read_text(errors="replace").splitlines()
    end = "\n".join(lines[-15:])
    report.check(status == 0, " ".join(words), f"{' '.join(words)} ended with status {status}; {log} ends with:\n{end}")
    for line in lines:
        if "NOT RUN: " in line:
            report.missing(f"by {Path(words[0]).name}: {line.partition('NOT RUN: ')[2]}")


def tarballs(report: Report, tree: Path, out: Path) -> None:
    """Builds the tarball of the R package, which is what CRAN gets, and that of rookery's httpuv, and checks their sizes."""
    for path in tarball.make(out, tree):
        size = path.stat().st_size
        report.check(size <= MOST, f"{path.name}: {size / 1e6:.1f} MB", f"{path.name} has {size / 1e6:.1f} MB, and CRAN takes {MOST / 1e6:.0f}")


def summary(path: Path) -> str:
    """Returns what the SBOM at `path` contains, in one line."""
    body = json.loads(path.read_text())
    return f"{path.name}: {len(body['components'])} components"
