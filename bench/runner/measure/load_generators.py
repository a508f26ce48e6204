"""Load on a server: HTTP by wrk and h2load, WebSocket messages and streamed responses by the programs
of bench/load. Also measures delays: of the first response, of chunks, of callbacks from another
thread, and of the notification about a disconnected client.

What needs neither a load nor a clock is a test: r/tests/testthat/test-wake-up.R.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import time
from contextlib import ExitStack, suppress
from pathlib import Path

from .. import build
from ..contenders import environment, r_code, start
from ..figures import Missing
from ..machine import GENERATOR_CORE, SERVER_CORE, clean_environment, pinned, run
from .sampling import other_programs, sample
from ..scenarios import Scenario
from ..server import Server

# The share of failed requests above which a sample is invalid.
FAILURE_SHARE = 0.001
# The share of the events of a second that have to arrive.
LEAST_OF_RATE = 0.9
# A hundred callbacks, one each 20 ms (load/callbacks.c), and some time for the last.
CALLBACKS_S = 3.0
# The number of chunks whose delay is measured, and of clients that disconnect.
PIECES = 100
DEPARTURES = 20


def check(server: Server, scenario: Scenario) -> None:
    """Checks the response to one request, because a server that responds fast and wrongly is not fast."""
    headers = {f"X-Header-{i:03d}": f"value-{i:03d}" for i in range(1, scenario.headers + 1)} | scenario.send
    body = b"x" * scenario.body_bytes or None
    method = scenario.method or ("POST" if body else "GET")
    sent = iter([body]) if scenario.chunked else body
    with server.answer(method, scenario.path, sent, headers, encode_chunked=scenario.chunked) as response:
        answer = response.read()
    if response.status != scenario.status:
        raise RuntimeError(f"status {response.status} to the first request")
    if scenario.answer_bytes is not None and len(answer) != scenario.answer_bytes:
        raise RuntimeError(f"an answer of {len(answer)} bytes, not {scenario.answer_bytes}")
    if body and scenario.answer_bytes is None and answer != str(len(body)).encode():
        raise RuntimeError(f"the handler saw {answer[:40]!r} bytes, not {len(body)}")


def http(server: Server, scenario: Scenario, seconds: float) -> dict[str, float]:
    """Runs wrk once with one thread."""
    if shutil.which("wrk") is None:
        raise Missing("wrk is not installed")
    variables = clean_environment() | {
        "BENCH_HEADERS": str(scenario.headers),
        "BENCH_BODY_BYTES": str(scenario.body_bytes),
        "BENCH_METHOD": scenario.method,
        "BENCH_CHUNKED": str(int(scenario.chunked)),
        "BENCH_SEND": "\n".join(f"{name}: {value}" for name, value in scenario.send.items()),
    }
    # wrk counts in whole seconds only.
    whole = max(1, round(seconds))
    script, url = str(build.BENCH / "load" / "wrk.lua"), f"{server.scheme}://127.0.0.1:{server.port}{scenario.path}"
    wrk = ["wrk", "-t1", f"-c{scenario.connections}", f"-d{whole}s", "--timeout", "10s", "-s", script, url]
    printed, spent = sample([*pinned(GENERATOR_CORE, scenario.placement), *wrk], whole + 40, server, variables)
    result = json.loads(printed.partition("BENCH ")[2] or "{}")
    requests = result.get("requests")
    if not requests:
        raise RuntimeError(f"no request was answered: {printed.strip()[-200:]}")
    if scenario.status > 399:
        # wrk counts each status other than 2xx and 3xx as an error; here every unexpected response
        # is one.
        result["status_errors"] = requests - result["status_errors"]
    failed = sum(result[name] for name in ("connect_errors", "read_errors", "write_errors", "status_errors", "timeouts"))
    if failed > max(1, requests * FAILURE_SHARE):
        raise RuntimeError(f"{failed} of {requests} requests failed")
    rates = {"requests_per_second": requests / result["seconds"], "cpu_us_per_request": spent / requests * 1e6}
    return rates | _latencies(result)


def http_beside(server: Server, scenario: Scenario, seconds: float) -> dict[str, float]:
    """Runs wrk while other programs compute without pause, one for each processor core."""
    with ExitStack() as others:
        for _ in range(os.cpu_count() or 1):
            program = others.enter_context(subprocess.Popen([sys.executable, "-c", "while True: pass"]))
            others.callback(program.kill)
        return http(server, scenario, seconds)


def h2(server: Server, scenario: Scenario, seconds: float) -> dict[str, float]:
    """Runs h2load once with one thread: over HTTP/2 if the contender's name says so, and otherwise
    over HTTP/1.1 with as many connections as there would be streams. Both use the same generator,
    so that a ratio does not compare two generators.
    """
    if shutil.which("h2load") is None:
        raise Missing("h2load is not installed")
    count, streams = scenario.connections, scenario.streams
    is_h2 = server.protocols == ["h2"]
    how = [f"-c{count}", f"-m{streams}"] if is_h2 else ["--h1", f"-c{count * streams}"]
    whole = max(1, round(seconds))
    line = ["h2load", "-t1", *how, f"-D{whole}", f"{server.scheme}://127.0.0.1:{server.port}{scenario.path}"]
    printed, spent = sample([*pinned(GENERATOR_CORE, scenario.placement), *line], whole + 40, server)
    return _of_h2load(printed, spent, "h2" if is_h2 else "http/1.1")


def _of_h2load(printed: str, spent: float, protocol: str) -> dict[str, float]:
    """Raises RuntimeError if another protocol was used, or too many requests failed."""
    spoken = re.search(r"Application protocol: (\S+)", printed)
    rate = re.search(r"finished in \S+, ([\d.]+) req/s", printed)
    counts = re.search(r"(\d+) done, (\d+) succeeded", printed)
    if not (rate and counts) or (spoken and spoken[1] != protocol) or (protocol == "h2" and not spoken):
        raise RuntimeError(f"h2load spoke {spoken and spoken[1]}, not {protocol}, or said nothing: {printed.strip()[-200:]}")
    finished, succeeded = map(int, counts.groups())
    failed = finished - succeeded
    if not succeeded or failed > max(1, finished * FAILURE_SHARE):
        raise RuntimeError(f"{failed} of {finished} requests failed")
    return {"requests_per_second": float(rate[1]), "cpu_us_per_request": spent / finished * 1e6}


def handshakes(server: Server, scenario: Scenario, seconds: float) -> dict[str, float]:
    """Measures full TLS handshakes, and how many of them the server performs per second of its own CPU
    time. The client's half costs more, so the client limits the rate.
    """
    line = [str(build.c_program("handshakes")), str(server.port), str(scenario.connections), str(seconds)]
    printed, spent = sample([*pinned(GENERATOR_CORE, scenario.placement), *line], seconds + 30, server)
    result = json.loads(printed)
    if result["errors"] or not result["handshakes"]:
        raise RuntimeError(f"{result['handshakes']} handshakes, and {result['errors']} errors")
    each = {"handshakes_per_second": result["handshakes"] / result["seconds"]}
    return each | ({"handshakes_per_cpu_second": result["handshakes"] / spent} if spent else {})


def echo(server: Server, scenario: Scenario, seconds: float) -> dict[str, float]:
    words = ("wsload", *server.protocols, "echo", server.port, scenario.path, scenario.connections, seconds, scenario.payload_bytes)
    result, rates = _generated(server, scenario, seconds, "messages", *words)
    return rates | _latencies(result)


def pieces(server: Server, scenario: Scenario, seconds: float) -> dict[str, float]:
    words = ("streamload", server.port, scenario.path, scenario.connections, seconds)
    _, rates = _generated(server, scenario, seconds, "pieces", *words)
    came, wanted = rates["messages_per_second"], scenario.rate * scenario.connections
    # Not during the warm-up, while clients still connect.
    if seconds == scenario.seconds and came < LEAST_OF_RATE * wanted:
        raise RuntimeError(f"{came:,.0f} of {wanted:,} events a second came")
    return rates


def _generated(
    server: Server, scenario: Scenario, seconds: float, counted: str, program: str, *words: object
) -> tuple[dict, dict[str, float]]:
    """Returns what a generator printed, and the cost of each of the messages that it counted under
    that name.
    """
    line = [*pinned(GENERATOR_CORE, scenario.placement), str(build.c_program(program)), *map(str, words)]
    printed, spent = sample(line, seconds + 30, server)
    result = json.loads(printed)
    count, errors = result[counted], result["errors"]
    if errors > 0 or count == 0:
        raise RuntimeError(f"{count} {counted} came, and {errors} errors")
    return result, {"messages_per_second": count / result["seconds"], "cpu_us_per_message": spent / count * 1e6}


def _latencies(result: dict) -> dict[str, float]:
    return {f"{name}_us": float(result[name]) for name in ("p50", "p99", "p999")}


def callbacks(server: Server, scenario: Scenario, _: float) -> dict[str, float]:
    """Measures the time from execLaterNative2() to the callback, under the load of `connections` or
    without load.
    """
    server.get("/start")
    if scenario.connections:
        http(server, scenario, CALLBACKS_S)
    else:
        time.sleep(CALLBACKS_S)
    return _percentiles([float(number) for number in server.get("/delays").split()])


def piece_delays(server: Server, scenario: Scenario, _: float) -> dict[str, float]:
    """Measures the delay of chunks, each of which contains the time at which it was written, in
    seconds since 1970.
    """
    late = []
    with server.answer("GET", scenario.path) as response:
        for _ in range(PIECES):
            written = float(response.readline()[1:])
            late.append((time.time() - written) * 1000)
    return _percentiles(late)


def departures(server: Server, scenario: Scenario, _: float) -> dict[str, float]:
    """Measures the time from the end of a connection with an unfinished response to the call of
    `on_close`.
    """
    late = []
    for _ in range(DEPARTURES):
        with server.answer("GET", scenario.path) as response:
            response.read(1)
            left = time.time()
        deadline = time.monotonic() + 10
        while (told := float(server.get("/told"))) < left:
            if time.monotonic() > deadline:
                raise RuntimeError("on_close was not called in ten seconds")
            time.sleep(0.005)
        late.append((told - left) * 1000)
    return _percentiles(late)


def _percentiles(late: list[float]) -> dict[str, float]:
    if not late:
        raise RuntimeError("nothing came")
    late = sorted(late)
    return {f"delay_p{percent}_ms": late[min(len(late) - 1, percent * len(late) // 100)] for percent in (50, 90, 99)}


def startup(contender: str, scenario: Scenario, _: float) -> dict[str, float]:
    """Measures the installed size of a package, the time to load it, and the time from the start of
    Rscript to the complete first response to a GET, which is repeated every 2 ms.
    """
    load = (
        f"took <- system.time(suppressPackageStartupMessages(library('{contender}', character.only = TRUE)), gcFirst = FALSE); "
        f"cat(took[['elapsed']] * 1000, find.package('{contender}'), sep = '\\n')"
    )
    line = [*pinned(SERVER_CORE, scenario.placement), *r_code(contender, load)]
    other_programs.begin()
    load_ms, folder = run(line, 60, environment()).stdout.split("\n")[:2]
    began = time.monotonic()
    server = start(contender, "hello", scenario.placement, is_ready=_has_answered)
    first_response_ms = (time.monotonic() - began) * 1000
    server.stop()
    other_programs.end(0.0)
    installed = sum(path.lstat().st_size for path in Path(folder).rglob("*") if path.is_file())
    return {"installed_bytes": float(installed), "load_ms": float(load_ms), "first_response_ms": first_response_ms}


def _has_answered(server: Server) -> bool:
    with suppress(RuntimeError):
        return server.get("/") == "Hello, World!"
    return False
