#!/usr/bin/env python3
"""Measures what a running profile (`rookery profile`) costs: the processor time of a worker for each request.

    bench/profile_cost.py [--rounds 9]

Serves an app with one worker, and sends requests one after the other, alternately without and with a running profile: to a
handler that returns at once, and to one that computes for about a millisecond in R functions with known lines. Prints, for
both, the medians of the processor time of the worker process for a request and the median of the ratios of adjacent
rounds. The exit status is 1 if a ratio exceeds 1.03. Processor time does not depend on what else the machine does, apart
from its caches. ROOKERY_LIB is the library with the R package.
"""

import argparse
import http.client
import json
import os
import re
import signal
import socket
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

LIBRARY = Path(os.environ.get("ROOKERY_LIB", Path(__file__).resolve().parent.parent / ".local" / "lib")).resolve()
PROGRAM = LIBRARY / "rookery" / "exec" / "rookery"
MOST = 1.03
PATIENCE = 60
APP = """
step <- function(x) {
  y <- x * 2
  sum(y)
}
work <- function(n) {
  total <- 0
  for (i in seq_len(n)) {
    total <- total + step(i)
  }
  total
}
function(req) {
  if (req$PATH_INFO == "/work") work(3000)
  list(status = 200L, headers = list(), body = "hello")
}
"""
# The path and the number of requests of a round.
HANDLERS = {"hello": ("/", 3000), "work": ("/work", 400)}


class Admin(http.client.HTTPConnection):
    """A connection to the admin socket of the server."""

    def __init__(self, path):
        super().__init__("localhost", timeout=PATIENCE)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(PATIENCE)
        self.sock.connect(self.path)

    def ask(self, method, path):
        self.request(method, path)
        response = self.getresponse()
        body = response.read()
        # The server closes a connection that is idle for as long as a round may take.
        self.close()
        if response.status >= 300:
            raise SystemExit(f"{method} {path}: {response.status} {body.decode()}")
        return json.loads(body) if body.startswith(b"{") else body


def processor_ns(pid):
    return sum(int(task.joinpath("schedstat").read_text().split()[0]) for task in Path(f"/proc/{pid}/task").iterdir())


def send(connection, path, count):
    for _ in range(count):
        connection.request("GET", path)
        if connection.getresponse().read() != b"hello":
            raise SystemExit("another response than expected")


def wait(admin, is_it):
    until = time.monotonic() + PATIENCE
    while not is_it(state := admin.ask("GET", "/live/profile")):
        if time.monotonic() > until:
            raise SystemExit(f"nothing happens: {state}")
        time.sleep(0.05)
    return state


def round_of(connection, admin, pid, path, count, is_profiled):
    """Returns the microseconds of processor time for a request."""
    if is_profiled:
        admin.ask("POST", "/live/actions/profile?seconds=60")
        wait(admin, lambda state: state["workers"] and state["workers"][0]["state"] == "running")
    # The processor slows down while the profile is being started.
    send(connection, path, count // 4)
    before = processor_ns(pid)
    send(connection, path, count)
    used = (processor_ns(pid) - before) / count / 1000
    if is_profiled:
        admin.ask("POST", "/live/actions/stop-profile")
        state = wait(admin, lambda state: state["state"] == "finished")
        # A profile that records nothing would cost nothing.
        expected = used * count / 1e4 / 4
        if state["summary"]["samples"] < expected:
            raise SystemExit(f"the profile has only {state['summary']['samples']} samples")
    return used


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    rounds = parser.parse_args().rounds
    failed = False
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "app.R").write_text(APP)
        socket_path = str(Path(folder, "admin"))
        server = subprocess.Popen(
            [PROGRAM, "serve", folder, "--port", "0", "--log=none", "--admin", f"unix:{socket_path}"],
            stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        )
        try:
            port = next(int(found[1]) for line in server.stderr if (found := re.search(r"Serving on http://[^:]+:(\d+)", line)))
            admin = Admin(socket_path)
            pid = admin.ask("GET", "/status")["workers"][0]["pid"]
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
            for name, (path, count) in HANDLERS.items():
                send(connection, path, count)
                pairs = []
                for at in range(rounds):
                    # The order of the two alternates, so that a trend of the machine favours
                    # neither.
                    order = (False, True) if at % 2 == 0 else (True, False)
                    found = {on: round_of(connection, admin, pid, path, count, on) for on in order}
                    pairs.append((found[False], found[True]))
                off, on = (statistics.median(column) for column in zip(*pairs))
                ratio = statistics.median(after / before for before, after in pairs)
                print(f"{name}: {off:.1f} us without, {on:.1f} us with a profile, ratio {ratio:.4f} (at most {MOST})")
                failed |= ratio > MOST
        finally:
            server.send_signal(signal.SIGTERM)
            server.wait(PATIENCE)
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
