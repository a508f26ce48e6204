"""A server under measurement: its process, and the requests that check it."""

import http.client
import signal
import socket
import ssl
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from .machine import TICKS, proc_field

# The shapes of a contender with TLS. `h2` is the same server, which the load generator uses with
# HTTP/2.
TLS_SHAPES = ("tls", "h2")
# The difference between the port of a server's admin listener and that of the server.
ADMIN_OFFSET = 2_000


@dataclass
class Server:
    contender: str
    port: int
    process: subprocess.Popen
    log: Path

    @property
    def protocols(self) -> list[str]:
        """Returns the protocols for load/wsload.c: `tls`, `h2` or neither."""
        return [shape for shape in TLS_SHAPES if self.contender.endswith((f"/{shape}", f"-{shape}"))]

    @property
    def scheme(self) -> str:
        return "https" if self.protocols else "http"

    @contextmanager
    def in_turn(self) -> Iterator["Server"]:
        """Resumes the server for the duration of the block, and stops it afterwards. Adds the end of
        its log to an error.
        """
        self.process.send_signal(signal.SIGCONT)
        try:
            yield self
        except RuntimeError as error:
            raise type(error)(f"{error}; {self.last_output()}") from error
        finally:
            self.process.send_signal(signal.SIGSTOP)

    @contextmanager
    def answer(
        self, method: str, path: str, body: object = None, headers: dict | None = None, limit_s: float = 30, **options
    ) -> Iterator[http.client.HTTPResponse]:
        """Sends a request and yields the response; the connection ends with the block. Raises
        RuntimeError, also for reads.
        """
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=limit_s)
        if self.scheme == "https":
            unverified = ssl._create_unverified_context()  # the certificate is made for this run
            connection = http.client.HTTPSConnection("127.0.0.1", self.port, timeout=limit_s, context=unverified)
        try:
            connection.request(method, path, body, headers or {}, **options)
            with connection.getresponse() as response:
                yield response
        except (OSError, http.client.HTTPException) as error:
            raise RuntimeError(f"no answer to {method} {path}: {error!r}") from error
        finally:
            connection.close()

    def get(self, path: str) -> str:
        """Returns the body of a response with status 200. Raises RuntimeError."""
        with self.answer("GET", path) as response:
            text = response.read().decode()
        if response.status != 200:
            raise RuntimeError(f"status {response.status} to GET {path}")
        return text

    def accepts(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
        except OSError:
            return False
        return True

    def responds(self) -> bool:
        with suppress(RuntimeError):
            return self.get("/") != ""
        return False

    def is_alive(self) -> bool:
        return self.process.poll() is None

    def cpu_seconds(self) -> float:
        """Returns the CPU time of the server and of the processes behind it, from /proc/<pid>/stat (in
        steps of 10 ms).
        """
        spent = 0
        for process in self._processes():
            # R starts with a shell script, whose commands end meanwhile.
            with suppress(OSError):
                spent += _cpu_ticks(process)
        return spent / TICKS

    def _processes(self) -> list[str]:
        """Returns the process ids of the server and of its descendants."""
        found = [str(self.process.pid)]
        for pid in found:
            # /proc lists a child under the thread that started it, so the children of all threads are
            # read.
            for path in Path(f"/proc/{pid}/task").glob("*/children"):
                # A thread may end meanwhile.
                with suppress(OSError):
                    found += path.read_text(encoding="utf-8").split()
        return found

    def memory_bytes(self, name: str, is_alone: bool = False) -> int:
        """Returns `VmHWM` (the maximum) or `VmRSS` (the current memory); `is_alone` leaves out the
        processes behind it.
        """
        processes = [str(self.process.pid)] if is_alone else self._processes()
        found = [proc_field(f"/proc/{pid}/status", name) for pid in processes]
        if not all(found):
            raise RuntimeError(f"{self.contender} has no {name}: the process ended")
        return sum(int(each.split()[0]) for each in found) * 1024

    def last_output(self) -> str:
        lines = self.log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        return " / ".join(lines[-4:])

    def stop(self) -> None:
        """Stops the server. (drogonR takes SIGTERM as the end of its own loop and leaves R running.)"""
        self.process.send_signal(signal.SIGCONT)
        self.process.terminate()
        try:
            self.process.wait(timeout=2)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def _cpu_ticks(pid: str) -> int:
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rsplit(")", 1)[1].split()
    return int(fields[11]) + int(fields[12])
