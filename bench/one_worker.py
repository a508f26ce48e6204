#!/usr/bin/env python3
"""Measures what the supervisor costs if there is one worker: its memory, and the time until the first response.

    bench/one_worker.py [--runs 31] [--before <library>]

Starts `rookery serve` and the same R process without the program in turns. Prints the medians of the times from the
start to the first response, and the anonymous memory of the supervisor after a thousand requests. The exit status is 1
if either exceeds its limit of 15 ms or 3 MB. With --before, it also starts the program of an earlier build in that
library, and the exit status is 1 if this build takes over 15 ms longer. ROOKERY_LIB is the library with the R package.
"""

import argparse
import http.client
import os
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

LIBRARY = Path(os.environ.get("ROOKERY_LIB", Path(__file__).resolve().parent.parent / ".local" / "lib")).resolve()
PACKAGE = LIBRARY / "rookery"
MOST_MILLISECONDS, MOST_MEGABYTES = 15, 3
APP = "function(req) list(status = 200L, headers = list(), body = 'hello')"
PATIENCE = 60


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def supervised(folder, port, package=PACKAGE):
    return [str(package / "exec" / "rookery"), "serve", folder, "--port", str(port), "--log=none"], {}


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


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=31)
    parser.add_argument("--before", type=Path, help="a library with an earlier build")
    asked = parser.parse_args()
    ways = {"supervised": supervised, "alone": alone}
    if asked.before:
        ways["before"] = partial(supervised, package=asked.before.resolve() / "rookery")
    folder = tempfile.mkdtemp(prefix="rookery-one-worker-")
    try:
        Path(folder, "app.R").write_text(APP)
        times = {name: [] for name in ways}
        for run in range(asked.runs + 1):
            for name, taken in times.items():
                process, _, milliseconds = started(ways[name], folder)
                end(process)
                # The first run of each reads files that are not in memory yet.
                if run > 0:
                    taken.append(milliseconds)
        process, port, _ = started(supervised, folder)
        answer(port, 1000)
        memory = anonymous_megabytes(process.pid)
        end(process)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    medians = {name: statistics.median(taken) for name, taken in times.items()}
    longer = {name: medians["supervised"] - median for name, median in medians.items() if name != "supervised"}
    print(f"start-up, medians of {asked.runs}: {', '.join(f'{name} {median:.1f} ms' for name, median in medians.items())}")
    print(f"supervised takes longer: {', '.join(f'{more:+.1f} ms than {name}' for name, more in longer.items())}")
    print(f"anonymous memory of the supervisor after 1000 requests: {memory:.2f} MB")
    return 1 if max(longer.values()) > MOST_MILLISECONDS or memory > MOST_MEGABYTES else 0


if __name__ == "__main__":
    sys.exit(main())
