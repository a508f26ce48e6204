"""`rookery serve --workers` for the rows of soak/workers.py: starting it, reading its state, ending
it, and inspecting its processes. Also clients that count the results of their requests.
"""

import collections
import http.client
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from runner import contenders  # noqa: E402
from runner.machine import TICKS, proc_field  # noqa: E402

APP = Path(__file__).with_name("rows") / "app.R"
PROGRAM = contenders.ROOKERY_LIB / "rookery" / "exec" / "rookery"
# The time within which something should happen: a worker loads R and its packages on a machine that
# may be busy.
PATIENCE_S = 90.0
CLIENTS = 8


class Skipped(Exception):
    """This machine cannot run the row; the message names the reason."""


def wait(what: str, holds: Callable[[], object], patience_s: float = PATIENCE_S) -> None:
    end = time.monotonic() + patience_s
    while not holds():
        if time.monotonic() > end:
            raise RuntimeError(f"waited in vain: {what}")
        time.sleep(0.02)


class OverUnix(http.client.HTTPConnection):
    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=PATIENCE_S)
        self.path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self.path))


class Fleet:
    """A supervisor and its workers, in a folder of their own; they end with the block."""

    def __init__(
        self, *options: object, app: Path = APP, workers: int = 3, within: tuple[str, ...] = (), home: Path | None = None,
        is_ready: bool = True, has_log: bool = False,
    ) -> None:  # fmt: skip
        self.home = home or Path(tempfile.mkdtemp(prefix="rookery-soak-"))
        self.is_ours = home is None
        self.counted = self.home / "counted"
        self.counted.touch()
        self.output, self.admin = self.home / "output", self.home / "admin"
        self.admin.unlink(missing_ok=True)
        line = [*within, PROGRAM, "serve", app, "--workers", workers, "--port", 0, "--admin", f"unix:{self.admin}", *options]
        line += [] if has_log else ["--log=none"]
        told = {"SOAK_COUNTED": self.counted, "R_LIBS": contenders.ROOKERY_LIB, "TMPDIR": self.home}
        variables = contenders.environment() | {name: str(value) for name, value in told.items()}
        with self.output.open("wb") as out:
            self.process = subprocess.Popen(
                [str(word) for word in line], env=variables, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT
            )
        self.pid, self.port = self.process.pid, 0
        try:
            if is_ready:
                self.wait("all workers are ready", lambda: self.starts() >= workers)
                address = r"^Serving on https?://127\.0\.0\.1:(\d+)"
                self.wait("the address is shown", lambda: self.find(address))
                self.port = int(self.find(address)[0])
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> "Fleet":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(PATIENCE_S)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        if self.is_ours:
            shutil.rmtree(self.home, ignore_errors=True)

    # --- what it says ---

    def said(self) -> str:
        return self.output.read_text(encoding="utf-8", errors="replace")

    def find(self, pattern: str) -> list[str]:
        return re.findall(pattern, self.said(), re.MULTILINE)

    def starts(self) -> int:
        """Returns the number of workers that have become ready so far."""
        return self.said().count(" is ready, ")

    def wait(self, what: str, holds: Callable[[], object], patience_s: float = PATIENCE_S) -> None:
        """Waits for a condition. Raises RuntimeError if it is not met in time, or the supervisor ends
        first.
        """

        def it_holds() -> bool:
            if holds():
                return True
            if self.process.poll() is not None:
                raise RuntimeError(f"the supervisor ended with {self.process.returncode}: {self.said()[-2000:]}")
            return False

        try:
            wait(what, it_holds, patience_s)
        except RuntimeError as error:
            raise RuntimeError(f"{error}\n{self.said()[-2000:]}") from error

    def told(self, path: str) -> tuple[int, str]:
        """Returns the response of the admin listener."""
        connection = OverUnix(self.admin)
        try:
            connection.request("GET", path)
            with connection.getresponse() as response:
                return response.status, response.read().decode()
        finally:
            connection.close()

    def status(self) -> dict:
        return json.loads(self.told("/status")[1])

    def workers(self) -> list[dict]:
        return self.status()["workers"]

    def pids(self) -> set[int]:
        return {worker["pid"] for worker in self.workers() if worker["pid"]}

    def ready(self) -> list[int]:
        """Returns the process ids of the workers that are ready."""
        return [worker["pid"] for worker in self.workers() if worker["state"] == "ready"]

    def metric(self, name: str) -> float:
        """Returns the sum of a metric, or the value of one of its series."""
        lines = [line.rsplit(" ", 1) for line in self.told("/metrics")[1].splitlines() if not line.startswith("#")]
        return sum(float(value) for series, value in lines if series == name or series.startswith(name + "{"))

    def reload(self, generations: int = 1) -> None:
        """Makes the supervisor replace all workers, and waits for the end of the reload."""
        wanted = self.status()["reload"]["succeeded"] + generations
        for _ in range(generations):
            self.process.send_signal(1)
        self.wait(f"{wanted} reloads", lambda: self.status()["reload"]["succeeded"] >= wanted)

    def ask(self, path: str, body: bytes | None = None) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=2 * PATIENCE_S)
        try:
            connection.request("GET" if body is None else "POST", path, body)
            with connection.getresponse() as response:
                return response.status, response.read()
        finally:
            connection.close()

    # --- what the system says ---

    def children(self) -> list[int]:
        return children(self.pid)

    def descriptors(self) -> int:
        return len(os.listdir(f"/proc/{self.pid}/fd"))

    def memory(self) -> int:
        """Returns the resident memory of the supervisor without its workers."""
        return int(proc_field(f"/proc/{self.pid}/status", "VmRSS").split()[0]) * 1024

    def cpu_seconds(self, has_children: bool) -> float:
        """Returns the CPU time of the supervisor, optionally with that of its ended children."""
        ticks = Path(f"/proc/{self.pid}/stat").read_text(encoding="utf-8").rsplit(")", 1)[1].split()[11:15]
        return sum(map(int, ticks if has_children else ticks[:2])) / TICKS

    def zombies(self) -> list[int]:
        return [pid for pid in self.children() if state(pid) == "Z"]


def children(pid: int) -> list[int]:
    with suppress(OSError):
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="utf-8").split()]
    return []


def state(pid: int) -> str:
    """Returns the state letter of a process in /proc; empty for a process that has ended."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rsplit(")", 1)[1].split()[0]
    return ""


class Clients:
    """Clients that send one request after the other on kept-alive connections, and count the results."""

    def __init__(self, fleet: Fleet, count: int = CLIENTS, ways: tuple[str, ...] = ("/", "/count")) -> None:
        self.port, self.ways, self.is_over = fleet.port, ways, False
        self.seen: collections.Counter[str] = collections.Counter()
        # The names of the answered requests that the app counts in its file.
        self.counted: set[str] = set()
        # The time of each request, and its duration.
        self.took: list[tuple[float, float]] = []
        self.lock = threading.Lock()
        self.threads = [threading.Thread(target=self._run, args=(number,), daemon=True) for number in range(count)]
        for thread in self.threads:
            thread.start()

    def __enter__(self) -> "Clients":
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self) -> None:
        self.is_over = True
        for thread in self.threads:
            thread.join()

    @property
    def total(self) -> int:
        return sum(self.seen.values())

    @property
    def failed(self) -> dict[str, int]:
        return {outcome: number for outcome, number in self.seen.items() if outcome != "200"}

    def wait_for(self, more: int) -> None:
        """Waits until `count` more requests have been answered."""
        wanted = self.seen["200"] + more
        wait(f"{more} answers", lambda: self.seen["200"] >= wanted)

    def slowest(self, since: float, until: float) -> float:
        """Returns the latencies of the requests sent in an interval."""
        with self.lock:
            return max((took for asked, took in self.took if since <= asked < until), default=0.0)

    def _run(self, number: int) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=2 * PATIENCE_S)
        at = 0
        while not self.is_over:
            at += 1
            name, path = f"{number}-{at}", self.ways[at % len(self.ways)]
            counts = path == "/count"
            asked = time.monotonic()
            try:
                connection.request("POST" if counts else "GET", f"{path}?{name}" if counts else path, b"x" if counts else None)
                with connection.getresponse() as response:
                    response.read()
                outcome = str(response.status)
            except (OSError, http.client.HTTPException) as error:
                connection.close()
                outcome = type(error).__name__
            with self.lock:
                self.seen[outcome] += 1
                self.took.append((asked, time.monotonic() - asked))
                if outcome == "200" and counts:
                    self.counted.add(name)


def ran(fleet: Fleet) -> collections.Counter[str]:
    """Returns the names that the app has counted, each as often as its handler began."""
    return collections.Counter(fleet.counted.read_text(encoding="utf-8").replace("?", "").split())
