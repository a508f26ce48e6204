"""The servers of the R groups: how each is started, watched and stopped.

Every server is its own process with its output in bench/out/log. While another peer is measured it is stopped with
SIGSTOP, so that a peer that polls while idle takes nothing from its rivals.
"""

import http.client
import itertools
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from . import build
from .machine import SERVER_CORE, clean_environment, pinned, run

FIRST_PORT = 18_400
# R with its packages loads in under a second on the reference machine; a loaded one may take ten times as long.
START_LIMIT_S = 20.0
TICKS = os.sysconf("SC_CLK_TCK")
R_PACKAGES = ("rookery", "httpuv", "nanonext", "drogonR")


class PeerMissing(Exception):
    """The peer is not installed here; the text says what was looked for."""


@dataclass
class Server:
    peer: str
    port: int
    process: subprocess.Popen
    log: Path

    def pause(self) -> None:
        self.process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    @contextmanager
    def in_turn(self) -> Iterator["Server"]:
        """Runs while the block does; the others' turn is after it."""
        self.resume()
        try:
            yield self
        finally:
            if self.is_alive():
                self.pause()

    def get(self, path: str) -> str:
        """The body of an answer with 200. Raises RuntimeError."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            connection.request("GET", path)
            response = connection.getresponse()
            text = response.read().decode()
        except (OSError, http.client.HTTPException) as error:
            raise RuntimeError(f"no answer to GET {path}: {error!r}; {self.last_words()}") from error
        finally:
            connection.close()
        if response.status != 200:
            raise RuntimeError(f"status {response.status} to GET {path}; {self.last_words()}")
        return text

    def is_alive(self) -> bool:
        return self.process.poll() is None

    def cpu_seconds(self) -> float:
        """CPU time of all its threads so far, from /proc/<pid>/stat (steps of 10 ms)."""
        text = Path(f"/proc/{self.process.pid}/stat").read_text(encoding="utf-8")
        fields = text.rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / TICKS

    def memory_bytes(self, name: str) -> int:
        """`VmHWM` (the most it ever held) or `VmRSS` (what it holds now)."""
        for line in Path(f"/proc/{self.process.pid}/status").read_text(encoding="utf-8").splitlines():
            if line.startswith(name + ":"):
                return int(line.split()[1]) * 1024
        raise RuntimeError(f"{self.peer} has no {name}: the process ended")

    def reset_peak(self) -> None:
        """Lets `VmHWM` begin anew at what is resident now."""
        Path(f"/proc/{self.process.pid}/clear_refs").write_text("5", encoding="utf-8")

    def last_words(self) -> str:
        lines = self.log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        return " / ".join(lines[-4:])

    def stop(self) -> None:
        if self.is_alive():
            self.resume()
            end(self.process)


def end(process: subprocess.Popen) -> None:
    """Ends a program of ours; drogonR takes SIGTERM as the end of its own loop and leaves R running."""
    process.terminate()
    try:
        process.wait(timeout=2)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def rookery_library() -> Path:
    return Path(os.environ.get("ROOKERY_LIB") or build.TREE / ".local" / "lib")


def peers_library() -> Path:
    return Path(os.environ.get("ROOKERY_PEERS") or build.TREE / ".local" / "peers")


def library_of(peer: str) -> Path | None:
    """Where a package of R lies that is not where R looks by itself."""
    return {"rookery": rookery_library(), "nanonext": peers_library(), "drogonR": peers_library()}.get(peer)


def r_code(peer: str, code: str) -> list[str]:
    """The command line of an R that finds the peer's package."""
    library = library_of(peer)
    paths = f".libPaths(c('{library}', .libPaths())); " if library else ""
    return ["Rscript", "--vanilla", "-e", paths + code]


def _require_r_package(peer: str) -> None:
    library = library_of(peer)
    if library is not None:
        if not (library / peer / "DESCRIPTION").exists():
            raise PeerMissing(f"no {peer} in {library}")
    elif run(r_code(peer, f"cat(requireNamespace('{peer}', quietly = TRUE))"), 60, environment()).stdout.strip() != "TRUE":
        raise PeerMissing(f"R has no package {peer}")


def command(peer: str, port: int, workload: str, files: Path) -> list[str]:
    """The command line of a peer's server; `bare-epoll/evalq` and `rookery/evalq` call the handler that way,
    `rookery/alone` is without later, and `ablation/timer` is the ablation's server with that cost.

    Raises PeerMissing or BuildError when there is none here.
    """
    peer, _, shape = peer.partition("/")
    if peer == "hyper":
        return [str(build.hyper()), str(port), workload]
    if peer == "ablation":
        return [str(build.ablation_binary(shape)), "serve", str(port), workload]
    if peer == "bare-epoll":
        build.bare_epoll()
    elif peer in R_PACKAGES:
        _require_r_package(peer)
    else:
        raise PeerMissing(f"unknown peer {peer}")
    script = build.BENCH / "peers" / f"{peer}.R"
    shaped = [shape] if shape else []
    return ["Rscript", "--vanilla", str(script), str(port), workload, str(files), *shaped]


def version(peer: str) -> str:
    """What the table of versions says of a peer; empty for the programs of this tree."""
    if peer == "hyper":
        lock = (build.BENCH / "Cargo.lock").read_text(encoding="utf-8")
        found = [part for part in lock.split("[[package]]") if '\nname = "hyper"\n' in part]
        return found[0].split('version = "', 1)[1].split('"', 1)[0] if found else ""
    if peer not in R_PACKAGES:
        return ""
    own = f"cat(as.character(packageVersion('{peer}')), ', later ', as.character(packageVersion('later')), sep='')"
    try:
        return run(r_code(peer, own), 60, environment()).stdout.strip()
    except RuntimeError:
        return ""


def environment() -> dict[str, str]:
    return dict(
        clean_environment(),
        ROOKERY_LIB=str(rookery_library()),
        ROOKERY_PEERS=str(peers_library()),
        ROOKERY_BENCH_OUT=str(build.OUT),
    )


_ports = itertools.count(FIRST_PORT)


def next_port() -> int:
    """A free port below those that the kernel gives to clients, and none twice in a run: a listener may linger."""
    for port in _ports:
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
                return port
            except OSError:
                continue
    raise RuntimeError("no free port")


def start(
    peer: str,
    workload: str,
    files: Path,
    placement: str,
    variables: dict[str, str] | None = None,
) -> Server:
    """Starts the peer's server and waits until it accepts. Raises PeerMissing, BuildError or RuntimeError."""
    port = next_port()
    line = command(peer, port, workload, files)
    log = build.OUT / "log" / f"{peer.replace('/', '-')}-{workload}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*pinned(SERVER_CORE, placement), *line],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=dict(environment(), **(variables or {})),
        )
    server = Server(peer, port, process, log)
    try:
        while time.monotonic() - began < START_LIMIT_S:
            if not server.is_alive():
                raise RuntimeError(f"{peer} ended at once: {server.last_words()}")
            try:
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
                return server
            except OSError:
                time.sleep(0.02)
        raise RuntimeError(f"{peer} did not listen within {START_LIMIT_S:.0f} s: {server.last_words()}")
    except BaseException:
        # Also when the run is interrupted: nobody else knows of this process yet.
        server.stop()
        raise
