"""Plays a recording of shinyloadtest's (version 1: a line of JSON per event) as users of a Shiny app.

As shinyloadtest's own player does it: a page's requests follow one another at once; with the WebSocket open, a request, a
message and the close come as long after the event before as they did in the recording, which is the user's pause; a
`WS_RECV` waits for the next message that the recorder would have recorded, which has to have the same keys; what the server
made up for the recorded session (`${SESSION}`, `${WORKER}` and the like) is replaced by what it made up for this one.
Unlike it, a user has one connection for requests, opened again when the server closes it, and one WebSocket.
"""

import asyncio
import base64
import datetime
import json
import os
import pathlib
import re
import struct
import sys
import time
import typing

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

from runner.websocket import frame, handshake  # noqa: E402

# How long one event may take before its session counts as failed.
LONGEST_EVENT = 600
# The part of a message that says that it was not recorded.
NOT_RECORDED = {"busy", "progress", "recalculating"}
# A message that says nothing.
NOTHING = {"errors": [], "values": [], "inputMessages": []}


class Event:
    def __init__(self, fields):
        self.type = fields["type"]
        self.fields = fields
        self.begin = timestamp(fields["begin"])


class Played(typing.NamedTuple):
    """One session that came to its end, in seconds: all of it, its requests, and its longest wait for a message."""

    whole: float
    requests: float
    message: float


def timestamp(text):
    return datetime.datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()


def read_recording(path):
    """The events of a recording; ValueError for what this player cannot play."""
    with open(path, encoding="utf-8") as lines:
        events = [Event(json.loads(line)) for line in lines if line.strip() and not line.startswith("#")]
    known = {"REQ_HOME", "REQ_SINF", "REQ_TOK", "REQ_GET", "WS_OPEN", "WS_RECV_INIT", "WS_RECV", "WS_SEND", "WS_CLOSE"}
    unknown = {event.type for event in events} - known
    if unknown:
        raise ValueError(f"{path} has events that are not played: {', '.join(sorted(unknown))}")
    if not events:
        raise ValueError(f"{path} has no events")
    return events


def pauses(events):
    """The user's pause before each event, in seconds: 0 where the event waits for the server alone."""
    found, is_open, before = [], False, events[0].begin
    for event in events:
        is_users = event.type in ("WS_SEND", "WS_CLOSE") or (event.type == "REQ_GET" and is_open)
        found.append(max(0.0, event.begin - before) if is_users else 0.0)
        is_open = is_open or event.type == "WS_OPEN"
        before = event.begin
    return found


def is_recorded(message):
    """Whether the recorder would have written this message of the server down."""
    if message == "h" or message.startswith(('a["ACK', '["ACK')):
        return False
    parsed = json.loads(message)
    names = set(parsed) if isinstance(parsed, dict) else set()
    is_log = names == {"custom"} and set(parsed["custom"]) == {"reactlog"}
    return not names & NOT_RECORDED and not is_log and parsed != NOTHING


def is_like(recorded, message):
    """Whether a message is of the recorded one's kind: both have the same keys."""
    expected, found = json.loads(recorded), json.loads(message)
    if isinstance(expected, dict) and isinstance(found, dict):
        return set(expected) == set(found)
    return expected == found


class Requests:
    """One kept connection for requests."""

    def __init__(self, host, port):
        self.address = (host, port)
        self.reader = self.writer = None

    async def get(self, path):
        """Status and body. A kept connection that the server has closed meanwhile is opened again, once."""
        for is_again in (False, True):
            is_new = self.writer is None
            if is_new:
                self.reader, self.writer = await asyncio.open_connection(*self.address)
            host, port = self.address
            try:
                self.writer.write(f"GET {path} HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n".encode())
                return await self.answer()
            except (ConnectionError, asyncio.IncompleteReadError):
                self.close()
                if is_new or is_again:
                    raise
        return None

    async def answer(self):
        head = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        status = int(head.split(" ", 2)[1])
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head.split("\r\n")[1:])}
        if "chunked" in headers.get("transfer-encoding", ""):
            body = b""
            while size := int(await self.reader.readline(), 16):
                body += await self.reader.readexactly(size)
                await self.reader.readexactly(2)
            await self.reader.readexactly(2)
        else:
            body = await self.reader.readexactly(int(headers.get("content-length", 0)))
        if headers.get("connection", "").lower() == "close":
            self.close()
        return status, body

    def close(self):
        if self.writer is not None:
            self.writer.close()
        self.reader = self.writer = None


class Socket:
    """A WebSocket client: text messages, answers to pings, and the closing handshake."""

    @classmethod
    async def open(cls, host, port, path):
        self = cls()
        self.reader, self.writer = await asyncio.open_connection(host, port)
        key = base64.b64encode(os.urandom(16)).decode()
        self.writer.write(handshake(f"{host}:{port}", path, key))
        head = await self.reader.readuntil(b"\r\n\r\n")
        if not head.startswith(b"HTTP/1.1 101"):
            raise ConnectionError(f"no WebSocket: {head[:60]!r}")
        return self

    def send(self, payload, opcode=1):
        self.writer.write(frame(opcode, payload, os.urandom(4)))

    async def frame(self):
        first, second = await self.reader.readexactly(2)
        size = second & 0x7F
        if size == 126:
            (size,) = struct.unpack("!H", await self.reader.readexactly(2))
        elif size == 127:
            (size,) = struct.unpack("!Q", await self.reader.readexactly(8))
        return first, await self.reader.readexactly(size)

    async def message(self):
        """The next text message, whole."""
        whole = b""
        while True:
            first, payload = await self.frame()
            opcode = first & 0x0F
            if opcode == 8:
                raise ConnectionError("the server has closed the WebSocket")
            if opcode == 9:
                self.send(payload, 10)
            elif opcode in (0, 1, 2):
                whole += payload
                if first & 0x80:
                    return whole.decode()

    async def close(self):
        self.send(struct.pack("!H", 1000), 8)
        # Until the server has closed as well; httpuv closes without a close frame.
        try:
            while (await self.frame())[0] & 0x0F != 8:
                pass
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        self.writer.close()


class Session:
    """One play of the recording."""

    def __init__(self, events, host, port):
        self.events = events
        self.host, self.port = host, port
        self.tokens = {}
        self.requests = Requests(host, port)
        self.socket = None

    def fill_in(self, text):
        return re.sub(r"\$\{[A-Z_]+\}", lambda match: self.tokens.get(match.group(), match.group()), text)

    async def play(self):
        """What the session took. Raises what stopped it."""
        start = time.monotonic()
        requests = message = 0.0
        try:
            for event, pause in zip(self.events, pauses(self.events)):
                if pause > 0:
                    await asyncio.sleep(pause)
                began = time.monotonic()
                await asyncio.wait_for(self.step(event), LONGEST_EVENT)
                took = time.monotonic() - began
                if event.type.startswith("REQ_"):
                    requests += took
                elif event.type.startswith("WS_RECV"):
                    message = max(message, took)
        finally:
            self.requests.close()
            if self.socket is not None:
                self.socket.writer.close()
        return Played(time.monotonic() - start, requests, message)

    async def step(self, event):
        if event.type.startswith("REQ_"):
            status, body = await self.requests.get(self.fill_in(event.fields["url"]))
            if status != event.fields["status"] and {status, event.fields["status"]} != {200, 304}:
                raise ConnectionError(f"{event.fields['url']}: {status} instead of {event.fields['status']}")
            self.learn(event.type, body.decode(errors="replace"))
        elif event.type == "WS_OPEN":
            self.socket = await Socket.open(self.host, self.port, self.fill_in(event.fields["url"]))
        elif event.type == "WS_SEND":
            self.socket.send(self.fill_in(event.fields["message"]).encode())
        elif event.type == "WS_CLOSE":
            await self.socket.close()
        else:
            while not is_recorded(message := await self.socket.message()):
                pass
            if event.type == "WS_RECV_INIT":
                self.tokens["${SESSION}"] = json.loads(message)["config"]["sessionId"]
            elif not is_like(self.fill_in(event.fields["message"]), message):
                raise ValueError(f"a message unlike the recorded one: {message[:100]}")

    def learn(self, kind, body):
        if kind == "REQ_HOME":
            found = re.search(r"_w_(\w+)/", body)
            if found:
                self.tokens["${WORKER}"] = found.group(1)
        elif kind == "REQ_TOK":
            self.tokens["${TOKEN}"] = body


async def play(recording, host, port, users, ramp):
    """`users` sessions, begun `ramp` seconds apart: a `Played` for each that came to its end, and why others did not."""
    events = read_recording(recording)

    async def one(number):
        await asyncio.sleep(number * ramp)
        return await Session(events, host, port).play()

    outcomes = await asyncio.gather(*(one(number) for number in range(users)), return_exceptions=True)
    played = [outcome for outcome in outcomes if isinstance(outcome, Played)]
    return played, [f"{type(outcome).__name__}: {outcome}" for outcome in outcomes if not isinstance(outcome, Played)]
