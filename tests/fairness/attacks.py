"""Clients that try to take more than their share. Each attack is a function of the server's address, the protocol, and the time of its end."""

import contextlib
import dataclasses
import functools
import threading
import time
import zlib
from collections.abc import Callable

from clients import PROTOCOLS, Http2, WebSocket, connect, message

ATTACKS = {}


@dataclasses.dataclass
class Attack:
    """One attack: its function, and what it needs of the server."""

    # The address from which honest clients connect.
    HONEST = "127.0.0.1"

    function: Callable
    protocols: tuple
    # The numbers of workers; none is an R process that serves without the program.
    modes: tuple
    # Options of the program, and limits of the server by their names.
    options: tuple
    limits: dict
    descriptors: int | None
    # The seconds for which one call of the app takes R, and for how many of them an honest client may wait, if that is judged.
    busy: float
    turns: int | None
    # The address from which the attacker connects.
    source: str
    # What honest clients request.
    paths: tuple

    @property
    def memory(self):
        """The limit on the memory of all clients, in bytes, if the attack tries to exceed it."""
        return self.limits.get("max_client_memory")


def attack(*options, protocols=PROTOCOLS, modes=(1, 2), limits=None, descriptors=None, busy=0.0, turns=None, source=Attack.HONEST,
           paths=("/small", "/files/small.txt")):
    """Registers an attack."""

    def register(function):
        given = Attack(function, protocols, modes, options, limits or {}, descriptors, busy, turns, source, paths)
        ATTACKS[function.__name__] = given
        return function

    return register


# Registers an attack from another address than that of the honest clients, also on an R process that serves by itself.
attack_from_elsewhere = functools.partial(attack, source="127.0.0.2", modes=(0, 1, 2))


def rest(until, keep):
    """Keeps connections open until the time `until`."""
    time.sleep(max(0, until - time.monotonic()))
    del keep


def together(count, run):
    """Calls `run` in `count` threads, and waits for them. A connection that is refused or closed ends its thread."""

    def attempt():
        with contextlib.suppress(OSError):
            run()

    threads = [threading.Thread(target=attempt) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


@attack()
def empty_messages_of_one_websocket(address, protocol, until):
    WebSocket(address, protocol).flood(message() * 2000, until)


@attack()
def empty_messages_of_four_websockets(address, protocol, until):
    together(4, lambda: WebSocket(address, protocol).flood(message() * 2000, until))


@attack()
def small_messages_that_are_echoed_and_not_read(address, protocol, until):
    together(4, lambda: WebSocket(address, protocol).flood(message(bytes(200), 2) * 300, until))


@attack()
def pongs(address, protocol, until):
    together(2, lambda: WebSocket(address, protocol).flood(message(b"", 10) * 100_000, until))


def _many_requests(address, protocol, path, connections, streams, until):
    kept = []
    with contextlib.suppress(OSError):
        for _ in range(connections):
            if protocol == "h2":
                client = Http2(address, 4096)
                client.socket.sendall(b"".join(client.get(path) for _ in range(streams)))
                kept.append(client)
                continue
            for _ in range(streams):
                client = connect(address, protocol, 4096)
                client.sendall(b"GET %s HTTP/1.1\r\nHost: a\r\n\r\n" % path.encode())
                kept.append(client)
    rest(until, kept)


# Over HTTP/1.1, each of these requests comes from a peer of its own, of the same size as an honest one; see `many_connections`.
@attack(busy=0.02, protocols=("h2",))
def queued_requests(address, protocol, until):
    _many_requests(address, protocol, "/sleep?0.02", 11, 100, until)


@attack()
def unread_downloads_of_files(address, protocol, until):
    _many_requests(address, protocol, "/files/large.bin", 10, 100 if protocol == "h2" else 60, until)


# Each stream that is not read keeps a file open, and together they are more than the descriptors of the process.
@attack_from_elsewhere(descriptors=512, protocols=("h2",), paths=("/small", "/files/small.txt", "/files/large.bin"))
def unread_downloads_of_files_beyond_the_descriptors(address, protocol, until):
    _many_requests(address, protocol, "/files/large.bin", 10, 90, until)


@attack(limits={"max_client_memory": 100_000_000})
def unread_responses_of_r(address, protocol, until):
    _many_requests(address, protocol, "/large?20000000", 10, 15, until)


@attack()
def idle_websockets(address, protocol, until):
    kept = []
    with contextlib.suppress(OSError):
        for _ in range(16):
            if protocol == "h2":
                client = Http2(address)
                client.socket.sendall(b"".join(client.websocket() for _ in range(100)))
                for _ in client.frames(0.3):
                    pass
                kept.append(client)
            else:
                kept += [WebSocket(address, protocol) for _ in range(100)]
    rest(until, kept)


@attack(protocols=("http", "tls"))
def small_files_on_kept_connections(address, protocol, until):
    clients = []
    with contextlib.suppress(OSError):
        clients += [connect(address, protocol) for _ in range(500)]
    block = b"GET /files/small.txt HTTP/1.1\r\nHost: a\r\n\r\n" * 16
    for client in clients:
        client.setblocking(False)
    while time.monotonic() < until:
        for client in clients:
            with contextlib.suppress(OSError, ValueError):
                client.send(block)
            with contextlib.suppress(OSError, ValueError):
                client.recv(1 << 16)


@attack(limits={"max_client_memory": 200_000_000}, busy=1.0)
def large_messages_while_r_is_busy(address, protocol, until):
    client = WebSocket(address, protocol)
    client.send(message(b"sleep 1"), until)
    client.flood(message(bytes(60 << 20), 2), until)


@attack(limits={"max_client_memory": 200_000_000}, busy=1.0, protocols=("http", "tls"))
def compressed_messages_while_r_is_busy(address, protocol, until):
    deflate = b"Sec-WebSocket-Extensions: permessage-deflate; client_no_context_takeover; server_no_context_takeover\r\n"
    client = WebSocket(address, protocol, deflate)
    client.send(message(b"sleep 1"), until)
    compressor = zlib.compressobj(9, zlib.DEFLATED, -15)
    data = compressor.compress(bytes(32 << 20)) + compressor.flush(zlib.Z_SYNC_FLUSH)
    client.flood(message(data[:-4], 2, 0xC0), until)


@attack(descriptors=256, protocols=("http", "tls"))
def idle_connections_beyond_the_descriptors(address, protocol, until):
    kept = []
    while time.monotonic() < until and len(kept) < 400:
        with contextlib.suppress(OSError):
            kept.append(connect(address, protocol, timeout=0.5))
    rest(until, kept)
