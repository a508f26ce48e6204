"""Thousands of clients that send heads or bodies byte by byte, or read responses as slowly. They
occupy no R process, and other clients do not wait for them.
"""

import asyncio
import multiprocessing
import time
from statistics import median

from soak import load
from soak.fleet import Clients, Fleet
from soak.load import Kind, Client

SHORT, LONG = 200, 1000
# Each of them requests 4 MiB, a part of which the server keeps in memory.
READERS = 100
# The rate of others is measured with and without these clients in turns.
TURNS_SHORT, TURNS_LONG, TURN_SHORT_S, TURN_LONG_S = 2, 4, 3.0, 10.0
# The share of the others' rate that has to remain; a busy machine has other reasons for less.
LEAST_SHORT, LEAST_LONG = 0.4, 0.9


def crowds(is_long: bool) -> list[str]:
    count = LONG if is_long else SHORT
    turns, seconds = (TURNS_LONG, TURN_LONG_S) if is_long else (TURNS_SHORT, TURN_SHORT_S)
    ratios = []
    with Fleet("--max-connections", "16000") as fleet, Clients(fleet) as clients:
        clients.wait_for(200)
        for _ in range(turns):
            alone = _rate(clients, seconds)
            crowd = multiprocessing.get_context("spawn").Process(target=_crowd, args=(fleet.port, count), daemon=True)
            crowd.start()
            try:
                wanted = 2 * count + READERS
                fleet.wait("they are there", lambda: fleet.status()["connections"] >= 0.9 * wanted)  # noqa: B023
                beside = _rate(clients, seconds)
                most = fleet.status()["connections"]
            finally:
                crowd.kill()
                crowd.join()
            ratios.append(beside / alone)
            print(f"{alone:.0f} requests/s alone, {beside:.0f} beside {most} connections that take their time")
        fleet.wait("they have left", lambda: fleet.status()["connections"] <= 2 * len(clients.threads))
        clients.end()
    ratio = median(ratios)
    print(f"{ratio:.2f} of the rate is left (median of {turns}), {clients.total} requests, failed: {clients.failed or 'none'}")
    found = [f"failed: {clients.failed}"] if clients.failed else []
    least = LEAST_LONG if is_long else LEAST_SHORT
    return found + ([f"{ratio:.2f} of the rate is left, at least {least}"] if ratio < least else [])


def _rate(clients: Clients, seconds: float) -> float:
    before, began = clients.total, time.monotonic()
    time.sleep(seconds)
    return (clients.total - before) / (time.monotonic() - began)


async def _head(client: Client) -> None:
    await client.send(b"GET / HTTP/1.1\r\nHost: soak\r\nX-Slow: ")
    await _drip(client)


async def _body(client: Client) -> None:
    await client.send(b"POST /upload HTTP/1.1\r\nHost: soak\r\nContent-Length: 100000\r\n\r\n")
    await _drip(client)


async def _drip(client: Client) -> None:
    """Sends bytes until the server closes the connection."""
    while True:
        await asyncio.sleep(1)
        await client.send(b"x")


async def _reader(client: Client) -> None:
    await client.send(b"GET /big HTTP/1.1\r\nHost: soak\r\n\r\n")
    while True:
        await client.receive(1024)
        await asyncio.sleep(1)


def _crowd(port: int, count: int) -> None:
    """Runs until it is killed."""
    load.PORT = port
    kinds = [Kind(_head, count, 0.5, False), Kind(_body, count, 0.5, False), Kind(_reader, READERS, 0.5, False, receive_buffer=4096)]

    async def all_of_them() -> None:
        await asyncio.gather(*(kind.loop() for kind in kinds for _ in range(kind.tasks)))

    asyncio.run(all_of_them())
