"""Starts a program as its user would, requests a page from it, and stops it."""

import contextlib
import os
import re
import signal
import subprocess
import tempfile
import time
import urllib.request
from pathlib import Path

from common import Failed

# Seconds that anything may take on a machine that is busy.
PATIENCE = 120


def children(pid: int) -> list[int]:
    """Returns the processes below a process, nearest first."""
    below: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = stat.read_text().rpartition(")")[2].split()
            below.setdefault(int(fields[1]), []).append(int(stat.parent.name))
    found = [pid]
    for parent in found:
        found.extend(below.get(parent, []))
    return found[1:]


def program_of(pid: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/exe").readlink().name
    return ""


class Serving:
    """A running server, and what it has printed."""

    def __init__(self, words: list, **options) -> None:
        self.words = [str(word) for word in words]
        self.log = tempfile.TemporaryFile("w+", errors="replace")
        self.process = subprocess.Popen(self.words, stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log, **options)

    def printed(self) -> str:
        self.log.seek(0)
        return self.log.read()

    def fail(self, what: str):
        raise Failed(f"{what}; `{' '.join(self.words)}` printed:\n{self.printed()[-3000:]}")

    def url(self) -> str:
        """Waits for the server, and returns its URL."""
        deadline = time.monotonic() + PATIENCE
        while not (found := re.search(r"Serving on (http:\S+)", self.printed())):
            if self.process.poll() is not None:
                self.fail(f"the server ended with status {self.process.returncode}")
            if time.monotonic() > deadline:
                self.fail(f"the server does not serve after {PATIENCE} s")
            time.sleep(0.1)
        return found[1]

    def stop(self) -> None:
        """Shuts the server down gracefully (SIGTERM), which must succeed."""
        # Below a script that enters a root, the server is the first process of that name.
        server = next((pid for pid in children(self.process.pid) if program_of(pid) == "rookery"), self.process.pid)
        os.kill(server, signal.SIGTERM)
        try:
            status = self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self.fail("the server does not end after SIGTERM")
        if status != 0:
            self.fail(f"the server ended with status {status} after SIGTERM")

    def kill(self) -> None:
        for pid in (*children(self.process.pid), self.process.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait()
        self.log.close()


@contextlib.contextmanager
def serving(words: list, **options):
    server = Serving(words, **options)
    try:
        yield server
    finally:
        if server.process.poll() is None:
            server.kill()


def get(url: str) -> str:
    # Not through a proxy, because the server is on this machine.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(url, timeout=PATIENCE) as response:
        return response.read().decode()


def check_serves(words: list, expected: str, path: str = "", stops: bool = True, **options) -> None:
    """Starts a server, checks that a page contains a text, and stops the server."""
    with serving(words, **options) as server:
        page = get(server.url().rstrip("/") + "/" + path)
        if expected not in page:
            server.fail(f"the page lacks {expected!r}, and is {page[:500]!r}")
        if stops:
            server.stop()
