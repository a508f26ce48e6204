"""The peers of the R groups: the command line of each one's server, and how servers are started, asked, watched and stopped.

Every server is its own process with its output in bench/out/log. While another peer is measured it is stopped with
SIGSTOP, so that a peer that polls while idle takes nothing from its rivals.
"""

import functools
import http.client
import itertools
import os
import shutil
import signal
import socket
import ssl
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from . import build
from .figures import Missing
from .machine import SERVER_CORE, TICKS, clean_environment, pinned, proc_field, run

ROOKERY_LIB = Path(os.environ.get("ROOKERY_LIB") or build.TREE / ".local" / "lib")
PEERS_LIB = Path(os.environ.get("ROOKERY_PEERS") or build.TREE / ".local" / "peers")
# The library that each package of R is in; httpuv is the one that R finds by itself.
PACKAGES = {"rookery": ROOKERY_LIB, "httpuv": None, "nanonext": PEERS_LIB, "drogonR": PEERS_LIB}
# The shapes of a peer that speak TLS; `h2` is the same server, which the load asks for HTTP/2.
TLS_SHAPES = ("tls", "h2")
# The shapes with several R processes, and how many of them answer.
WORKERS = {"workers": 2, "spares": 2, "four": 4, "robin": 4}
# R with its packages loads in under a second on the reference machine; a loaded one may take ten times as long.
START_LIMIT_S = 20.0
# Below those that the kernel gives to clients, and none twice in a run: a listener may linger.
_ports = itertools.count(18_400)


def environment() -> dict[str, str]:
    variables = {"ROOKERY_LIB": ROOKERY_LIB, "ROOKERY_PEERS": PEERS_LIB, "ROOKERY_BENCH_OUT": build.OUT}
    return clean_environment() | {name: str(path) for name, path in variables.items()}


def r_code(peer: str, code: str) -> list[str]:
    """The command line of an R that finds the peer's package."""
    library = PACKAGES.get(peer)
    paths = f".libPaths(c('{library}', .libPaths())); " if library else ""
    return ["Rscript", "--vanilla", "-e", paths + code]


def command(peer: str, port: int, workload: str) -> list[str]:
    """The command line of a peer's server, whose programs are built; `bare-epoll/evalq` and `rookery/evalq` call the
    handler that way, `rookery/alone` is without later, and `ablation/timer` is the ablation's server with that cost.
    `rookery/tls` speaks TLS itself, and `nginx/tls` is nginx with Rookery behind it. `rookery/workers`, `haproxy/workers`,
    `nginx/workers` and `faucet/workers` are two R processes behind one address, `rookery/spares` has a third that waits and has been warmed up, and `rookery/four`,
    `haproxy/four` and `haproxy/robin` are four.

    Raises Missing.
    """
    peer, _, shape = peer.partition("/")
    if peer == "hyper":
        return [str(build.rust_binary("hyper")), str(port), workload]
    if peer == "ablation":
        return [str(build.ablation_binary(shape)), "serve", str(port), workload]
    if shape in TLS_SHAPES:
        build.certificate()
    if shape in WORKERS:
        return [str(word) for word in _workers(peer, shape, port, workload)]
    if peer == "nginx":
        if shutil.which("nginx") is None:
            raise Missing("nginx is not installed")
        # It starts the Rookery that it stands before.
        _require_package("rookery")
        return [str(word) for word in (build.BENCH / "peers" / "nginx", port, workload, build.static_folder())]
    if peer == "bare-epoll":
        build.r_object("bare-epoll")
    else:
        _require_package(peer)
    if workload == "callbacks":
        build.r_object("callbacks")
    script = build.BENCH / "peers" / f"{peer}.R"
    line = ["Rscript", "--vanilla", script, port, workload, build.static_folder(), *filter(None, [shape])]
    return [str(word) for word in line]


def _workers(peer: str, shape: str, port: int, workload: str) -> list[object]:
    folder, static = build.BENCH / "peers", build.static_folder()
    _require_package("rookery")
    if peer == "faucet":
        if not (PEERS_LIB / "bin" / "faucet").exists():
            raise Missing(f"no bin/faucet in {PEERS_LIB}")
        return [folder / "faucet", port, workload, static]
    if peer != "rookery":
        if shutil.which(peer) is None:
            raise Missing(f"{peer} is not installed")
        balance = "roundrobin" if shape == "robin" else "leastconn"
        return [folder / "balancer", peer, port, workload, static, WORKERS[shape], balance]
    told = {"PORT": port, "WORKLOAD": workload, "STATIC": static, "PEERS": folder}
    variables = [f"R_LIBS={ROOKERY_LIB}", *(f"BENCH_{name}={value}" for name, value in told.items())]
    program = ROOKERY_LIB / "rookery" / "exec" / "rookery"
    app = folder / ("plumber" if workload == "plumber" else "workers.R")
    options = ["--spares", 1, "--warmup", "/"] if shape == "spares" else []
    return ["env", *variables, program, "serve", app, "--workers", WORKERS[shape], "--port", port, "--no-log", *options]


@functools.cache
def _require_package(peer: str) -> None:
    library = PACKAGES.get(peer)
    if library and not (library / peer / "DESCRIPTION").exists():
        raise Missing(f"no {peer} in {library}")
    if run(r_code(peer, f"cat(requireNamespace('{peer}', quietly = TRUE))"), 60).stdout.strip() != "TRUE":
        raise Missing(f"R has no package {peer}")


def versions(names: set[str]) -> dict[str, str]:
    """What the tables say of each package that is here; of what is built of this tree, bench/Cargo.lock says it."""
    found = {}
    for peer in sorted(PACKAGES.keys() & names):
        code = f"cat(as.character(packageVersion('{peer}')), ', later ', as.character(packageVersion('later')), sep='')"
        # Where it is not here, its cells are MISSING and say why.
        with suppress(RuntimeError):
            found[f"peer {peer}"] = run(r_code(peer, code), 60).stdout.strip()
    return found


@dataclass
class Server:
    peer: str
    port: int
    process: subprocess.Popen
    log: Path

    @property
    def speaks(self) -> list[str]:
        """What load/wsload.c is told to speak with it: `tls`, `h2` or neither."""
        return [shape for shape in TLS_SHAPES if self.peer.endswith(f"/{shape}")]

    @property
    def scheme(self) -> str:
        return "https" if self.speaks else "http"

    @contextmanager
    def in_turn(self) -> Iterator["Server"]:
        """Runs while the block does, whose errors it has the last word in; the others' turn is after it."""
        self.process.send_signal(signal.SIGCONT)
        try:
            yield self
        except RuntimeError as error:
            raise type(error)(f"{error}; {self.last_words()}") from error
        finally:
            self.process.send_signal(signal.SIGSTOP)

    @contextmanager
    def answer(
        self, method: str, path: str, body: object = None, headers: dict | None = None, limit_s: float = 30, **options
    ) -> Iterator[http.client.HTTPResponse]:
        """An answer, on a connection that ends with the block. Raises RuntimeError, also for what the block reads."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=limit_s)
        if self.scheme == "https":
            unverified = ssl._create_unverified_context()  # the certificate is the run's own
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
        """The body of an answer with 200. Raises RuntimeError."""
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

    def is_alive(self) -> bool:
        return self.process.poll() is None

    def cpu_seconds(self) -> float:
        """CPU time of all its threads so far, and of what stands behind it, from /proc/<pid>/stat (steps of 10 ms)."""
        return sum(map(_cpu_ticks, self._processes())) / TICKS

    def _processes(self) -> list[str]:
        """Its process, and what stands behind a proxy."""
        own = str(self.process.pid)
        # Of all its threads: whichever has started one is the parent.
        children = [path.read_text(encoding="utf-8").split() for path in Path(f"/proc/{own}/task").glob("*/children")]
        return [own, *itertools.chain.from_iterable(children)]

    def memory_bytes(self, name: str, is_alone: bool = False) -> int:
        """`VmHWM` (the most it ever held) or `VmRSS` (what it holds now); alone: without what stands behind it."""
        processes = [str(self.process.pid)] if is_alone else self._processes()
        found = [proc_field(f"/proc/{pid}/status", name) for pid in processes]
        if not all(found):
            raise RuntimeError(f"{self.peer} has no {name}: the process ended")
        return sum(int(each.split()[0]) for each in found) * 1024

    def last_words(self) -> str:
        lines = self.log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        return " / ".join(lines[-4:])

    def stop(self) -> None:
        """drogonR takes SIGTERM as the end of its own loop and leaves R running."""
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


def _free_port() -> int:
    while True:
        with suppress(OSError):
            port = next(_ports)
            socket.create_server(("127.0.0.1", port)).close()
            return port


def start(
    peer: str,
    workload: str,
    placement: str = "free",
    variables: dict[str, str] | None = None,
    is_ready: Callable[[Server], bool] = Server.accepts,
) -> Server:
    """Starts the peer's server and waits until it is ready. Raises Missing, RuntimeError or OSError."""
    port = _free_port()
    line = [*pinned(SERVER_CORE, placement), *command(peer, port, workload)]
    log = build.OUT / "log" / f"{peer.replace('/', '-')}-{workload}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    its_environment = environment() | (variables or {})
    with log.open("wb") as out:
        pipes = {"stdin": subprocess.DEVNULL, "stdout": out, "stderr": subprocess.STDOUT}
        server = Server(peer, port, subprocess.Popen(line, env=its_environment, **pipes), log)
    try:
        limit = time.monotonic() + START_LIMIT_S
        while not is_ready(server):
            if not server.is_alive() or time.monotonic() > limit:
                raise RuntimeError(f"{peer} ended, or was not ready in {START_LIMIT_S:.0f} s: {server.last_words()}")
            time.sleep(0.002)
        return server
    except BaseException:
        # Also when the run is interrupted: nobody else knows of this process yet.
        server.stop()
        raise


class Servers:
    """The servers of one workload, started when first asked for; `close` stops all of them."""

    def __init__(self) -> None:
        self.asked: tuple = ()
        self.running: dict[str, Server | Exception] = {}

    def switch(self, is_fresh: bool, *asked: object) -> None:
        """To `start` with these from now on; servers that run go on if they are the same and need not be fresh."""
        if asked != self.asked or is_fresh:
            self.close()
            self.asked = asked

    def get(self, peer: str) -> Server:
        """Raises what kept it from starting, every time."""
        server = self.running.get(peer)
        if server is None or (isinstance(server, Server) and not server.is_alive()):
            try:
                server = start(peer, *self.asked)
                server.process.send_signal(signal.SIGSTOP)
            except (OSError, RuntimeError) as error:
                server = error
            self.running[peer] = server
        if isinstance(server, Exception):
            raise server
        return server

    def close(self) -> None:
        for server in self.running.values():
            if isinstance(server, Server):
                server.stop()
        self.running.clear()
