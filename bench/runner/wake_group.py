"""The wake protocol under a clock: how late the callbacks of a thread that is not R's are, and what an idle server costs.

What needs neither a load nor a clock is a test: r/tests/testthat/test-wake.R.
"""

import time

from . import build, wrk
from .peers import Server
from .plan import Options, Servers
from .sampling import SAMPLES, Cell
from .scenarios import Scenario

# A hundred callbacks, one each 20 ms (load/callbacks.c), and some time for the last.
CALLBACKS_S = 3.0
IDLE_S = 5.0


def measure_callbacks(row: list[Cell], scenario: Scenario, servers: Servers, options: Options) -> None:
    """Milliseconds from the call of execLaterNative2() to the callback, with `connections` of load or with none."""
    build.r_object("callbacks")
    # A quick run takes one round.
    rounds = 1 if options.quick else SAMPLES
    servers.each(row, lambda cell, server: cell.samples.extend(_delays(server, scenario, servers.placement) for _ in range(rounds)))


def _delays(server: Server, scenario: Scenario, placement: str) -> dict[str, float]:
    server.get("/start")
    if scenario.connections:
        wrk.run(server, scenario, CALLBACKS_S, placement)
    else:
        time.sleep(CALLBACKS_S)
    delays = sorted(float(number) for number in server.get("/delays").split())
    if not delays:
        raise RuntimeError(f"no callback ran; {server.last_words()}")
    shares = {"delay_p50_ms": 0.5, "delay_p90_ms": 0.9, "delay_p99_ms": 0.99}
    return {name: delays[min(len(delays) - 1, int(share * len(delays)))] for name, share in shares.items()}


def measure_idle_cpu(row: list[Cell], _: Scenario, servers: Servers, __: Options) -> None:
    def measure(cell: Cell, server: Server) -> None:
        server.get("/")
        before = server.cpu_seconds()
        time.sleep(IDLE_S)
        cell.single["idle_cpu_ms_per_second"] = (server.cpu_seconds() - before) / IDLE_S * 1000

    servers.each(row, measure)
