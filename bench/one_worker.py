#!/usr/bin/env python3
"""Measures what the supervisor costs if there is one worker: its memory, and the time until the first response.

    bench/one_worker.py [--runs 31] [--instructions]

Starts `rookery serve` and the same R process without the program in turns. Prints the medians of the times from the
start to the first response, and the anonymous memory of the supervisor after a thousand requests. The exit status is 1
if either exceeds its limit of 15 ms or 3 MB. With --instructions it also counts, with callgrind, the instructions of the
R process for each request, without a supervisor but with an admin listener, and as the only worker, and fails if the
worker needs over 0.5 % more. R's heap is so large there that it is never collected, because the time of a collection
depends on the size of the heap at the start. How often the I/O thread polls for events within a request depends on how the
system schedules the two threads, and not on the supervisor. Each process is therefore counted several times, and the two
are compared at an equal number of polls, with the instructions of a poll from a least-squares fit. ROOKERY_LIB is the
library with the R package.
"""

import argparse
import http.client
import os
import re
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

LIBRARY = Path(os.environ.get("ROOKERY_LIB", Path(__file__).resolve().parent.parent / ".local" / "lib")).resolve()
PACKAGE = LIBRARY / "rookery"
MOST_MILLISECONDS, MOST_MEGABYTES, MOST_INSTRUCTIONS = 15, 3, 0.005
COUNTS = 5
# The function by which the I/O thread polls the system for events. An installed library has no names of its own functions.
POLL = "epoll_wait"
APP = "function(req) list(status = 200L, headers = list(), body = 'hello')"
PATIENCE = 60


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def supervised(folder, port):
    return [str(PACKAGE / "exec" / "rookery"), "serve", folder, "--port", str(port), "--log=none"], {}


def alone(folder, port):
    asked = f"target={folder}\nhost=127.0.0.1\nport={port}\nlog=nothing\nlog_format=common\n"
    command = ["R", "--no-echo", "--no-restore", "--no-save", f"--file={PACKAGE / 'serve' / 'cli.R'}"]
    return command, {"ROOKERY_INTERNAL_SETTINGS": asked, "R_LIBS": str(PACKAGE / "compat")}


def answer(port, count=1):
    for _ in range(count):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
        connection.request("GET", "/")
        body = connection.getresponse().read()
        if body != b"hello":
            # R first tries the port with a server that sends another response.
            raise OSError(f"another answer than expected: {body!r}")
        connection.close()


def started(how, folder):
    """Returns the process, its port, and the milliseconds until its first response."""
    port = free_port()
    command, environment = how(folder, port)
    began = time.monotonic()
    process = subprocess.Popen(
        command, cwd=folder, env=os.environ | environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )
    while True:
        try:
            answer(port)
            return process, port, (time.monotonic() - began) * 1000
        except OSError:
            if process.poll() is not None or time.monotonic() - began > PATIENCE:
                raise SystemExit(f"{command[0]} does not serve") from None
            time.sleep(0.001)


def end(process):
    process.send_signal(signal.SIGTERM)
    process.wait(PATIENCE)


def anonymous_megabytes(pid):
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon:")) * 1024 / 1e6


def callgrind(folder):
    """Returns a script named `R` that makes callgrind run R, and the folder for its results."""
    results = Path(tempfile.mkdtemp(dir=folder))
    script = results / "R"
    # The pipes of callgrind are in a folder of this program, because a worker has a temporary
    # folder of its own.
    script.write_text(
        f'#!/bin/sh\nexec {shutil.which("R")} -d "valgrind --tool=callgrind --fair-sched=yes -q '
        f'--callgrind-out-file={results}/out.%p --vgdb-prefix={results}/vgdb" "$@"\n'
    )
    script.chmod(0o755)
    return results


def dump(results, pid):
    """Makes callgrind write its counts since the last time, and returns the instructions and the calls of POLL."""
    before = set(results.glob("out.*"))
    subprocess.run(["callgrind_control", f"--vgdb-prefix={results}/vgdb", "-d", str(pid)], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        for file in set(results.glob("out.*")) - before:
            text = file.read_text(errors="replace")
            total = re.search(r"^totals: (\d+)", text, re.MULTILINE)
            if total:
                # The name of a function is written once, and its number afterwards.
                number = re.search(rf"fn=\((\d+)\) {re.escape(POLL)}$", text, re.MULTILINE)[1]
                calls = re.findall(rf"^cfn=\({number}\).*\ncalls=(\d+)", text, re.MULTILINE)
                return int(total[1]), sum(map(int, calls))
        time.sleep(0.1)
    raise SystemExit("callgrind has written nothing")


def r_process(results):
    """Returns the process id of R under callgrind."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if f"--callgrind-out-file={results}/out.%p".encode() in words and b"R" not in words[0].split(b"/"):
            return int(folder.name)
    raise SystemExit("R does not run under callgrind")


def instructions(how, folder, requests=2000):
    """Returns the instructions and the polls of the R process for each request over one connection."""
    results = callgrind(folder)
    admin, port = free_port(), free_port()
    command, environment = how(folder, port)
    if how is supervised:
        command += ["--admin", f"127.0.0.1:{admin}", "--start-timeout", "300s"]
    else:
        command[0] = str(results / "R")
        environment["ROOKERY_INTERNAL_SETTINGS"] += f"admin=127.0.0.1:{admin}\n"
    environment |= {"PATH": f"{results}:{os.environ['PATH']}", "R_NSIZE": "20000000", "R_VSIZE": "1G"}
    process = subprocess.Popen(
        command, cwd=folder, env=os.environ | environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )
    try:
        until = time.monotonic() + PATIENCE
        while True:
            try:
                answer(port)
                break
            except OSError:
                if time.monotonic() > until:
                    raise SystemExit(f"{command[0]} does not serve under callgrind") from None
                time.sleep(0.1)
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)

        def ask(count):
            for _ in range(count):
                connection.request("GET", "/")
                connection.getresponse().read()

        # The front end has passed accepting to the worker by then.
        ask(50)
        time.sleep(2)
        connection.close()
        ask(500)
        pid = r_process(results)
        dump(results, pid)
        ask(requests)
        counted = dump(results, pid)
        connection.close()
        return [count / requests for count in counted]
    finally:
        end(process)


def at_equal_polls(counts):
    """Returns the instructions of each way to serve, as if each had polled as often as all did on average.

    `counts` has the instructions and polls of each count for each way to serve.
    """
    means = [[statistics.mean(column) for column in zip(*way)] for way in counts]
    deviations = [
        (instructions - mean[0], polls - mean[1]) for way, mean in zip(counts, means) for instructions, polls in way
    ]
    per_poll = sum(instructions * polls for instructions, polls in deviations) / sum(polls**2 for _, polls in deviations)
    polls = statistics.mean(mean[1] for mean in means)
    return [instructions - per_poll * (own - polls) for instructions, own in means]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=31)
    parser.add_argument("--instructions", action="store_true", help="also count instructions; needs valgrind")
    asked = parser.parse_args()
    folder = tempfile.mkdtemp(prefix="rookery-one-worker-")
    try:
        Path(folder, "app.R").write_text(APP)
        times = {supervised: [], alone: []}
        for run in range(asked.runs + 1):
            for how, taken in times.items():
                process, _, milliseconds = started(how, folder)
                end(process)
                # The first run of each reads files that are not in memory yet.
                if run > 0:
                    taken.append(milliseconds)
        process, port, _ = started(supervised, folder)
        answer(port, 1000)
        memory = anonymous_megabytes(process.pid)
        end(process)
        counted = []
        for _ in range(COUNTS if asked.instructions else 0):
            counted.append([instructions(how, folder) for how in (alone, supervised)])
            print("instructions and polls: alone {:.0f}, {:.2f}; the only worker {:.0f}, {:.2f}".format(*counted[-1][0], *counted[-1][1]), flush=True)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    medians = {how: statistics.median(taken) for how, taken in times.items()}
    longer = medians[supervised] - medians[alone]
    print(f"start-up, medians of {asked.runs}: supervised {medians[supervised]:.1f} ms, alone {medians[alone]:.1f} ms, {longer:+.1f} ms")
    print(f"anonymous memory of the supervisor after 1000 requests: {memory:.2f} MB")
    is_too_much = longer > MOST_MILLISECONDS or memory > MOST_MEGABYTES
    if counted:
        by_itself, worker = at_equal_polls(list(zip(*counted)))
        more = worker / by_itself - 1
        is_too_much |= more > MOST_INSTRUCTIONS
        print(f"instructions of R for each request at equal polls: alone {by_itself:.0f}, the only worker {worker:.0f}, {more:+.2%}")
    return 1 if is_too_much else 0


if __name__ == "__main__":
    sys.exit(main())
