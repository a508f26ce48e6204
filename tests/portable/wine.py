#!/usr/bin/env python3
"""Runs test programs for Windows under Wine, except the tests of a list.

    tests/portable/wine.py TARGET SKIPPED PACKAGE[:TEST] ...

TARGET is the Rust target, and SKIPPED a file with a line `name:  reason` for
each test that Wine cannot run. PACKAGE stands for the unit tests of a crate,
and PACKAGE:TEST for one of its test programs.

Wine is slow and serves all processes from one thread, so a test that measures
time may fail beside others. Every test that has not passed runs once more
alone. A test that does not end is killed after a time and counts as failed.
"""

import json
import os
import re
import subprocess
import sys

# The seconds after which a whole program, or one test, is killed.
WHOLE = int(os.environ.get("WINE_TIMEOUT", "1500"))
ALONE = int(os.environ.get("WINE_TIMEOUT_ALONE", "180"))
RESULT = re.compile(r"^test (\S+) \.\.\. (?:.*\s)?(ok|FAILED|ignored)", re.M)


def skipped(path):
    """Returns the names of the tests in the list, each with its reason."""
    with open(path) as lines:
        named = [line.strip() for line in lines if line.strip() and not line.startswith("#")]
    return dict(line.split(":  ", 1) for line in named)


def built(target, package, test):
    """Builds a test program and returns its path."""
    what = ["--test", test] if test else ["--lib"]
    command = ["cargo", "test", "--locked", "--no-run", "--target", target, "-p", package, *what]
    done = subprocess.run([*command, "--message-format=json"], stdout=subprocess.PIPE, check=True)
    messages = [json.loads(line) for line in done.stdout.splitlines() if line.startswith(b"{")]
    programs = [message["executable"] for message in messages if message.get("executable")]
    return programs[-1]


def run(program, arguments, seconds):
    """Runs a program under Wine. Returns what it printed, also if it was killed."""
    manifest = os.path.join("crates", "server")
    process = subprocess.Popen(
        ["wine", program, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        cwd=manifest,
        text=True,
        errors="replace",
    )
    try:
        return process.communicate(timeout=seconds)[0]
    except subprocess.TimeoutExpired:
        process.kill()
        return process.communicate()[0] + f"\nkilled after {seconds} s\n"


def failures(program, skip):
    """Runs the tests of a program, and returns what those print that fail twice."""
    names = re.findall(r"^(\S+): test$", run(program, ["--list"], 60), re.M)
    unknown = [name for name in skip if name in names]
    arguments = [word for name in unknown for word in ("--skip", name)]
    said = run(program, ["--test-threads=4", *arguments], WHOLE)
    passed = {name for name, result in RESULT.findall(said) if result != "FAILED"}
    again = [name for name in names if name not in passed and name not in skip]
    failed = {}
    for name in again:
        said = run(program, ["--exact", name, "--test-threads=1"], ALONE)
        if (name, "ok") not in RESULT.findall(said):
            failed[name] = said
    count = len(names) - len(unknown)
    print(f"  {count} tests, {len(again)} again, {len(failed)} failed, {len(unknown)} left out")
    for name in failed:
        print(f"  failed: {name}")
    return failed


def main():
    target, listed, *programs = sys.argv[1:]
    skip = skipped(listed)
    failed = {}
    for name in programs:
        package, _, test = name.partition(":")
        print(f"wine: {name}", flush=True)
        failed |= failures(built(target, package, test), skip)
    for name, said in failed.items():
        print(f"\n== {name}\n{said}")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
