"""Compiles what the groups need, into bench/out and bench/target. What does not compile is MISSING, with the reason."""

import functools
import hashlib
import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

BENCH = Path(__file__).resolve().parent.parent
TREE = BENCH.parent
OUT = BENCH / "out"
TARGET = BENCH / "target"
SCENARIOS = BENCH / "scenarios"


class BuildError(Exception):
    """A program that could not be built; the text is the end of the compiler's output."""


def _run(command: list[str], cwd: Path, extra: dict[str, str] | None = None) -> None:
    environment = dict(os.environ, **(extra or {}))
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        tail = "\n".join((done.stdout + done.stderr).strip().splitlines()[-12:])
        raise BuildError(f"`{' '.join(command)}` failed:\n{tail}")


def _is_current(target: Path, sources: list[Path]) -> bool:
    return target.exists() and all(source.stat().st_mtime <= target.stat().st_mtime for source in sources)


@functools.cache
def bare_epoll() -> Path:
    return _r_object("bare_epoll", sorted((BENCH / "peers" / "bare-epoll").glob("*.[ch]")))


@functools.cache
def r_object(name: str) -> Path:
    """A C file of bench/load that R loads with dyn.load()."""
    return _r_object(name, [BENCH / "load" / f"{name}.c"])


def _r_object(name: str, sources: list[Path]) -> Path:
    target = OUT / f"{name}.so"
    if not _is_current(target, sources):
        if shutil.which("R") is None:
            raise BuildError("R is not installed")
        # Objects are built in a folder of their own, so that the sources stay clean.
        work = OUT / "objects" / name
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir(parents=True)
        for source in sources:
            shutil.copy2(source, work)
        flags = {"PKG_CFLAGS": "-O2 -D_GNU_SOURCE -I."}
        line = ["R", "CMD", "SHLIB", "-o", str(target), *[source.name for source in sources if source.suffix == ".c"]]
        _run(line, work, flags)
    return target


@functools.cache
def c_program(name: str) -> Path:
    return _compiled(name, OUT / name)


@functools.cache
def c_preload(name: str) -> Path:
    return _compiled(name, OUT / f"{name}.so", "-shared", "-fPIC")


def _compiled(name: str, target: Path, *flags: str) -> Path:
    source = BENCH / "load" / f"{name}.c"
    if not _is_current(target, [source]):
        OUT.mkdir(exist_ok=True)
        _run(["cc", "-O2", *flags, "-o", str(target), str(source)], BENCH)
    return target


@functools.cache
def hyper() -> Path:
    return rust_binary("hyper")


def rust_binary(group: str) -> Path:
    """The Rust binary of a micro group, with our cases and those of the peers on crates.io."""
    name = f"rookery-bench-{group}"
    _run(["cargo", "build", "--release", "--locked", "-p", name, "--target-dir", str(TARGET)], BENCH)
    return TARGET / "release" / name


PATCHES = BENCH / "micro" / "ablation" / "patches"


@functools.cache
def ablation_binary(cost: str) -> Path:
    """The ablation's program with one cost put back by the patch of that name; `ours` has none of them."""
    if cost == "ours":
        built = rust_binary("ablation")
    else:
        built = _patched(cost)
    # All of them are built at one place, the last one over the others.
    target = OUT / "ablation" / cost
    target.parent.mkdir(parents=True, exist_ok=True)
    target.unlink(missing_ok=True)
    shutil.copy2(built, target)
    return target


def _patched(cost: str) -> Path:
    """Builds the ablation's program from a copy of what it is made of, with a patch applied."""
    copy = OUT / "patched" / cost
    shutil.rmtree(copy, ignore_errors=True)
    for part in ("Cargo.toml", "crates", "bench/Cargo.toml", "bench/Cargo.lock", "bench/micro", "bench/peers/hyper"):
        source, target = TREE / part, copy / part
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            # With their times, so that cargo builds no more than is new.
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("target", "node_modules"))
        else:
            shutil.copy2(source, target)
    manifest = copy / "Cargo.toml"
    manifest.write_text(manifest.read_text().replace('    "r/src/rust",\n', ""))
    # Inside a repository `git apply` would leave out what that does not track.
    outside = {"GIT_CEILING_DIRECTORIES": str(copy.parent), "GIT_DIR": os.devnull, "ROOKERY_BENCH_COST": cost}
    _run(["git", "apply", "--whitespace=nowarn", str(PATCHES / f"{cost}.patch")], copy, outside)
    line = ["cargo", "build", "--release", "--locked", "-p", "rookery-bench-ablation", "--target-dir", str(TARGET)]
    _run(line, copy / "bench", outside)
    return TARGET / "release" / "rookery-bench-ablation"


def find_go() -> None:
    """Puts the Go of `make peers` behind any other on the path, for this program and what it starts."""
    os.environ["PATH"] = f"{os.environ.get('PATH', '')}{os.pathsep}{TREE / '.local' / 'go' / 'go' / 'bin'}"


@functools.cache
def go_binary(group: str) -> Path:
    target = OUT / "go" / f"rookery-bench-{group}"
    target.parent.mkdir(parents=True, exist_ok=True)
    if shutil.which("go") is None:
        raise BuildError("Go is not installed")
    _run(["go", "build", "-o", str(target), "."], BENCH / "micro" / group / "go")
    return target


def micro_binaries(group: str) -> list[Callable[[], Path]]:
    """What builds the Rust binary of a micro group and, where the group has one, its Go binary."""
    has_go = (BENCH / "micro" / group / "go" / "go.mod").exists()
    return [lambda: rust_binary(group), *([lambda: go_binary(group)] if has_go else [])]


def is_go(binary: Path) -> bool:
    return binary.parent == OUT / "go"


def micro_cases(binary: Path) -> tuple[list[tuple[str, str]], str]:
    """The cases that the program offers, and what it says of those that it cannot offer here."""
    done = subprocess.run([str(binary), "list"], capture_output=True, text=True, check=True)
    entries = [json.loads(line) for line in done.stdout.splitlines() if line.strip()]
    return [(entry["scenario"], entry["peer"]) for entry in entries], done.stderr.strip()


# What a figure is a figure of.
MEASURED = ("Cargo.toml", "Cargo.lock", "bench", "compat", "crates", "r")


def identity(library: Path) -> dict[str, str]:
    """The commit, with `+` where what is measured was changed since, and a digest of the library that R loads."""
    found = {}
    if shutil.which("git") is not None and (TREE / ".git").exists():

        def git(*line: str) -> str:
            done = subprocess.run(["git", *line], cwd=TREE, capture_output=True, text=True, check=False)
            return done.stdout.strip()

        if commit := git("rev-parse", "--short=10", "HEAD"):
            changed = git("status", "--porcelain", "--untracked-files=no", "--", *MEASURED)
            found["commit"] = commit + ("+" if changed else "")
    object_file = library / "rookery" / "libs" / "rookery.so"
    if object_file.exists():
        found["build"] = hashlib.sha256(object_file.read_bytes()).hexdigest()[:16]
    return found
