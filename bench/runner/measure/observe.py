"""Measures what observing a server costs: metrics by route, the JSON log, request ids and traces; how
fast the admin listener responds while R is busy; and the memory for routes and sessions.
"""

import http.client
import http.server
import itertools
import os
import re
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from functools import cache

from ..contenders import OBSERVED, access_log
from ..scenarios import Scenario
from ..server import ADMIN_OFFSET, Server
from . import load_generators, memory

# The share of traces that are recorded.
SAMPLED = "0.01"
# The number of routes in the scenario about memory (the most that a server counts separately), and
# the status codes of each route, with which OpenTelemetry's histogram gets all of its series.
ROUTES, STATUSES = 200, (200, 404, 500)
# The paths of the admin listener; `EVENTS` is measured until its first event.
PATHS = ("/metrics", "/status", "/status.txt", "/-/live", "/-/ready", "/-/startup", "/live/")
EVENTS = "/live/events"
# R computes for ten seconds; the load begins a second later, and ends before R does.
LOAD_S, LOOPS_BEGIN_S = 8, 1.0
# The interval of requests to the admin listener: twice the goal for `delay_p99_ms`. With a much
# shorter interval, requests would wait for each other.
ASK_EVERY_S = 0.01


class Collector:
    """A collector that reads spans and forgets them."""

    def __init__(self) -> None:
        self.batches = 0
        collector = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                self.rfile.read(int(self.headers["Content-Length"]))
                collector.batches += 1
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


@cache
def collector() -> Collector:
    # Created on first use, because the run must have moved into its own network before.
    return Collector()


def variables() -> dict[str, str]:
    """Returns the environment of servers that record one trace in a hundred."""
    return {
        "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{collector().server.server_port}",
        "OTEL_TRACES_SAMPLER": "parentbased_traceidratio",
        "OTEL_TRACES_SAMPLER_ARG": SAMPLED,
        "OTEL_BSP_SCHEDULE_DELAY": "500",
    }


def is_observed(server: Server) -> bool:
    return server.contender.endswith("observed")


def observed(server: Server, scenario: Scenario, seconds: float) -> dict[str, float]:
    """Runs wrk, and checks that an observed server has logged each request and exported spans."""
    log, before = access_log(server.port), collector().batches
    if log.exists():
        os.truncate(log, 0)
    found = load_generators.http(server, scenario, seconds)
    if is_observed(server):
        # The log lines of the last hundredth of a second and the spans of the last half second are
        # still to come.
        time.sleep(0.7)
        with log.open("rb") as lines:
            logged = sum(block.count(b"\n") for block in iter(lambda: lines.read(1 << 20), b""))
        requests = found["requests_per_second"] * max(1, round(seconds))
        if logged < 0.99 * requests:
            raise RuntimeError(f"{logged} lines were logged, of {requests:.0f} requests")
        if collector().batches == before:
            raise RuntimeError("no spans were exported")
        if 'route="/"' not in _get(server, "/metrics"):
            raise RuntimeError("the metrics have no routes")
    elif log.exists():
        raise RuntimeError("a server whose log is off has written one")
    return found


def admin_delays(server: Server, scenario: Scenario, _: float) -> dict[str, float]:
    """Measures the time of requests to the admin listener while all R processes compute and the server
    has as many other requests as it can respond to.
    """
    headers = _viewer(server)
    prefix = server.contender.partition("/")[2].removesuffix("observed")
    with ThreadPoolExecutor() as pool:
        # Each R process gets two of these requests, so that it stays busy until the second one
        # ends.
        loops = [pool.submit(_loop, server) for _ in range(2 * max(1, OBSERVED[prefix]))]
        time.sleep(LOOPS_BEGIN_S)
        load = pool.submit(load_generators.http, server, replace(scenario, path="/static/10k.txt"), LOAD_S)
        time.sleep(0.5)
        delays = _asked(server, headers, time.monotonic() + LOAD_S - 1.5)
        if any(loop.done() for loop in loops[: len(loops) // 2]) and load.running():
            raise RuntimeError("an R process was not busy")
        figures = load.result()
        for loop in loops:
            loop.result()
    late = sorted(delay for each in delays.values() for delay in each)
    slowest = {f"p99_ms {path}": _at(sorted(each), 99) for path, each in delays.items()}
    rate = {name: figures[name] for name in ("requests_per_second", "cpu_us_per_request")}
    return {f"delay_p{percent}_ms": _at(late, percent) for percent in (50, 90, 99)} | rate | slowest


def _at(late: list[float], percent: int) -> float:
    return late[min(len(late) - 1, percent * len(late) // 100)]


def _loop(server: Server) -> None:
    with server.answer("GET", "/loop", limit_s=60) as response:
        response.read()


def _asked(server: Server, headers: dict[str, str], until: float) -> dict[str, list[float]]:
    """Sends requests to the admin listener, and returns their delays in milliseconds by path. Requests
    are due at fixed times, so that a server that stalls makes all requests late that were due
    meanwhile. The time that this process oversleeps does not count.
    """
    delays: dict[str, list[float]] = {path: [] for path in (*PATHS, EVENTS)}
    due = time.monotonic()
    with closing(_admin(server)) as connection:
        connection.connect()
        for path in itertools.cycle(delays):
            if due >= until:
                return delays
            began = due
            if (early := due - time.monotonic()) > 0:
                time.sleep(early)
                began = time.monotonic()
            _ask(server, connection, path, headers)
            delays[path].append((time.monotonic() - began) * 1000)
            due += ASK_EVERY_S


def _ask(server: Server, connection: http.client.HTTPConnection, path: str, headers: dict[str, str]) -> None:
    """Sends a request, and waits for the response, or for its first event if the response does not
    end.
    """
    if path == EVENTS:
        with closing(_admin(server)) as events:
            events.request("GET", path, headers=headers)
            with events.getresponse() as response:
                response.readline()
    else:
        connection.request("GET", path, headers=headers)
        with connection.getresponse() as response:
            response.read()
    if response.status != 200:
        raise RuntimeError(f"status {response.status} to GET {path}")


def _admin(server: Server) -> http.client.HTTPConnection:
    return http.client.HTTPConnection("127.0.0.1", server.port + ADMIN_OFFSET, timeout=30)


def _get(server: Server, path: str) -> str:
    with closing(_admin(server)) as connection:
        connection.request("GET", path)
        return connection.getresponse().read().decode()


def _viewer(server: Server) -> dict[str, str]:
    """Returns the headers of a browser that has exchanged the token for a cookie."""
    found = re.search(r"/live/\?token=\w+", server.log.read_text(encoding="utf-8"))
    if found is None:
        raise RuntimeError("no URL of the live page")
    with closing(_admin(server)) as connection:
        connection.request("GET", found[0])
        with connection.getresponse() as response:
            response.read()
            cookie = (response.headers["Set-Cookie"] or "").partition(";")[0]
    return {"Cookie": cookie, "Sec-Fetch-Site": "same-origin"}


def kept(server: Server, scenario: Scenario, _: float) -> dict[str, float]:
    """Returns by how much the server's memory has grown since its start: with 200 routes, and then with
    `connections` WebSockets. With several workers, only the process in front of them is measured, and
    otherwise all processes, because the program and its worker share what is kept.
    """
    is_alone = "workers" in server.contender
    # Memory that a server allocates once is not kept for routes or sessions.
    with memory.held(server, "idle", scenario.path, memory.CROWD):
        memory.settled_memory(server, is_alone)
    with closing(http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)) as connection:
        _routes(connection, "a", 1)
        before = memory.settled_memory(server, is_alone)
        _routes(connection, "r", ROUTES)
    routes = memory.settled_memory(server, is_alone)
    with memory.held(server, "idle", scenario.path, scenario.connections):
        resident = memory.settled_memory(server, is_alone)
    if is_observed(server) and (count := len(set(re.findall(r'rookery_route_requests_total{route="(.*?)"}', _get(server, "/metrics"))))) < ROUTES:
        raise RuntimeError(f"only {count} routes are counted")
    return {"routes_bytes": float(routes - before), "kept_bytes": float(resident - before), "resident_bytes": float(resident)}


def _routes(connection: http.client.HTTPConnection, name: str, count: int) -> None:
    for number in range(count):
        for status in STATUSES:
            connection.request("GET", f"/route/{name}{number}/{status}")
            with connection.getresponse() as response:
                response.read()
            if response.status != status:
                raise RuntimeError(f"status {response.status}, not {status}")
