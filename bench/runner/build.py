"""Builds the programs of the groups into bench/out and bench/target, and writes the files that servers
serve.
"""

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
LIBRARIES = TREE / "libraries"
OUT = BENCH / "out"
TARGET = BENCH / "target"
SCENARIOS = BENCH / "scenarios"
PATCHES = BENCH / "micro" / "ablation" / "patches"

STATIC_FILES = {"10k.txt": 10 * 1024, "1m.bin": 1_000_000, "10m.bin": 10 * 1024 * 1024}
ONE_GIB = 1 << 30
# The sources of the ablation's program.
ABLATION = ("Cargo.toml", "crates", "libraries", "third-party", "bench/Cargo.toml", "bench/Cargo.lock", "bench/micro", "bench/contenders/hyper")
# The paths whose changes mark a commit as changed.
MEASURED = ("Cargo.toml", "Cargo.lock", "bench", "compat", "crates", "libraries", "r", "third-party")


def _run(line: list[str | Path], cwd: Path, **variables: str) -> None:
    """Runs a build command. Raises Missing with the end of its output."""
    if shutil.which(line[0]) is None:
        raise Missing(f"{line[0]} is not installed")
    environment = clean_environment() | variables
    done = subprocess.run(line, cwd=cwd, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        tail = "\n".join((done.stdout + done.stderr).strip().splitlines()[-12:])
        raise Missing(f"`{' '.join(map(str, line))}` failed:\n{tail}")


@functools.cache
def r_object(name: str) -> Path:
    """Returns a library for R's dyn.load(), built from a folder of bench/contenders or a C file of
    bench/load.
    """
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
    """Returns a program, or with flags such as -shared a library, built from a C file of bench/load."""
    target = OUT / (f"{name}.so" if flags else name)
    OUT.mkdir(exist_ok=True)
    source = BENCH / "load" / f"{name}.c"
    libraries = ["-lssl", "-lcrypto", "-lpthread"] if re.search(r'"(tls|h2)\.h"', source.read_text(encoding="utf-8")) else []
    _run(["cc", "-O2", *flags, "-o", target, source, *libraries], BENCH)
    return target


@functools.cache
def rust_binary(name: str, workspace: Path = BENCH, **variables: str) -> Path:
    """Returns the binary of a micro group, with our cases and those of contenders on crates.io, or the
    contender hyper.
    """
    package = f"rookery-bench-{name}"
    line = ["cargo", "build", "--release", "--locked", "-p", package, "--target-dir", TARGET]
    _run(line, workspace, **variables)
    return TARGET / "release" / package


@functools.cache
def ablation_binary(cost: str) -> Path:
    """Returns the ablation's program with the patch `cost` applied; `ours` has no patch."""
    built = rust_binary("ablation") if cost == "ours" else _patched(cost)
    # All variants are built at the same place and overwrite each other.
    target = OUT / "ablation" / cost
    target.parent.mkdir(parents=True, exist_ok=True)
    target.unlink(missing_ok=True)
    return Path(shutil.copy2(built, target))


def _patched(cost: str) -> Path:
    """Builds the ablation's program from a copy of its sources with a patch applied."""
    copy = OUT / "patched" / cost
    shutil.rmtree(copy, ignore_errors=True)
    copy.mkdir(parents=True)
    # Time stamps are kept, so that cargo builds only what is new.
    _run(["cp", "-a", "--parents", *ABLATION, copy], TREE)
    manifest = copy / "Cargo.toml"
    manifest.write_text(manifest.read_text().replace('    "r/src/rust",\n', ""))
    # Within a repository `git apply` would leave out files that are not tracked.
    outside = {"GIT_CEILING_DIRECTORIES": str(copy.parent), "GIT_DIR": os.devnull, "ROOKERY_BENCH_COST": cost}
    _run(["git", "apply", "--whitespace=nowarn", PATCHES / f"{cost}.patch"], copy, **outside)
    return rust_binary("ablation", copy / "bench", **outside)


def find_go() -> None:
    """Appends the Go of `make contenders` to the PATH of this program and its children."""
    os.environ["PATH"] = f"{os.environ.get('PATH', '')}{os.pathsep}{TREE / '.local' / 'go' / 'go' / 'bin'}"


def go_module(group: str) -> Path | None:
    """Returns the folder of a micro group's contenders in Go, or None if it has none."""
    found = [*LIBRARIES.glob(f"{group}/bench/go/go.mod"), *LIBRARIES.glob(f"*/bench/{group}/go/go.mod")]
    return found[0].parent if found else None


@functools.cache
def go_binary(group: str) -> Path:
    target = OUT / "go" / f"rookery-bench-{group}"
    _run(["go", "build", "-o", target, "."], go_module(group))
    return target


@functools.cache
def static_folder() -> Path:
    """Returns a folder with the files that the scenarios request: text that does not compress to
    nothing, and a sparse file of 1 GiB, so that the server is measured and not the disk.
    """
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
    """Returns a file with an ECDSA certificate on P-256 and its key, which all TLS servers use."""
    target = OUT / "tls.pem"
    OUT.mkdir(exist_ok=True)
    line = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "365"]
    names = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    _run([*line, *names, "-keyout", "tls.key", "-out", "tls.crt"], OUT)
    target.write_text((OUT / "tls.crt").read_text() + (OUT / "tls.key").read_text())
    return target


def identity(library: Path) -> dict[str, str]:
    """Returns the commit, with `+` if a measured path was changed since, and a digest of the libraries
    that R loads.
    """
    found = {}

    def git(*line: str) -> str:
        return subprocess.run(["git", *line], cwd=TREE, capture_output=True, text=True, check=False).stdout.strip()

    if shutil.which("git") and (TREE / ".git").exists() and (commit := git("rev-parse", "--short=10", "HEAD")):
        changed = git("status", "--porcelain", "--untracked-files=no", "--", *MEASURED)
        found["commit"] = commit + ("+" if changed else "")
    libs = library / "rookery" / "libs"
    object_files = [libs / "rookery.so", *(libs / "core").glob("librookery-*.so")]
    if all(file.exists() for file in object_files):
        found["build"] = hashlib.sha256(b"".join(file.read_bytes() for file in object_files)).hexdigest()[:16]
    return found
