#!/usr/bin/env python3
"""Workers that are killed under load: what it costs is counted at the client, and nothing is left of them.

    python3 bench/soak/workers.py [seconds]          default 200; `make soak` runs it, and `make check` 12 s of it

`rookery serve --workers 3` with handlers of 5 ms (bench/soak/workers_app.R), eight clients that go on and on, and every two seconds a worker
that gets SIGKILL; every fifth time another is stopped for a second with SIGSTOP. At the end:

- no more requests have failed than workers were killed, each with 502: the one that its R had begun;
- no POST has run twice, and each that was answered has run;
- the supervisor has as many descriptors as before, no child is a zombie, and no process that a handler left behind lives.

Exit status: 0; 1 one of these does not hold.
"""

import collections
import http.client
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from runner import peers  # noqa: E402

WORKERS = 3
CLIENTS = 8
KILL_EVERY_S = 2.0
# Every so many kills another worker is stopped, for so long.
STOP_EVERY = 5
STOPPED_S = 1.0
# A worker that starts loads R and its packages, on a machine that may be busy.
READY_S = 30.0


class Clients:
    """Each asks for one thing after the other on a connection that it keeps, and says what became of it."""

    def __init__(self, port: int) -> None:
        self.port, self.is_over = port, False
        self.seen: collections.Counter[str] = collections.Counter()
        self.counted: set[str] = set()
        self.lock = threading.Lock()
        self.threads = [threading.Thread(target=self.run, args=(number,)) for number in range(CLIENTS)]

    def run(self, number: int) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        for at in range(10**9):
            if self.is_over:
                return
            name = f"{number}-{at}"
            method, path = [("GET", "/"), ("POST", f"/count?{name}")][at % 2]
            if at % 50 == 0:
                method, path = "GET", "/child"
            try:
                connection.request(method, path, b"x" if method == "POST" else None)
                with connection.getresponse() as response:
                    response.read()
                outcome = str(response.status)
            except (OSError, http.client.HTTPException) as error:
                connection.close()
                outcome = type(error).__name__
            with self.lock:
                self.seen[outcome] += 1
                if outcome == "200" and method == "POST":
                    self.counted.add(name)


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="utf-8").split()]


def state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rsplit(")", 1)[1].split()[0]


def descriptors(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


def wait(what: str, holds) -> None:
    end = time.monotonic() + READY_S
    while not holds():
        if time.monotonic() > end:
            raise RuntimeError(f"waited in vain: {what}")
        time.sleep(0.1)


def left_behind(before: set[str]) -> set[str]:
    """Processes of `sleep 1000` that were not there before."""
    found = subprocess.run(["pgrep", "-fx", "sleep 1000"], stdout=subprocess.PIPE, text=True, check=False).stdout
    return set(found.split()) - before


def run(seconds: float, folder: Path) -> list[str]:
    counted, before = folder / "counted", left_behind(set())
    counted.touch()
    port = peers._free_port()
    program = peers.ROOKERY_LIB / "rookery" / "exec" / "rookery"
    app = Path(__file__).with_name("workers_app.R")
    line = [program, "serve", app, "--workers", str(WORKERS), "--port", str(port), "--no-log"]
    variables = peers.environment() | {"SOAK_COUNTED": str(counted), "R_LIBS": str(peers.ROOKERY_LIB)}
    log = folder / "log"
    with log.open("wb") as out:
        supervisor = subprocess.Popen([str(word) for word in line], env=variables, stdout=out, stderr=subprocess.STDOUT)
    clients = Clients(port)
    try:
        ready = lambda: log.read_text(errors="replace").count("Serving as worker")  # noqa: E731
        wait("all workers are ready", lambda: ready() >= WORKERS)
        level = None
        [thread.start() for thread in clients.threads]
        kills = 0
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            time.sleep(KILL_EVERY_S)
            workers = children(supervisor.pid)
            victim = random.choice(workers)
            if kills % STOP_EVERY == STOP_EVERY - 1:
                stopped = random.choice([pid for pid in workers if pid != victim])
                os.kill(stopped, signal.SIGSTOP)
                time.sleep(STOPPED_S)
                os.kill(stopped, signal.SIGCONT)
            known = ready()
            os.kill(victim, signal.SIGKILL)
            kills += 1
            wait("the next is ready", lambda known=known: ready() > known)
            level = level or descriptors(supervisor.pid)
        clients.is_over = True
        [thread.join() for thread in clients.threads]
        time.sleep(1)
        return judge(clients, kills, counted, descriptors(supervisor.pid) - level, supervisor, before)
    finally:
        clients.is_over = True
        supervisor.terminate()
        supervisor.wait(60)


def judge(clients: Clients, kills: int, counted: Path, more: int, supervisor: subprocess.Popen, before: set[str]) -> list[str]:
    total, good = sum(clients.seen.values()), clients.seen["200"]
    failed = {outcome: number for outcome, number in clients.seen.items() if outcome != "200"}
    runs = collections.Counter(counted.read_text(encoding="utf-8").replace("?", "").split())
    twice = [name for name, number in runs.items() if number > 1]
    print(f"{kills} workers were killed, {total} requests, failed: {failed or 'none'}; descriptors: {more:+}")
    found = []
    if total - good > kills or set(failed) - {"502"}:
        found.append(f"{kills} kills cost {failed}")
    if twice:
        found.append(f"ran twice: {twice[:5]}")
    if lost := clients.counted - set(runs):
        found.append(f"answered, and never ran: {sorted(lost)[:5]}")
    if more > 0:
        found.append(f"{more} descriptors more than after the first kill")
    if zombies := [pid for pid in children(supervisor.pid) if state(pid) == "Z"]:
        found.append(f"zombies: {zombies}")
    supervisor.terminate()
    supervisor.wait(60)
    if left := left_behind(before):
        found.append(f"processes that handlers left behind live: {sorted(left)[:5]}")
    return found


def main() -> int:
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 200.0
    with tempfile.TemporaryDirectory() as folder:
        found = run(seconds, Path(folder))
    for each in found:
        print(f"FAILED: {each}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
