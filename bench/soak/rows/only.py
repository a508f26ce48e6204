"""Reloads and kills of the only worker, under load and with open WebSockets."""

import os
import signal
import socket

from soak.fleet import Clients, Fleet, children
from soak.rows.kills import left_behind, left_over, too_many_failed
from soak.websocket import handshake

TIMES_SHORT, TIMES_LONG = 5, 20
CLOSE = 0x88


def only(is_long: bool) -> list[str]:
    """A reload costs no request, and a kill at most the one that R had begun, which gets 502. The
    WebSockets of a killed worker get a close frame.
    """
    times = TIMES_LONG if is_long else TIMES_SHORT
    before, found = left_behind(), []
    with Fleet(workers=1) as fleet, Clients(fleet) as clients:
        kept = [_websocket(fleet) for _ in range(times)]
        for _ in range(times):
            fleet.reload()
        found += [f"reloads cost {dict(clients.failed)}"] if clients.failed else []
        for websocket in kept:
            websocket.close()
        for _ in range(times):
            known = fleet.starts()
            with _websocket(fleet) as websocket:
                fleet.wait("it is ready", fleet.ready)
                os.kill(fleet.ready()[0], signal.SIGKILL)
                fleet.wait("the next is ready", lambda known=known: fleet.starts() > known)
                websocket.settimeout(20)
                found += [] if websocket.recv(100)[:1] == bytes([CLOSE]) else ["a WebSocket got no close frame"]
        clients.end()
        zombies, left = fleet.zombies(), len(children(fleet.pid)) - 1
    print(f"{times} reloads and {times} kills of the only worker, {clients.total} requests, failed: {clients.failed or 'none'}")
    found += [f"{left} workers too many"] if left > 0 else []
    return found + too_many_failed(times, clients.failed) + left_over(zombies, before)


def _websocket(fleet: Fleet) -> socket.socket:
    """Opens a WebSocket, which sends nothing."""
    opened = socket.create_connection(("127.0.0.1", fleet.port), timeout=60)
    opened.sendall(handshake("127.0.0.1", "/"))
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        head += opened.recv(1)
    if not head.startswith(b"HTTP/1.1 101 "):
        raise RuntimeError(f"no WebSocket: {head!r}")
    return opened
