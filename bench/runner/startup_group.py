"""The installed size of a package, the time to load it, and the time to its first answer."""

import http.client
import subprocess
import time
from pathlib import Path

from . import peers
from .machine import SERVER_CORE, bystanders, pinned, run
from .plan import Options, Servers, static_folder
from .sampling import OK, Cell, interleave
from .scenarios import Scenario


def measure(row: list[Cell], _: Scenario, __: Servers, options: Options) -> None:
    for cell in row:
        if cell.status == OK:
            cell.single["installed_bytes"] = float(_installed_bytes(cell.peer))
    interleave(row, lambda cell: _one(cell.peer, options.placement))


def _script(peer: str, code: str, placement: str) -> str:
    return run([*pinned(SERVER_CORE, placement), *peers.r_code(peer, code)], 60, peers.environment()).stdout.strip()


def _installed_bytes(peer: str) -> int:
    folder = Path(_script(peer, f"cat(find.package('{peer}'))", "free"))
    return sum(path.lstat().st_size for path in folder.rglob("*") if path.is_file())


def _one(peer: str, placement: str) -> dict[str, float]:
    code = (
        f"took <- system.time(suppressPackageStartupMessages(library('{peer}', character.only = TRUE)), gcFirst = FALSE); "
        "cat(took[['elapsed']] * 1000)"
    )
    others = bystanders.sample()
    figures = {"load_ms": float(_script(peer, code, placement)), "first_answer_ms": _first_answer_ms(peer, placement)}
    others.end(0.0)
    return figures


def _first_answer_ms(peer: str, placement: str) -> float:
    """From the start of Rscript to the whole answer to a first GET, asked again every 2 ms until it comes."""
    port = peers.next_port()
    line = [*pinned(SERVER_CORE, placement), *peers.command(peer, port, "hello", static_folder())]
    began = time.monotonic()
    process = subprocess.Popen(
        line,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=peers.environment(),
    )
    try:
        while time.monotonic() - began < peers.START_LIMIT_S:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=peers.START_LIMIT_S)
            try:
                connection.request("GET", "/")
                if connection.getresponse().read() == b"Hello, World!":
                    return (time.monotonic() - began) * 1000
            except (OSError, http.client.HTTPException):
                time.sleep(0.002)
            finally:
                connection.close()
        raise RuntimeError(f"no answer within {peers.START_LIMIT_S:.0f} s")
    finally:
        peers.end(process)
