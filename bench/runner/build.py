"""What the groups need, built into bench/out and bench/target: programs, and the files that servers serve."""

import functools
import hashlib
import os
import re
import shutil
import subprocess
from pathlib import Path

from .figures import Missing
from .machine import clean_environment

BENCH = Path(__file__).resolve().parent.parent
TREE = BENCH.parent
OUT = BENCH / "out"
TARGET = BENCH / "target"
SCENARIOS = BENCH / "scenarios"
PATCHES = BENCH / "micro" / "ablation" / "patches"

STATIC_FILES = {"10k.txt": 10 * 1024, "1m.bin": 1_000_000, "10m.bin": 10 * 1024 * 1024}
ONE_GIB = 1 << 30
# What the ablation's program is built of.
ABLATION = ("Cargo.toml", "crates", "bench/Cargo.toml", "bench/Cargo.lock", "bench/micro", "bench/contenders/hyper")
# What a figure is a figure of.
MEASURED = ("Cargo.toml", "Cargo.lock", "bench", "compat", "crates", "r")


def _run(line: list[str | Path], cwd: Path, **variables: str) -> None:
    """Raises Missing with the end of the compiler's output."""
    if shutil.which(line[0]) is None:
        raise Missing(f"{line[0]} is not installed")
    environment = clean_environment() | variables
    done = subprocess.run(line, cwd=cwd, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        tail = "\n".join((done.stdout + done.stderr).strip().splitlines()[-12:])
        raise Missing(f"`{' '.join(map(str, line))}` failed:\n{tail}")


@functools.cache
def r_object(name: str) -> Path:
    """What R loads with dyn.load(): a folder of bench/contenders or a C file of bench/load."""
    # Objects are built in a folder of their own, so that the sources stay clean.
    work, target = OUT / "objects" / name, OUT / f"{name.replace('-', '_')}.so"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    for source in [*(BENCH / "contenders" / name).glob("*.[ch]"), *(BENCH / "load").glob(f"{name}.c")]:
        shutil.copy2(source, work)
    files = sorted(path.name for path in work.glob("*.c"))
    _run(["R", "CMD", "SHLIB", "-o", target, *files], work, PKG_CFLAGS="-O2 -D_GNU_SOURCE -I.")
    return target


@functools.cache
def c_program(name: str, *flags: str) -> Path:
    """A C file of bench/load: a program, or with flags that say so a library."""
    target = OUT / (f"{name}.so" if flags else name)
    OUT.mkdir(exist_ok=True)
    source = BENCH / "load" / f"{name}.c"
    libraries = ["-lssl", "-lcrypto", "-lpthread"] if re.search(r'"(tls|h2)\.h"', source.read_text(encoding="utf-8")) else []
    _run(["cc", "-O2", *flags, "-o", target, source, *libraries], BENCH)
    return target


@functools.cache
def rust_binary(name: str, workspace: Path = BENCH, **variables: str) -> Path:
    """The binary of a micro group, with our cases and those of the contenders on crates.io, or of the contender hyper."""
    package = f"rookery-bench-{name}"
    line = ["cargo", "build", "--release", "--locked", "-p", package, "--target-dir", TARGET]
    _run(line, workspace, **variables)
    return TARGET / "release" / package


@functools.cache
def ablation_binary(cost: str) -> Path:
    """The ablation's program with one cost put back by the patch of that name; `ours` has none of them."""
    built = rust_binary("ablation") if cost == "ours" else _patched(cost)
    # All of them are built at one place, the last one over the others.
    target = OUT / "ablation" / cost
    target.parent.mkdir(parents=True, exist_ok=True)
    target.unlink(missing_ok=True)
    return Path(shutil.copy2(built, target))


def _patched(cost: str) -> Path:
    """Builds the ablation's program from a copy of what it is made of, with a patch applied."""
    copy = OUT / "patched" / cost
    shutil.rmtree(copy, ignore_errors=True)
    copy.mkdir(parents=True)
    # With their times, so that cargo builds no more than is new.
    _run(["cp", "-a", "--parents", *ABLATION, copy], TREE)
    manifest = copy / "Cargo.toml"
    manifest.write_text(manifest.read_text().replace('    "r/src/rust",\n', ""))
    # Inside a repository `git apply` would leave out what that does not track.
    outside = {"GIT_CEILING_DIRECTORIES": str(copy.parent), "GIT_DIR": os.devnull, "ROOKERY_BENCH_COST": cost}
    _run(["git", "apply", "--whitespace=nowarn", PATCHES / f"{cost}.patch"], copy, **outside)
    return rust_binary("ablation", copy / "bench", **outside)


def find_go() -> None:
    """Puts the Go of `make contenders` behind any other on the path, for this program and what it starts."""
    os.environ["PATH"] = f"{os.environ.get('PATH', '')}{os.pathsep}{TREE / '.local' / 'go' / 'go' / 'bin'}"


@functools.cache
def go_binary(group: str) -> Path:
    target = OUT / "go" / f"rookery-bench-{group}"
    _run(["go", "build", "-o", target, "."], BENCH / "micro" / group / "go")
    return target


@functools.cache
def static_folder() -> Path:
    """A folder with the files that the scenarios ask for: text that does not compress to nothing, and a GiB of zeros
    without blocks on the disk: what is measured is the server, not the disk."""
    folder = OUT / "static"
    folder.mkdir(parents=True, exist_ok=True)
    line = b"0123456789 abcdefghijklmnopqrstuvwxyz ABCDEFGHIJKLMNOPQRSTUVWXYZ\n"
    for name, size in STATIC_FILES.items():
        (folder / name).write_bytes((line * (size // len(line) + 1))[:size])
    with (folder / "1g.bin").open("ab") as file:
        file.truncate(ONE_GIB)
    return folder


@functools.cache
def certificate() -> Path:
    """A certificate for ECDSA on P-256 and its key, in one file. Every server that speaks TLS has this one."""
    target = OUT / "tls.pem"
    OUT.mkdir(exist_ok=True)
    line = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "365"]
    names = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    _run([*line, *names, "-keyout", "tls.key", "-out", "tls.crt"], OUT)
    target.write_text((OUT / "tls.crt").read_text() + (OUT / "tls.key").read_text())
    return target


def identity(library: Path) -> dict[str, str]:
    """The commit, with `+` where what is measured was changed since, and a digest of the library that R loads."""
    found = {}

    def git(*line: str) -> str:
        return subprocess.run(["git", *line], cwd=TREE, capture_output=True, text=True, check=False).stdout.strip()

    if shutil.which("git") and (TREE / ".git").exists() and (commit := git("rev-parse", "--short=10", "HEAD")):
        changed = git("status", "--porcelain", "--untracked-files=no", "--", *MEASURED)
        found["commit"] = commit + ("+" if changed else "")
    object_file = library / "rookery" / "libs" / "rookery.so"
    if object_file.exists():
        found["build"] = hashlib.sha256(object_file.read_bytes()).hexdigest()[:16]
    return found
