"""Measurements of several R processes behind one address, besides plain load: a fixed rate of
requests, requests of which some sleep, and the time until the next R process responds after one was
killed.
"""

import http.client
import os
import queue
import random
import shutil
import signal
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path

from ..contenders import WORKERS, start
from ..figures import Missing
from . import load_generators
from ..machine import GENERATOR_CORE, pinned
from .sampling import sample
from ..scenarios import EARLIER, Scenario
from ..server import Server

# One request in this many sleeps for `NAP_S`, and all others for `SHORT_S`. The rate is for four R
# processes.
NAP_EVERY, NAP_S, SHORT_S = 100, 0.5, 0.005
# For 0.07 % of a long time all four processes sleep, and then every request waits, whatever the
# balancer. In half a minute that share is 0 or a hundredth.
NAPS_PER_SECOND, NAPS_S = 80, 120.0
# A worker that has lived for a minute is restarted at once (see `restart_backoff.rs` in crates/supervisor),
# which is what this measures.
LIFE_S = 61.0
# The time for which the other R processes are kept busy meanwhile.
BUSY_S = 8
ASK_EVERY_S = 0.002
# The maximum rate (requests per second) of each scenario that has a `load`. It is measured with the
# current build and also used for the earlier build, so that both get the same load.
_capacities: dict[str, float] = {}
# The time for which all R processes sleep while static files are requested.
SLEEP_S = 3


def steady(server: Server, scenario: Scenario, seconds: float) -> dict[str, float]:
    """Runs h2load over HTTP/1.1 with a fixed rate on each connection, and returns the latencies and the
    server's CPU time. The rate is the scenario's `rate`, or `load` times the capacity. The
    connections begin at intervals; otherwise all of them would send at the same time.
    """
    if shutil.which("h2load") is None:
        raise Missing("h2load is not installed")
    whole, rate_of_each = max(1, round(seconds)), float(scenario.rate)
    if scenario.load:
        # The capacity is measured again before each sample, because the machine's speed changes.
        capacity = load_generators.http(server, scenario, 2)["requests_per_second"]
        if server.contender.startswith(f"rookery/{EARLIER}"):
            # Its own load comes before its sample as well, but the rate is that of the current build.
            capacity = _capacities.get(scenario.name, capacity)
        _capacities[scenario.name] = capacity
        rate_of_each = scenario.load * capacity / scenario.connections
    rate = round(rate_of_each * scenario.connections)
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        line = ["h2load", "-t1", "--h1", f"-c{scenario.connections}", f"-n{rate * whole}", "-r1", f"--rate-period={max(1, 1000 // rate)}ms"]
        line += [f"--rps={rate_of_each:.3f}", f"--log-file={log}"]
        url = f"{server.scheme}://127.0.0.1:{server.port}{scenario.path}"
        _, spent = sample([*pinned(GENERATOR_CORE, scenario.placement), *line, url], whole + 40, server)
        rows = [row.split() for row in log.read_text(encoding="utf-8").splitlines()]
    took = sorted(int(microseconds) for _, status, microseconds in rows if status == "200")
    lasted = (max(int(began) for began, *_ in rows) - min(int(began) for began, *_ in rows)) / 1e6
    # The last connection begins by one of its intervals later than the first.
    if len(took) < rate * whole or lasted > 1.2 * whole + 1 / rate_of_each + 0.3:
        raise RuntimeError(f"{len(took)} of {rate * whole} were answered, in {lasted:.1f} s instead of {whole}")
    found = {f"{name}_us": float(took[int(share * len(took))]) for name, share in (("p50", 0.5), ("p99", 0.99), ("p999", 0.999))}
    return {"cpu_us_per_request": spent / len(took) * 1e6, **found}


def naps(server: Server, scenario: Scenario, _: float) -> dict[str, float]:
    """Sends requests at a fixed rate, whatever the state of earlier ones; one in a hundred sleeps.
    Returns the delays of the others.
    """
    chance = random.Random(16)
    late: list[float] = []
    slow: list[float] = []
    failed: list[Exception] = []
    asked: queue.SimpleQueue = queue.SimpleQueue()

    def client() -> None:
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
        while (due := asked.get()) is not None:
            at, seconds = due
            try:
                connection.request("GET", f"/{seconds}")
                with connection.getresponse() as response:
                    response.read()
                (late if seconds == SHORT_S else slow).append((time.monotonic() - at) * 1000)
            except (OSError, http.client.HTTPException) as error:
                connection.close()
                failed.append(error)

    clients = [threading.Thread(target=client, daemon=True) for _ in range(scenario.connections)]
    for each in clients:
        each.start()
    began = time.monotonic() + 0.1
    for number in range(int(NAPS_PER_SECOND * NAPS_S)):
        at = began + number / NAPS_PER_SECOND
        time.sleep(max(0.0, at - time.monotonic()))
        asked.put((at, NAP_S if chance.random() * NAP_EVERY < 1 else SHORT_S))
    for _ in clients:
        asked.put(None)
    for each in clients:
        each.join()
    if failed or not slow:
        raise RuntimeError(f"{len(failed)} failed: {failed[:1]}")
    late.sort()
    found = {f"delay_p{percent}_ms": late[percent * len(late) // 100] for percent in (50, 90, 99)}
    return found | {"slow_p50_ms": sorted(slow)[len(slow) // 2]}


def death(server: Server, _: Scenario, __: float) -> dict[str, float]:
    """Measures the time from the end of an R process to the first response of its replacement; for one
    process, from its start.
    """
    if server.contender.partition("/")[2] not in WORKERS:
        return {"next_response_ms": _first_response(server)}
    # The first responses take R longer.
    for _ in range(100):
        _asked(server)
    time.sleep(LIFE_S)
    other = threading.Thread(target=server.get, args=(f"/{BUSY_S}",), daemon=True)
    other.start()
    time.sleep(0.5)
    victim = _asked(server)
    os.kill(int(victim), signal.SIGKILL)
    began = time.monotonic()
    while _asked(server) in ("", victim) and time.monotonic() - began < BUSY_S:
        time.sleep(ASK_EVERY_S)
    took = time.monotonic() - began
    other.join()
    if took > BUSY_S - 1:
        raise RuntimeError(f"the next answer took {took:.1f} s, and may be another R's")
    return {"next_response_ms": took * 1000}


def static_while_busy(server: Server, scenario: Scenario, seconds: float) -> dict[str, float]:
    """Loads static files while the handlers of all R processes sleep."""
    _, _, shape = server.contender.partition("/")
    is_over = threading.Event()
    failed: list[RuntimeError] = []

    def keep_busy() -> None:
        while not is_over.is_set():
            try:
                server.get(f"/{SLEEP_S}")
            except RuntimeError as error:
                failed.append(error)
                return

    # The next request waits behind each, so that no R process is idle between two.
    callers = [threading.Thread(target=keep_busy, daemon=True) for _ in range(2 * WORKERS.get(shape, 1))]
    for each in callers:
        each.start()
    time.sleep(SLEEP_S / 3)
    try:
        load_generators.check(server, scenario)
        found = load_generators.http(server, scenario, seconds)
    finally:
        is_over.set()
        for each in callers:
            each.join()
    if failed:
        raise RuntimeError(f"an R was not kept busy: {failed[0]}")
    return found


def _asked(server: Server) -> str:
    with suppress(RuntimeError):
        return server.get("/")
    return ""


def _first_response(server: Server) -> float:
    began = time.monotonic()
    other = start(server.contender, "naps", is_ready=lambda it: _asked(it) != "")
    took = (time.monotonic() - began) * 1000
    other.stop()
    return took
