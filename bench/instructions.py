#!/usr/bin/env python3
"""Counts the instructions of R's process for each request and each echo of a WebSocket message, with callgrind.

    bench/instructions.py [--before <library>] [--counts 3] [--only off,observed] [--work hello,close,post,echo,shiny]

The requests of `hello` use one connection, and those of `close` one each. `post` has a body of one byte, which the
handler reads. An operation of `shiny` is a message that changes an input, and the flush that computes one output.

Compares a server with everything that observes it off (`off`) with one that has an admin listener, and so metrics by
route, a JSON log, request ids, and traces of which one in a hundred is recorded (`observed`). With --before, `before` is
an earlier build in that library, with everything off, and the exit status is 1 if `off` needs over 0.5 % more. A machine
with other load does not change the counts. R's heap is so large that it is never collected, because the time of a
collection depends on the size of the heap at the start. How often the I/O thread polls for events within a request depends
on how the system schedules the two threads. Each process is therefore counted several times, and they are compared at an
equal number of polls, with the instructions of a poll from a least-squares fit. ROOKERY_LIB is the library with the R
package.
"""

import argparse
import base64
import http.client
import itertools
import os
import re
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from one_worker import LIBRARY, PATIENCE, answer, end, free_port
from runner.measure.observe import Collector, variables

MOST_MORE = 0.005
# The function by which the I/O thread polls the system for events. An installed library has no names of its own functions.
POLL = "epoll_wait"
APP = """list(
  call = function(req) {
    if (req$REQUEST_METHOD == 'POST') req$rook.input$read()
    list(status = 200L, headers = list(), body = 'hello')
  },
  onWSOpen = function(ws) ws$onMessage(function(binary, message) ws$send(message))
)"""
# The app of the work `shiny`: an output that shows an input. Its page is a text, which shows that R serves.
SHINY = """library(shiny)
shinyApp(function(req) httpResponse(content = 'hello'), function(input, output) output$out <- renderText(input$n))
"""


def command(results: Path, library: Path, folder: str, port: int, is_observed: bool) -> tuple[list[str], dict[str, str]]:
    asked = f"target={folder}\nhost=127.0.0.1\nport={port}\n"
    environment = {"ROOKERY_REQUEST_ID_HEADER": "yes" if is_observed else "no"}
    if is_observed:
        asked += f"log=file\nlog_file={results}/access.json\nlog_format=json\nadmin=127.0.0.1:{free_port()}\n"
        environment |= variables() | {"OTEL_SDK_DISABLED": "false"}
    else:
        asked += "log=nothing\nlog_format=common\n"
    package = library / "rookery"
    line = [str(results / "R"), "--no-echo", "--no-restore", "--no-save", f"--file={package / 'serve' / 'cli.R'}"]
    heap = {"R_NSIZE": "20000000", "R_VSIZE": "1G"}
    return line, environment | heap | {"ROOKERY_INTERNAL_SETTINGS": asked, "R_LIBS": f"{package / 'compat'}:{library}"}


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


def exchange(connection: socket.socket, request: bytes) -> None:
    """Sends a request, and receives the response `hello`."""
    connection.sendall(request)
    received = b""
    while not received.endswith(b"\r\n\r\nhello"):
        more = connection.recv(4096)
        if not more:
            raise SystemExit(f"no response: {received!r}")
        received += more


def head(method: str, *lines: str) -> bytes:
    return "\r\n".join([f"{method} / HTTP/1.1", "Host: a", "User-Agent: bench", "Accept: */*", *lines, "\r\n"]).encode()


def connected(port: int) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def hello(port: int):
    connection = connected(port)
    return lambda: exchange(connection, head("GET"))


def post(port: int):
    connection = connected(port)
    return lambda: exchange(connection, head("POST", "Content-Type: application/octet-stream", "Content-Length: 1") + b"x")


def close(port: int):
    def ask() -> None:
        with connected(port) as connection:
            exchange(connection, head("GET", "Connection: close"))
            if connection.recv(1):
                raise SystemExit("more than one response")

    return ask


def websocket(port: int, path: str = "/") -> socket.socket:
    connection = connected(port)
    key = base64.b64encode(bytes(16)).decode()
    connection.sendall(
        f"GET {path} HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key}\r\n\r\n".encode()
    )
    received = b""
    while not received.endswith(b"\r\n\r\n"):
        received += connection.recv(4096)
    if b" 101 " not in received:
        raise SystemExit(f"no WebSocket: {received!r}")
    return connection


def shiny(port: int):
    connection = websocket(port, "/websocket/")
    numbers = itertools.count()

    def send(method: str, data: str) -> None:
        payload = f'{{"method":"{method}","data":{{{data}}}}}'.encode()
        length = bytes([0x80 | len(payload)]) if len(payload) < 126 else b"\xfe" + len(payload).to_bytes(2, "big")
        connection.sendall(b"\x81" + length + bytes(4) + payload)

    def ask(method: str = "update", more: str = "") -> None:
        number = next(numbers)
        send(method, f'"n":{number}{more}')
        received, wanted = b"", f'"values":{{"out":"{number}"}}'.encode()
        while wanted not in received:
            part = connection.recv(65536)
            if not part:
                raise SystemExit(f"the session has ended: {received!r}")
            received += part

    ask("init", ',".clientdata_output_out_hidden":false')
    return ask


def echo(port: int):
    connection = websocket(port)
    # The masking key is 0, so the payload is sent as it is.
    frame = bytes([0x81, 0x80 | 64]) + bytes(4) + b"x" * 64

    def ask() -> None:
        connection.sendall(frame)
        left = 66
        while left > 0:
            left -= len(connection.recv(left))

    return ask


WORK = {work.__name__: work for work in (hello, close, post, echo, shiny)}
# How often the I/O thread polls for events within an operation, at least, and what each further poll costs with all that
# the two threads do until then.
LEAST_POLLS = {"hello": 2, "post": 2, "close": 4}
FURTHER_POLL = 2500


def count(library: Path, folder: str, is_observed: bool, work, operations: int, keep: Path | None = None, rounds: int = 1) -> list[list[float]]:
    """Returns the instructions and the polls of the R process for each operation, in each of several rounds."""
    results = callgrind(folder)
    port = free_port()
    line, environment = command(results, library, folder, port, is_observed)
    pipes = {name: subprocess.DEVNULL for name in ("stdin", "stdout", "stderr")}
    process = subprocess.Popen(line, cwd=folder, env=os.environ | environment, **pipes)
    try:
        until = time.monotonic() + 6 * PATIENCE
        while True:
            try:
                answer(port)
                break
            except (OSError, http.client.HTTPException):
                if time.monotonic() > until or process.poll() is not None:
                    raise SystemExit("R does not serve under callgrind") from None
                time.sleep(0.1)
        ask = work(port)
        for _ in range(500):
            ask()
        pid = r_process(results)
        dump(results, pid)
        counted = []
        for _ in range(rounds):
            for _ in range(operations):
                ask()
            counted.append([each / operations for each in dump(results, pid)])
        if keep:
            shutil.copy(max(results.glob("out.*"), key=lambda file: file.stat().st_mtime), keep)
        return counted
    finally:
        end(process)


def at_least_polls(work: str, operations: int = 500, rounds: int = 8) -> float:
    """Returns the instructions for an operation with everything that observes off, as if the threads had polled for events
    only as often as they must. Without this correction the counts of two runs differ by 5 %, and with it by 1 %.
    """
    with tempfile.TemporaryDirectory(prefix="rookery-instructions-") as folder:
        Path(folder, "app.R").write_text(APP, encoding="utf-8")
        counted = count(LIBRARY, folder, False, WORK[work], operations, rounds=rounds)
    return statistics.median(instructions - FURTHER_POLL * (polls - LEAST_POLLS[work]) for instructions, polls in counted)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", type=Path, help="a library with an earlier build")
    parser.add_argument("--counts", type=int, default=3)
    parser.add_argument("--work", default="hello,echo")
    parser.add_argument("--only", default="off,observed")
    parser.add_argument("--keep", type=Path, help="a folder for the last output of callgrind of each")
    asked = parser.parse_args()
    ways = {name: (LIBRARY, name == "observed") for name in asked.only.split(",")}
    if asked.before:
        ways["before"] = (asked.before.resolve(), False)
    Collector()
    is_worse = False
    for work in [WORK[name] for name in asked.work.split(",")]:
        folder = tempfile.mkdtemp(prefix="rookery-instructions-")
        try:
            Path(folder, "app.R").write_text(SHINY if work is shiny else APP, encoding="utf-8")
            counted = []
            for _ in range(asked.counts):
                kept = {name: asked.keep and asked.keep / f"callgrind.{work.__name__}.{name}" for name in ways}
                counted.append([count(library, folder, is_observed, work, 1000 if work is shiny else 2000, kept[name])[0] for name, (library, is_observed) in ways.items()])
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        each = dict(zip(ways, at_equal_polls(list(zip(*counted)))))
        for name, instructions in each.items():
            polls = ", ".join(f"{one[list(ways).index(name)][0]:.0f} ({one[list(ways).index(name)][1]:.2f})" for one in counted)
            print(f"{work.__name__} {name}: {instructions:.0f} instructions, {instructions / each['off'] - 1:+.2%} of off; instructions (polls) of each count: {polls}", flush=True)
        if "before" in each:
            is_worse |= each["off"] > (1 + MOST_MORE) * each["before"]
    return 1 if is_worse else 0


if __name__ == "__main__":
    sys.exit(main())
