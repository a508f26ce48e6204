"""Clients that speak HTTP/1.1, HTTPS and HTTP/2 over real sockets, for the attackers and the honest clients."""

import contextlib
import re
import socket
import ssl
import struct
import time
from typing import NamedTuple

# The protocols that an attacker can speak.
PROTOCOLS = ("http", "tls", "h2")
HANDSHAKE = (
    b"GET /ws HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n%s\r\n"
)
# Python names it since 3.13.
IP_BIND_ADDRESS_NO_PORT = 24
# The address of the load balancer that announces clients.
BALANCER = "127.0.0.1"
# HTTP/2 (RFC 9113): frame types and flags.
DATA, HEADERS, RST_STREAM, SETTINGS, PING, WINDOW_UPDATE = 0, 1, 3, 4, 6, 8
END_STREAM, ACK, END_HEADERS = 1, 1, 4
INITIAL_WINDOW, MAX_WINDOW = 65_535, 2**31 - 1


class Address(NamedTuple):
    """The address of a server, the one from which a client connects to it, and the number of its R processes. If `is_announced`, a load balancer
    connects instead, and announces the client with the PROXY protocol."""

    host: str
    port: int
    has_tls: bool
    source: str = "127.0.0.1"
    processes: int = 1
    is_announced: bool = False


def _context(protocol):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(["h2" if protocol == "h2" else "http/1.1"])
    return context


def connect(address, protocol, receive_buffer=None, timeout=10, first=b""):
    """Returns a connected socket that has sent `first`, together with what announces the client."""
    client = socket.socket()
    client.settimeout(timeout)
    if receive_buffer:
        # A small buffer, so that what the client's kernel accepts does not count as read.
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    # The source has a port for each server to which it connects.
    client.setsockopt(socket.IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, 1)
    client.bind((BALANCER if address.is_announced else address.source, 0))
    client.connect((address.host, address.port))
    if address.is_announced:
        first = b"PROXY TCP4 %s %s 5555 443\r\n" % (address.source.encode(), address.host.encode()) + first
    if first:
        client.sendall(first)
    return _context(protocol).wrap_socket(client, server_hostname="localhost") if address.has_tls else client


def request(address, path, timeout=10):
    """Sends a GET on a new HTTP/1.1 connection, for `/upload?` and a number a POST of so many bytes, for `/header` with a header whose name is
    new, and for `/page` as a browser requests a page. Returns the head and the body; raises an OSError if there is no complete response."""
    size = int(path.partition("?")[2]) if path.startswith("/upload?") else 0
    method, length = (b"POST", b"Content-Length: %d\r\n" % size) if size else (b"GET", b"")
    if path == "/header":
        name = f"X-Honest-{time.monotonic_ns()}"
        path, length = f"{path}?{name}", f"{name}: {name}\r\n".encode()
    with contextlib.closing(connect(address, "tls" if address.has_tls else "http", timeout=timeout)) as client:
        # Programs accept everything, and only a page begins a session.
        accepted = b"text/html" if path == "/page" else b"*/*"
        client.sendall(b"%s %s HTTP/1.1\r\nHost: a\r\nAccept: %s\r\nConnection: close\r\n%s\r\n" % (method, path.encode(), accepted, length)
                       + bytes(size))
        received = bytearray()
        with contextlib.suppress(ssl.SSLEOFError):
            while part := client.recv(65536):
                received += part
    head, _, body = received.partition(b"\r\n\r\n")
    length = re.search(rb"(?i)\r\ncontent-length: *(\d+)", head)
    if not head or (length and len(body) < int(length[1])):
        raise ConnectionResetError(f"an incomplete response of {len(received)} bytes")
    return head, body


def get(address, path, timeout=10):
    """Sends a GET as `request` does, and returns the status."""
    return int(request(address, path, timeout)[0].split()[1])


def message(payload=b"", opcode=1, first=0x80):
    """Returns a WebSocket message as a client sends it, masked with zeros."""
    size = len(payload)
    if size < 126:
        length = bytes([0x80 | size])
    else:
        length = struct.pack("!BH", 0xFE, size) if size < 65536 else struct.pack("!BQ", 0xFF, size)
    return bytes([first | opcode]) + length + bytes(4) + payload


def frame(kind, flags, stream, payload=b""):
    """Returns an HTTP/2 frame."""
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def _string(text):
    # A length of 127 or more continues in a second byte, which suffices up to 254.
    return (bytes([len(text)]) if len(text) < 127 else bytes([127, len(text) - 127])) + text


def _literal(name, value):
    return b"\x00" + _string(name) + _string(value)


class Http2:
    """An HTTP/2 connection that never extends its window, and reads no response unless it is told to."""

    def __init__(self, address, receive_buffer=None, window=MAX_WINDOW):
        self.socket = connect(address, "h2", receive_buffer)
        # The client accepts everything: what it does not read must count at the server.
        # It acknowledges the server's settings before it reads them.
        self.socket.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(SETTINGS, 0, 0, struct.pack(">HI", 4, window))
                            + frame(SETTINGS, ACK, 0))
        if window > INITIAL_WINDOW:
            self.socket.sendall(frame(WINDOW_UPDATE, 0, 0, struct.pack(">I", window - INITIAL_WINDOW)))
        self.next = 1
        self.buffer = b""
        # What the server lets this client send, and what it lets each new stream send.
        self.windows, self.initial = {0: INITIAL_WINDOW}, INITIAL_WINDOW

    def get(self, path, cookie=b"", coding=b""):
        """Returns the frame of a GET on a new stream."""
        block = b"\x82\x87\x04" + bytes([len(path)]) + path.encode() + b"\x01\x01a"
        block += _literal(b"cookie", cookie) if cookie else b""
        block += _literal(b"accept-encoding", coding) if coding else b""
        return self._open(block, END_STREAM | END_HEADERS)

    def post(self, path):
        """Returns the frame of a POST on a new stream, whose body is sent with `data`."""
        block = b"\x83\x87\x04" + bytes([len(path)]) + path.encode() + b"\x01\x01a"
        return self._open(block, END_HEADERS)

    def websocket(self):
        """Returns the frame that opens a WebSocket on a new stream (RFC 8441)."""
        block = (b"\x02\x07CONNECT" + _literal(b":protocol", b"websocket") + b"\x87\x04\x03/ws\x01\x01a"
                 + _literal(b"sec-websocket-version", b"13"))
        return self._open(block, END_HEADERS)

    def _open(self, block, flags):
        # The first header block empties the dynamic table, as the server's settings require.
        opened = frame(HEADERS, flags, self.next, b"\x20" + block if self.next == 1 else block)
        self.windows[self.next] = self.initial
        self.next += 2
        return opened

    def frames(self, timeout):
        """Yields kind, stream and payload of the frames that arrive until none has for `timeout` seconds."""
        self.socket.settimeout(timeout)
        while True:
            while len(self.buffer) < 9 or len(self.buffer) < 9 + int.from_bytes(self.buffer[:3], "big"):
                try:
                    part = self.socket.recv(65536)
                except (TimeoutError, OSError):
                    return
                if not part:
                    return
                self.buffer += part
            size = int.from_bytes(self.buffer[:3], "big")
            kind, flags, stream = self.buffer[3], self.buffer[4], int.from_bytes(self.buffer[5:9], "big")
            payload, self.buffer = self.buffer[9 : 9 + size], self.buffer[9 + size :]
            if kind == WINDOW_UPDATE:
                self.windows[stream] = self.windows.get(stream, 0) + int.from_bytes(payload, "big")
            elif kind == SETTINGS and not flags & ACK:
                for name, value in struct.iter_unpack(">HI", payload):
                    if name == 4:
                        for known in self.windows.keys() - {0}:
                            self.windows[known] += value - self.initial
                        self.initial = value
            elif kind == PING and not flags & ACK:
                self.socket.sendall(frame(PING, ACK, 0, payload))
            yield kind, stream, payload

    def data(self, stream, data, until, is_last=False):
        """Sends as much data as the windows allow until the time `until`. Returns true if that is all of it."""
        at = 0
        while at < len(data) and time.monotonic() < until:
            room = min(self.windows[0], self.windows[stream], 16_384, len(data) - at)
            if room <= 0:
                for _ in self.frames(0.05):
                    pass
                continue
            self.socket.settimeout(max(0.05, until - time.monotonic()))
            ends = END_STREAM if is_last and at + room == len(data) else 0
            try:
                self.socket.sendall(frame(DATA, ends, stream, data[at : at + room]))
            except TimeoutError:
                return False
            self.windows[0] -= room
            self.windows[stream] -= room
            at += room
        return at == len(data)


class WebSocket:
    """A WebSocket over any of the protocols, which sends what it is given and reads echoes."""

    def __init__(self, address, protocol, extensions=b"", receive_buffer=None):
        if protocol == "h2":
            self.http2 = Http2(address, receive_buffer)
            self.socket = self.http2.socket
            self.stream = self.http2.next
            self.socket.sendall(self.http2.websocket())
            # `:status: 200` is a field of HPACK's static table.
            if not any(kind == HEADERS and b"\x88" in payload[:4] for kind, _, payload in self.http2.frames(5)):
                raise ConnectionRefusedError("the WebSocket was refused")
        else:
            self.http2 = None
            self.socket = connect(address, protocol, receive_buffer)
            self.socket.sendall(HANDSHAKE % extensions)
            head = b""
            while b"\r\n\r\n" not in head:
                part = self.socket.recv(4096)
                if not part:
                    raise ConnectionRefusedError(f"the WebSocket was refused: {head[:40]!r}")
                head += part
            if b" 101 " not in head:
                raise ConnectionRefusedError(f"the WebSocket was refused: {head[:40]!r}")

    def send(self, data, until):
        """Sends `data`, or the part of it that the server takes until the time `until`."""
        if self.http2:
            self.http2.data(self.stream, data, until)
            return
        at = 0
        self.socket.settimeout(0.2)
        while at < len(data) and time.monotonic() < until:
            with contextlib.suppress(TimeoutError):
                at += self.socket.send(memoryview(data)[at:])

    def flood(self, data, until):
        """Sends `data` again and again until the time `until`, or until the server ends the connection."""
        with contextlib.suppress(OSError):
            while time.monotonic() < until:
                self.send(data, until)

    def echo(self, text, timeout):
        """Sends a text and returns after its echo has arrived; raises a TimeoutError or a ConnectionError."""
        self.socket.settimeout(timeout)
        self.socket.sendall(message(text))
        received = b""
        while text not in received:
            part = self.socket.recv(65536)
            if not part:
                raise ConnectionResetError("the WebSocket was closed")
            received = (received + part)[-(1 << 16) :]
