#!/usr/bin/env python3
"""Loads the page of examples/shiny, opens its WebSocket as Shiny's JavaScript does, and has R compute an output.

    page.py <url>
"""

import base64
import hashlib
import json
import os
import socket
import struct
import sys
import time
import urllib.parse
import urllib.request

# For a machine that is busy with something else; nothing waits this long when all is well.
PATIENCE = 60


class Socket:
    """As much of RFC 6455 as this conversation needs, from the client's side."""

    def __init__(self, host: str, port: int) -> None:
        self.stream = socket.create_connection((host, port), timeout=PATIENCE)
        self.input = self.stream.makefile("rb")
        key = base64.b64encode(os.urandom(16))
        self.stream.sendall(
            f"GET /websocket/ HTTP/1.1\r\nHost: {host}:{port}\r\nOrigin: http://{host}:{port}\r\n"
            "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
            f"Sec-WebSocket-Key: {key.decode()}\r\n\r\n".encode()
        )
        status = self.input.readline().decode()
        assert status.startswith("HTTP/1.1 101 "), status
        headers = {}
        while line := self.input.readline().decode().strip():
            name, _, value = line.partition(":")
            headers[name.lower()] = value.strip()
        accept = hashlib.sha1(key + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest()
        assert headers["sec-websocket-accept"] == base64.b64encode(accept).decode(), headers

    def send(self, message: object) -> None:
        """Sends one text message; a client's frames are masked (5.3)."""
        payload = json.dumps(message).encode()
        mask = os.urandom(4)
        length = struct.pack("!B", 0x80 | len(payload)) if len(payload) < 126 else struct.pack("!BH", 0xFE, len(payload))
        masked = bytes(byte ^ mask[n % 4] for n, byte in enumerate(payload))
        self.stream.sendall(b"\x81" + length + mask + masked)

    def receive(self) -> dict:
        """The next text message."""
        text = b""
        while True:
            first, length = self.input.read(2)
            assert length < 128, "a server's frame is not masked"
            if length == 126:
                (length,) = struct.unpack("!H", self.input.read(2))
            elif length == 127:
                (length,) = struct.unpack("!Q", self.input.read(8))
            payload = self.input.read(length)
            if first & 0x0F in (0, 1):
                text += payload
                if first & 0x80:
                    return json.loads(text)
            else:
                assert first & 0x0F != 8, f"closed: {payload!r}"


def value(socket_: Socket, name: str) -> object:
    """The next value of an output."""
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        found = socket_.receive().get("values", {}).get(name)
        if found is not None:
            return found
    raise AssertionError(f"no {name} after {PATIENCE} s")


def main() -> None:
    url = urllib.parse.urlsplit(sys.argv[1])
    # No proxy, whatever the environment names: the server is on this machine.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(sys.argv[1], timeout=PATIENCE) as answer:
        page = answer.read().decode()
        assert answer.status == 200
    assert "Old Faithful" in page, page

    shiny = Socket(url.hostname, url.port)
    assert "config" in shiny.receive()
    shiny.send({
        "method": "init",
        "data": {
            "bins:shiny.number": 20,
            "title": "A plot",
            ".clientdata_output_summary_hidden": False,
            ".clientdata_pixelratio": 1,
            ".clientdata_url_protocol": "http:",
            ".clientdata_url_hostname": url.hostname,
            ".clientdata_url_port": str(url.port),
            ".clientdata_url_pathname": "/",
            ".clientdata_url_search": "",
            ".clientdata_url_hash_initial": "",
            ".clientdata_url_hash": "",
        },
    })
    summary = value(shiny, "summary")
    assert summary.startswith("272 eruptions in 20 bins of "), summary
    shiny.send({"method": "update", "data": {"bins:shiny.number": 7}})
    summary = value(shiny, "summary")
    assert summary.startswith("272 eruptions in 7 bins of "), summary
    print(f"the page and its WebSocket answer at {sys.argv[1]}: {summary}")


if __name__ == "__main__":
    main()
