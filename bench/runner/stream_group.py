"""Answers in pieces: how many R makes, how late they and their end are, and what they do to memory."""

import json
import socket
import time

from . import build
from .machine import GENERATOR_CORE, pinned, sample
from .peers import Server
from .plan import ONE_GIB, WARM_UP_S, Options, Servers
from .sampling import SAMPLES, Cell
from .scenarios import Scenario

PIECE = 1 << 20
UPLOADED = 10 * 10**9
# Pieces whose way is timed, and clients that leave.
TIMED = 100
DEPARTURES = 20
TIME_LIMIT_S = 300.0


def measure_pieces(row: list[Cell], scenario: Scenario, servers: Servers, options: Options) -> None:
    generator = str(build.c_program("streamload"))
    servers.interleave(row, scenario, lambda server, seconds: _pieces(server, scenario, seconds, options.placement, generator))


def _pieces(server: Server, scenario: Scenario, seconds: float, placement: str, generator: str) -> dict[str, float]:
    load = [server.port, scenario.path, scenario.connections, seconds]
    text, spent = sample([*pinned(GENERATOR_CORE, placement), generator, *map(str, load)], seconds + 30, server)
    result = json.loads(text)
    if result["errors"] > 0:
        raise RuntimeError(f"{result['errors']} answers were cut or not of status 200; {server.last_words()}")
    if result["pieces"] == 0:
        raise RuntimeError("no piece came")
    rate = result["pieces"] / result["seconds"]
    wanted = scenario.extra.get("rate", 0) * scenario.connections
    if wanted and seconds > WARM_UP_S and rate < 0.9 * wanted:
        raise RuntimeError(f"{rate:,.0f} of {wanted:,} events a second came")
    return {"messages_per_second": rate, "cpu_us_per_message": spent / result["pieces"] * 1e6}


def measure_delay(row: list[Cell], scenario: Scenario, servers: Servers, options: Options) -> None:
    """Each piece is the time at which it was written, in seconds since 1970, by the clock that this program reads as well."""

    def measure(cell: Cell, server: Server) -> None:
        for _ in range(1 if options.quick else SAMPLES):
            late = []
            with _ask(server, scenario.path) as connection:
                text = b""
                while len(late) < TIMED:
                    more = connection.recv(65536)
                    now = time.time()
                    if not more:
                        raise RuntimeError(f"the stream ended early; {server.last_words()}")
                    *lines, text = (text + more).split(b"\n")
                    late += [(now - float(line[1:-1])) * 1000 for line in lines if line.startswith(b"~")]
            cell.samples.append(_percentiles(late))

    servers.each(row, measure)


def measure_departure(row: list[Cell], scenario: Scenario, servers: Servers, options: Options) -> None:
    def measure(cell: Cell, server: Server) -> None:
        late = []
        for _ in range(DEPARTURES):
            with _ask(server, scenario.path) as connection:
                while b"~" not in connection.recv(65536):
                    pass
                left = time.time()
            deadline = time.monotonic() + 10
            while (told := float(server.get("/told"))) < left:
                if time.monotonic() > deadline:
                    raise RuntimeError("on_close was not called in ten seconds")
                time.sleep(0.005)
            late.append((told - left) * 1000)
        cell.samples.append(_percentiles(late))

    servers.each(row, measure)


def _percentiles(late: list[float]) -> dict[str, float]:
    late = sorted(late)
    shares = {"delay_p50_ms": 0.5, "delay_p90_ms": 0.9, "delay_p99_ms": 0.99}
    return {name: late[min(len(late) - 1, int(share * len(late)))] for name, share in shares.items()}


def measure_slow(row: list[Cell], scenario: Scenario, servers: Servers, _: Options) -> None:
    def measure(cell: Cell, server: Server) -> None:
        cell.samples.append(_growth(server, lambda: _read_slowly(server, scenario.path)))

    servers.each(row, measure)


def measure_upload(row: list[Cell], scenario: Scenario, servers: Servers, _: Options) -> None:
    def measure(cell: Cell, server: Server) -> None:
        cell.samples.append(_growth(server, lambda: _upload(server, scenario.path)))

    servers.each(row, measure)


def _growth(server: Server, transfer) -> dict[str, float]:
    before = server.memory_bytes("VmRSS")
    server.reset_peak()
    spent, began = server.cpu_seconds(), time.monotonic()
    try:
        transfer()
    except OSError as error:
        raise RuntimeError(f"{error!r}; {server.last_words()}") from error
    return {
        "seconds": time.monotonic() - began,
        "growth_bytes": float(max(0, server.memory_bytes("VmHWM") - before)),
        "cpu_seconds": server.cpu_seconds() - spent,
    }


def _read_slowly(server: Server, path: str) -> None:
    got, buffer = 0, bytearray(PIECE)
    with _ask(server, path) as connection:
        while True:
            wanted = memoryview(buffer)
            while len(wanted) and (size := connection.recv_into(wanted)):
                wanted = wanted[size:]
            got += PIECE - len(wanted)
            if len(wanted):
                break
            time.sleep(0.005)
    if not ONE_GIB <= got < ONE_GIB * 1.01:
        raise RuntimeError(f"{got} bytes came")


def _upload(server: Server, path: str) -> None:
    piece = bytes(PIECE)
    head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {UPLOADED}\r\nConnection: close\r\n\r\n"
    with socket.create_connection(("127.0.0.1", server.port), timeout=TIME_LIMIT_S) as connection:
        connection.sendall(head.encode())
        left = UPLOADED
        while left:
            connection.sendall(piece[: min(left, PIECE)])
            left -= min(left, PIECE)
        answer = b""
        while more := connection.recv(65536):
            answer += more
    if not answer.endswith(b"\r\n\r\n" + str(UPLOADED).encode()):
        raise RuntimeError(f"unexpected answer {answer[:60]!r} .. {answer[-20:]!r}")


def _ask(server: Server, path: str) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", server.port), timeout=TIME_LIMIT_S)
    connection.sendall(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n".encode())
    return connection
