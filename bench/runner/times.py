"""How late things come: callbacks of a thread that is not R's, pieces of an answer, the news that a client left, and the
first answer of a server.

What needs neither a load nor a clock is a test: r/tests/testthat/test-wake.R.
"""

import time
from contextlib import suppress
from pathlib import Path

from . import loads
from .machine import SERVER_CORE, bystanders, pinned, run
from .peers import Server, environment, r_code, start
from .scenarios import Scenario

# A hundred callbacks, one each 20 ms (load/callbacks.c), and some time for the last.
CALLBACKS_S = 3.0
# Pieces whose way is timed, and clients that leave.
PIECES = 100
DEPARTURES = 20


def callbacks(server: Server, scenario: Scenario, _: float) -> dict[str, float]:
    """From the call of execLaterNative2() to the callback, with `connections` of load or with none."""
    server.get("/start")
    if scenario.connections:
        loads.http(server, scenario, CALLBACKS_S)
    else:
        time.sleep(CALLBACKS_S)
    return _percentiles([float(number) for number in server.get("/delays").split()])


def pieces(server: Server, scenario: Scenario, _: float) -> dict[str, float]:
    """Each piece is the time at which it was written, in seconds since 1970, by the clock that this program reads as well."""
    late = []
    with server.answer("GET", scenario.path) as response:
        for _ in range(PIECES):
            written = float(response.readline()[1:])
            late.append((time.time() - written) * 1000)
    return _percentiles(late)


def departures(server: Server, scenario: Scenario, _: float) -> dict[str, float]:
    """From the end of a connection whose answer goes on to the call of `on_close`."""
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


def startup(peer: str, scenario: Scenario, _: float) -> dict[str, float]:
    """The installed size of a package, the time to load it, and from the start of Rscript to the whole answer to a first
    GET, asked again every 2 ms until it comes."""
    load = (
        f"took <- system.time(suppressPackageStartupMessages(library('{peer}', character.only = TRUE)), gcFirst = FALSE); "
        f"cat(took[['elapsed']] * 1000, find.package('{peer}'), sep = '\\n')"
    )
    line = [*pinned(SERVER_CORE, scenario.placement), *r_code(peer, load)]
    bystanders.begin()
    load_ms, folder = run(line, 60, environment()).stdout.split("\n")[:2]
    began = time.monotonic()
    server = start(peer, "hello", scenario.placement, is_ready=_has_answered)
    first_answer_ms = (time.monotonic() - began) * 1000
    server.stop()
    bystanders.end(0.0)
    installed = sum(path.lstat().st_size for path in Path(folder).rglob("*") if path.is_file())
    return {"installed_bytes": float(installed), "load_ms": float(load_ms), "first_answer_ms": first_answer_ms}


def _has_answered(server: Server) -> bool:
    with suppress(RuntimeError):
        return server.get("/") == "Hello, World!"
    return False
