#!/usr/bin/env python3
"""Our certificates from an authority, against Pebble, Let's Encrypt's own for tests: the ignored tests of crates/acme, and the program.

Pebble is built by Go, of the module that pebble/go.mod pins, into .local/pebble; PEBBLE names another folder with its programs. Without
Go nothing is played, which is said. Environment: CARGO_FLAGS (such as --release). Exit status: 0 all passed, or there is no Go; 1 not.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import run

HERE = Path(__file__).resolve().parent
MODULE = "github.com/letsencrypt/pebble/v2/cmd"
# Seconds for all of it, compiling not counted.
ALL_S = 600


def main() -> int:
    programs = os.environ.get("PEBBLE") or build()
    if programs is None:
        print("pebble: NOT PLAYED: there is no Go to build it with; install Go, or name the folder of its programs in PEBBLE")
        return 0
    flags = os.environ.get("CARGO_FLAGS", "").split()
    tests = ["cargo", "test", "--quiet", "--locked", *flags, "-p", "rookery-acme", "-p", "rookery-cli", "--test", "it"]
    compiled = subprocess.run([*tests, "--no-run"], cwd=run.ROOT, check=False)
    if compiled.returncode != 0:
        return 1
    try:
        done = subprocess.run([*tests, "pebble", "--", "--ignored"], cwd=run.ROOT, env={**os.environ, "PEBBLE": programs}, timeout=ALL_S, check=False)
    except subprocess.TimeoutExpired:
        raise run.RunError(f"the tests against Pebble did not end within {ALL_S} s") from None
    return int(done.returncode != 0)


def build() -> str | None:
    """The folder of its programs; `None` without Go."""
    if shutil.which("go") is None:
        return None
    out = run.ROOT / ".local" / "pebble"
    line = ["go", "build", "-o", f"{out}/", f"{MODULE}/pebble", f"{MODULE}/pebble-challtestsrv"]
    done = subprocess.run(line, cwd=HERE / "pebble", check=False)
    if done.returncode != 0:
        raise run.RunError(f"`{' '.join(line)}` failed; Go's module proxy (GOPROXY) has to be reachable")
    return str(out)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except run.RunError as error:
        print(f"pebble: {error}", file=sys.stderr)
        sys.exit(1)
