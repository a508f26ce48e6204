#!/usr/bin/env python3
"""Drives Debian's httpuv and Rookery's with the same apps and the same bytes, and compares what comes out.

    ROOKERY_LIB=<library> python3 tests/differential/run.py [--only GLOB] [--list] [--show] [--json FILE] [--jobs N]

Differences are allowed by allowed.toml only. The last three lines are the numbers of probes, of those that are equal in
every aspect, and of those whose differences are all allowed. Exits with 1 when a probe differs in another way, and when
an entry of allowed.toml is about nothing.
"""

import argparse
import difflib
import fnmatch
import json
import os
import queue
import sys
import tempfile
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)

import allowed  # noqa: E402
import probes  # noqa: E402
import sides  # noqa: E402
import site_files  # noqa: E402


def run_on(side, probe, into):
    """Puts the aspects of a probe on one side `into` the list."""
    try:
        side.ready()
        if probe.alone:
            side.stop()
            side.ready()
        side.output()
        aspects = probe.run(side)
        aspects["stdout"], aspects["stderr"] = side.output()
        aspects["outcome"] = "returned"
        aspects = {name: side.normal(text) for name, text in aspects.items()}
        if probe.alone:
            side.stop()
    except sides.Died as how:
        aspects = {"outcome": side.died(str(how))}
    except Exception as error:  # noqa: BLE001 - a defect of the suite, told with the probe that shows it
        side.stop()
        aspects = {"outcome": f"the suite failed: {type(error).__name__}: {error}"}
    into.append(aspects)


def compared(pair, probe):
    """The aspects that differ, as {aspect: (theirs, ours)}."""
    results = ([], [])
    threads = [threading.Thread(target=run_on, args=(side, probe, into)) for side, into in zip(pair, results)]
    for thread in threads:
        thread.start()
        if probe.apart:
            thread.join()
    for thread in threads:
        thread.join()
    theirs, ours = results[0][0], results[1][0]
    if theirs["outcome"] != "returned" or ours["outcome"] != "returned":
        if theirs["outcome"] == ours["outcome"] and not theirs["outcome"].startswith("the suite failed"):
            return {}
        return {"outcome": (theirs["outcome"], ours["outcome"])}
    if theirs.get("status") != ours.get("status"):
        # Another answer has other headers.
        theirs, ours = ({name: text for name, text in side.items() if name not in FOLLOWS} for side in (theirs, ours))
    elif theirs.get("headers") != ours.get("headers"):
        theirs, ours = common(theirs, ours), common(ours, theirs)
    return {name: (theirs.get(name, ""), ours.get(name, ""))
            for name in sorted({*theirs, *ours}) if theirs.get(name, "") != ours.get(name, "")}


# What takes longer than this, in seconds, is told: the whole has to end in three minutes.
SLOW = 20

# How often a probe may differ before it is said to differ.
TIMES = 5

# Aspects of an answer that say nothing when its status differs.
FOLLOWS = ("version", "reason", "headers", "validators", "order", "case", "date", "connection", "framing")


def common(one, other):
    """The aspects of one side, with the order and the case of those headers that both sides sent."""
    shared = set(one["order"].splitlines()) & set(other["order"].splitlines())
    kept = {name: "\n".join(line for line in one[name].splitlines() if line.lower() in shared) for name in ("order", "case")}
    return {**one, **kept}


def worker(todo, found, environments, site, rules):
    """Runs the probes of a queue on a pair of processes."""
    pair = [sides.Side(name, environment, site) for name, environment in zip(("httpuv", "rookery"), environments)]
    try:
        while True:
            try:
                probe = todo.get_nowait()
            except queue.Empty:
                return
            began = time.monotonic()
            # A busy machine can make a wait too short, and show httpuv's own races (a connection that its R side has
            # forgotten before it is closed); what is real is there every time.
            for times in range(1, TIMES + 1):
                differences = compared(pair, probe)
                if all(rules.match(probe.id, differences).values()):
                    break
                if times > 1:
                    time.sleep(times)
            found[probe.id] = (differences, times)
            if time.monotonic() - began > SLOW:
                print(f"  {probe.id}: took {time.monotonic() - began:.0f} s", flush=True)
    finally:
        for side in pair:
            side.stop()


def explained(theirs, ours):
    """A difference as lines."""
    return "\n".join(f"      {line}" for line in difflib.unified_diff(
        theirs.splitlines(), ours.splitlines(), "httpuv", "rookery", lineterm="", n=1))


def main():
    """Returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", action="append", help="run the probes whose id matches this glob")
    parser.add_argument("--list", action="store_true", help="print the ids of the probes")
    parser.add_argument("--show", action="store_true", help="print allowed differences as well")
    parser.add_argument("--json", metavar="FILE", help="write the differences into a file as well")
    parser.add_argument("--jobs", type=int, default=4, help="pairs of processes (default 4)")
    options = parser.parse_args()

    chosen = [probe for probe in probes.every()
              if not options.only or any(fnmatch.fnmatchcase(probe.id, glob) for glob in options.only)]
    if options.list:
        print("\n".join(probe.id for probe in chosen))
        return 0
    theirs, ours, version, names = sides.both(os.environ.get("ROOKERY_LIB", ".local/lib"))
    rules = allowed.Rules.read(os.path.join(HERE, "allowed.toml"), version)
    skipped = [probe.id for probe in chosen if probe.needs and probe.needs not in names]
    chosen = [probe for probe in chosen if probe.id not in skipped]
    print(f"httpuv {version} is the measure; {len(chosen)} probes, {len(skipped)} for a later httpuv", flush=True)

    todo, found = queue.SimpleQueue(), {}
    for probe in chosen:
        todo.put(probe)
    with tempfile.TemporaryDirectory(prefix="differential-site-") as folder:
        site = site_files.write(folder)
        threads = [threading.Thread(target=worker, args=(todo, found, (theirs, ours), site, rules))
                   for _ in range(options.jobs)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump({id: differences for id, (differences, _) in found.items()}, file, indent=1)
    equal = covered = failures = 0
    for probe in chosen:
        differences, times = found[probe.id]
        entries = rules.match(probe.id, differences)
        rules.hit(entry for matching in entries.values() for entry in matching)
        bad = [aspect for aspect, matching in entries.items() if not matching]
        if times > 1 and not bad:
            print(f"  {probe.id}: did not differ when asked for the {times}. time")
        if not differences:
            equal += 1
        elif not bad:
            covered += 1
        else:
            failures += 1
        for aspect in differences if options.show else bad:
            names = ", ".join(entry.id for entry in entries[aspect])
            print(f"  {probe.id}: {aspect} {'is allowed by ' + names if names else 'DIFFERS'}")
            print(explained(*differences[aspect]))
    idle = [] if options.only else rules.idle()
    for entry in idle:
        print(f"  allowed.toml: no probe shows `{entry}`")
    if failures:
        print(f"{failures} probes differ in ways that allowed.toml has no entry for")
    print(f"entries {len(rules.entries)}\nskipped {len(skipped)}")
    print(f"probes {len(chosen)}\nequal {equal}\nallowed {covered}")
    return 1 if failures or idle or not chosen else 0


if __name__ == "__main__":
    sys.exit(main())
