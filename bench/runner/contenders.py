"""The contenders of the R groups: their command lines, and how their servers are started and stopped.

Each server is a process of its own with its output in bench/out/log. While another contender is
measured, it is stopped with SIGSTOP, so that a contender that polls while idle takes no processor
time from the others.
"""

import functools
import itertools
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from . import build
from .figures import Missing
from .machine import SERVER_CORE, clean_environment, pinned, run
from .scenarios import EARLIER
from .server import ADMIN_OFFSET, TLS_SHAPES, Server

ROOKERY_LIB = Path(os.environ.get("ROOKERY_LIB") or build.TREE / ".local" / "lib")
CONTENDERS_LIB = Path(os.environ.get("ROOKERY_CONTENDERS") or build.TREE / ".local" / "contenders")
# The library that has each R package. R finds httpuv by itself.
PACKAGES = {"rookery": ROOKERY_LIB, "httpuv": None, "nanonext": CONTENDERS_LIB, "drogonR": CONTENDERS_LIB, "promises": None}
# The shapes with several R processes, and the number of processes that serve requests.
WORKERS = {"worker": 1, "worker-tls": 1, "worker-h2": 1, "workers": 2, "workers-tls": 2, "workers-h2": 2, "behind": 2, "spares": 2, "four": 4, "robin": 4}
# The prefixes of the shapes `observed` and `off`, with the number of the program's workers; 0
# stands for R's own serve().
OBSERVED = {"": 0, "program-": 1, "workers-": 2}
# A server behind nginx listens on nginx's port plus this number.
BEHIND_OFFSET = 10_000
# R with its packages loads in under a second on the reference machine; a loaded machine may take
# ten times as long.
START_LIMIT_S = 20.0
# Ports below those that the kernel gives to clients. None is used twice in a run, because a
# listener may linger.
_ports = itertools.count(18_400)


def environment() -> dict[str, str]:
    variables = {"ROOKERY_LIB": ROOKERY_LIB, "ROOKERY_CONTENDERS": CONTENDERS_LIB, "ROOKERY_BENCH_OUT": build.OUT}
    return clean_environment() | {name: str(path) for name, path in variables.items()}


def r_code(contender: str, code: str) -> list[str]:
    """Returns the command line of an R process that finds the contender's package."""
    library = PACKAGES.get(contender)
    paths = f".libPaths(c('{library}', .libPaths())); " if library else ""
    return ["Rscript", "--vanilla", "-e", paths + code]


def command(contender: str, port: int, workload: str) -> list[str]:
    """Returns the command line of a contender's server, after building its programs. Raises Missing.

    A contender's name has the form `name/shape`. `bare-epoll/evalq` and `rookery/evalq` call the
    handler through evalq, `rookery/alone` does not use the package later, and `ablation/timer` is
    the ablation's server with that patch. `rookery/tls` terminates TLS itself, and `nginx/tls` is
    nginx in front of Rookery. `rookery/workers`, `haproxy/workers`, `nginx/workers` and
    `faucet/workers` are two R processes behind one address; `rookery/workers-tls` and
    `rookery/workers-h2` are the first of them over TLS, and `rookery/behind` is `rookery/workers`
    behind nginx. `rookery/worker`, `rookery/worker-tls` and `rookery/worker-h2` have one R process.
    `before-` before such a shape stands for an earlier build. `rookery/spares` has a third process in
    reserve, which has been warmed up. `rookery/four`, `haproxy/four` and `haproxy/robin` have four
    processes. `rookery/observed` and `rookery/off` are R's serve() with and without metrics by
    route, JSON log, request ids and traces; `program-` and `workers-` before the shape stand for
    the program with one and with two workers, whose metrics are always on.
    """
    contender, _, shape = contender.partition("/")
    prefix, _, state = shape.rpartition("-")
    if state in ("observed", "off"):
        return [str(word) for word in _observed(prefix and f"{prefix}-", state == "observed", port, workload)]
    if contender == "hyper":
        return [str(build.rust_binary("hyper")), str(port), workload]
    if contender == "ablation":
        return [str(build.ablation_binary(shape)), "serve", str(port), workload]
    if shape.endswith(TLS_SHAPES):
        build.certificate()
    if shape.removeprefix(EARLIER) in WORKERS:
        return [str(word) for word in _workers(contender, shape, port, workload)]
    if contender == "nginx":
        _require_program("nginx")
        # It starts the Rookery that it forwards to.
        _require_package("rookery")
        inner = port + BEHIND_OFFSET
        server = ["Rscript", "--vanilla", build.BENCH / "contenders" / "rookery.R", inner, workload, build.static_folder()]
        return [str(word) for word in (build.BENCH / "contenders" / "nginx", port, inner, "tls", *server)]
    if contender == "bare-epoll":
        build.r_object("bare-epoll")
    else:
        _require_package(contender)
    if workload == "callbacks":
        build.r_object("callbacks")
    script = build.BENCH / "contenders" / f"{contender}.R"
    line = ["Rscript", "--vanilla", script, port, workload, build.static_folder(), *filter(None, [shape])]
    return [str(word) for word in line]


def _workers(contender: str, shape: str, port: int, workload: str) -> list[object]:
    folder, static = build.BENCH / "contenders", build.static_folder()
    _require_package("rookery")
    if contender == "faucet":
        if not (CONTENDERS_LIB / "bin" / "faucet").exists():
            raise Missing(f"no bin/faucet in {CONTENDERS_LIB}")
        return [folder / "faucet", port, workload, static]
    if contender != "rookery":
        _require_program(contender)
        balance = "roundrobin" if shape == "robin" else "leastconn"
        return [folder / "balancer", contender, port, workload, static, WORKERS[shape], balance]
    library, front, kind = ROOKERY_LIB, [], shape.removeprefix(EARLIER)
    if kind == "behind":
        _require_program("nginx")
        front = [folder / "nginx", port, port + BEHIND_OFFSET, "plain"]
        port += BEHIND_OFFSET
    if kind != shape:
        if not (earlier := os.environ.get("ROOKERY_BEFORE")):
            raise Missing("an earlier build was not given with --before")
        library = Path(earlier)
    told = {"PORT": port, "WORKLOAD": workload, "STATIC": static, "CONTENDERS": folder}
    variables = [f"R_LIBS={library}", *(f"BENCH_{name}={value}" for name, value in told.items())]
    program = library / "rookery" / "exec" / "rookery"
    app = folder / ("plumber" if workload == "plumber" else "workers.R")
    options = ["--spares", 1, "--warmup", "/"] if kind == "spares" else []
    if kind.endswith(TLS_SHAPES):
        options = ["--tls-cert", build.OUT / "tls.crt", "--tls-key", build.OUT / "tls.key"]
    line = ["env", *variables, program, "serve", app, "--workers", WORKERS[kind], "--port", port, "--log=none", *options]
    return [*front, *line]


def access_log(port: int) -> Path:
    return build.OUT / "log" / f"access-{port}.json"


def _observed(prefix: str, is_observed: bool, port: int, workload: str) -> list[object]:
    """Returns the command line of Rookery with everything that observes it, or without. The variables
    for traces are those of the scenario (measure/observe.py).
    """
    _require_package("rookery")
    folder, static, workers = build.BENCH / "contenders", build.static_folder(), OBSERVED[prefix]
    variables = [f"ROOKERY_REQUEST_ID_HEADER={'yes' if is_observed else 'no'}", f"R_LIBS={ROOKERY_LIB}"]
    # Enough for the WebSockets of the scenario about memory and the connections that measure it.
    variables += ["ROOKERY_MAX_CONNECTIONS=12000", "ROOKERY_MAX_QUEUED_REQUESTS=12000"]
    if not is_observed:
        variables.append("OTEL_SDK_DISABLED=true")
    log, admin = access_log(port), f"127.0.0.1:{port + ADMIN_OFFSET}"
    # An earlier run may have left its log.
    log.unlink(missing_ok=True)
    if workers == 0:
        script = [folder / "rookery.R", port, workload, static, "observed" if is_observed else "off", log, admin]
        return ["env", *variables, "Rscript", "--vanilla", *script]
    told = {"PORT": port, "WORKLOAD": workload, "STATIC": static, "CONTENDERS": folder}
    variables += [f"BENCH_{name}={value}" for name, value in told.items()]
    options = ["--log", log, "--log-format", "json", "--admin", admin] if is_observed else ["--log=none"]
    program = ROOKERY_LIB / "rookery" / "exec" / "rookery"
    return ["env", *variables, program, "serve", folder / "workers.R", "--workers", workers, "--port", port, *options]


def _require_program(name: str) -> None:
    if shutil.which(name) is None:
        raise Missing(f"{name} is not installed")


@functools.cache
def _require_package(contender: str) -> None:
    library = PACKAGES.get(contender)
    if library and not (library / contender / "DESCRIPTION").exists():
        raise Missing(f"no {contender} in {library}")
    if run(r_code(contender, f"cat(requireNamespace('{contender}', quietly = TRUE))"), 60).stdout.strip() != "TRUE":
        raise Missing(f"R has no package {contender}")


def versions(names: set[str]) -> dict[str, str]:
    """Returns the versions of the installed packages. The versions of our own programs are in
    bench/Cargo.lock.
    """
    found = {}
    for contender in sorted(PACKAGES.keys() & names):
        code = f"cat(as.character(packageVersion('{contender}')), ' with later ', as.character(packageVersion('later')), sep='')"
        # The cells of a package that is not installed are MISSING and name the reason.
        with suppress(RuntimeError):
            found[f"contender {contender}"] = run(r_code(contender, code), 60).stdout.strip()
    return found


def _free_port() -> int:
    while True:
        with suppress(OSError):
            port = next(_ports)
            socket.create_server(("127.0.0.1", port)).close()
            return port


def start(
    contender: str,
    workload: str,
    placement: str = "free",
    variables: dict[str, str] | None = None,
    is_ready: Callable[[Server], bool] | None = None,
) -> Server:
    """Starts the contender's server and waits until it is ready. Raises Missing, RuntimeError or
    OSError.
    """
    # serve() responds with 503 until its app is loaded.
    is_ready = is_ready or (Server.responds if contender.endswith(("observed", "off")) else Server.accepts)
    port = _free_port()
    line = [*pinned(SERVER_CORE, placement), *command(contender, port, workload)]
    log = build.OUT / "log" / f"{contender.replace('/', '-')}-{workload}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    its_environment = environment() | (variables or {})
    with log.open("wb") as out:
        pipes = {"stdin": subprocess.DEVNULL, "stdout": out, "stderr": subprocess.STDOUT}
        server = Server(contender, port, subprocess.Popen(line, env=its_environment, **pipes), log)
    try:
        limit = time.monotonic() + START_LIMIT_S
        while not is_ready(server):
            if not server.is_alive() or time.monotonic() > limit:
                raise RuntimeError(f"{contender} ended, or was not ready in {START_LIMIT_S:.0f} s: {server.last_output()}")
            time.sleep(0.002)
        return server
    except BaseException:
        # Also after an interrupt, because nothing else refers to this process yet.
        server.stop()
        raise


class Servers:
    """The servers of one workload. Each is started at its first use, and `close` stops all of them."""

    def __init__(self) -> None:
        self.asked: tuple = ()
        self.running: dict[str, Server | Exception] = {}

    def switch(self, is_fresh: bool, *asked: object) -> None:
        """Sets the arguments of `start`. Running servers stay if they have the same arguments and need
        not be fresh.
        """
        if asked != self.asked or is_fresh:
            self.close()
            self.asked = asked

    def get(self, contender: str) -> Server:
        """Returns a running server. Raises the reason for which it did not start, each time."""
        server = self.running.get(contender)
        if server is None or (isinstance(server, Server) and not server.is_alive()):
            try:
                server = start(contender, *self.asked)
                server.process.send_signal(signal.SIGSTOP)
            except (OSError, RuntimeError) as error:
                server = error
            self.running[contender] = server
        if isinstance(server, Exception):
            raise server
        return server

    def close(self) -> None:
        for server in self.running.values():
            if isinstance(server, Server):
                server.stop()
        self.running.clear()
