"""Plays a recording of shinyloadtest (version 1: a line of JSON for each event) as users of a Shiny app.

The playback follows that of shinyloadtest. The requests of a page follow one another at once. While the WebSocket is
open, a request, a message or the close comes as long after the event before as in the recording, which is the user's
pause. A `WS_RECV` waits for the next message that the recorder would have recorded, which must have the same keys. Values
that the server made up for the recorded session (`${SESSION}`, `${WORKER}` and so on) are replaced by those of this one.
Unlike in shinyloadtest, a user has one connection for requests, which is reopened when the server closes it, and one
WebSocket.
"""

import base64
import concurrent.futures
import contextlib
import datetime
import http.client
import json
import os
import pathlib
import re
import socket
import struct
import sys
import time
import typing

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

from soak.websocket import frame, handshake  # noqa: E402

# The time for which the server may be silent before a session fails.
LONGEST_SILENCE = 600
# The part of a message that marks it as not recorded.
NOT_RECORDED = {"busy", "progress", "recalculating"}
# A message without content.
NOTHING = {"errors": [], "values": [], "inputMessages": []}


class Event:
    def __init__(self, fields):
        self.type = fields["type"]
        self.fields = fields
        self.begin = timestamp(fields["begin"])


class Played(typing.NamedTuple):
    """One complete session, in seconds: its length, its requests, and its longest wait for a message."""

    whole: float
    requests: float
    message: float


def timestamp(text):
    return datetime.datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()


def read_recording(path):
    """Returns the events of a recording. Raises ValueError for events that this player does not
    support.
    """
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
    """Returns the user's pause before each event, in seconds: 0 if the event waits only for the
    server.
    """
    found, is_open, before = [], False, events[0].begin
    for event in events:
        is_users = event.type in ("WS_SEND", "WS_CLOSE") or (event.type == "REQ_GET" and is_open)
        found.append(max(0.0, event.begin - before) if is_users else 0.0)
        is_open = is_open or event.type == "WS_OPEN"
        before = event.begin
    return found


def is_recorded(message):
    """Returns true if the recorder would have recorded this message of the server."""
    if message == "h" or message.startswith(('a["ACK', '["ACK')):
        return False
    parsed = json.loads(message)
    names = set(parsed) if isinstance(parsed, dict) else set()
    is_log = names == {"custom"} and set(parsed["custom"]) == {"reactlog"}
    return not names & NOT_RECORDED and not is_log and parsed != NOTHING


def is_like(recorded, message):
    """Returns true if a message has the same keys as the recorded one."""
    expected, found = json.loads(recorded), json.loads(message)
    if isinstance(expected, dict) and isinstance(found, dict):
        return set(expected) == set(found)
    return expected == found


class Socket:
    """A WebSocket client: text messages, answers to pings, and the closing handshake."""

    def __init__(self, host, port, path):
        self.connection = socket.create_connection((host, port), LONGEST_SILENCE)
        self.stream = self.connection.makefile("rb")
        key = base64.b64encode(os.urandom(16)).decode()
        self.connection.sendall(handshake(f"{host}:{port}", path, key))
        status = self.stream.readline()
        while self.stream.readline().strip():
            pass
        if not status.startswith(b"HTTP/1.1 101"):
            raise ConnectionError(f"no WebSocket: {status[:60]!r}")

    def send(self, payload, opcode=1):
        self.connection.sendall(frame(opcode, payload, os.urandom(4)))

    def exactly(self, size):
        found = self.stream.read(size)
        if len(found) < size:
            raise ConnectionError("the WebSocket ended")
        return found

    def frame(self):
        first, second = self.exactly(2)
        size = second & 0x7F
        if size > 125:
            size = int.from_bytes(self.exactly(2 if size == 126 else 8), "big")
        return first, self.exactly(size)

    def message(self):
        """Returns the next whole text message."""
        whole = b""
        while True:
            first, payload = self.frame()
            opcode = first & 0x0F
            if opcode == 8:
                raise ConnectionError("the server has closed the WebSocket")
            if opcode == 9:
                self.send(payload, 10)
            elif opcode in (0, 1, 2):
                whole += payload
                if first & 0x80:
                    return whole.decode()

    def close(self):
        self.send(struct.pack("!H", 1000), 8)
        # Waits until the server has closed as well; httpuv closes without a close frame.
        with contextlib.suppress(ConnectionError):
            while self.frame()[0] & 0x0F != 8:
                pass
        self.connection.close()


class Session:
    """One play of the recording."""

    def __init__(self, events, host, port):
        self.events = events
        self.address = (host, port)
        self.tokens = {}
        self.requests = http.client.HTTPConnection(host, port, timeout=LONGEST_SILENCE)
        self.socket = None

    def fill_in(self, text):
        return re.sub(r"\$\{[A-Z_]+\}", lambda match: self.tokens.get(match.group(), match.group()), text)

    def play(self):
        """Plays the session and returns its times. Raises the error that stopped it."""
        start = time.monotonic()
        requests = message = 0.0
        try:
            for event, pause in zip(self.events, pauses(self.events)):
                time.sleep(pause)
                began = time.monotonic()
                self.step(event)
                took = time.monotonic() - began
                if event.type.startswith("REQ_"):
                    requests += took
                elif event.type.startswith("WS_RECV"):
                    message = max(message, took)
        finally:
            self.requests.close()
            if self.socket is not None:
                self.socket.connection.close()
        return Played(time.monotonic() - start, requests, message)

    def step(self, event):
        if event.type.startswith("REQ_"):
            status, body = self.get(self.fill_in(event.fields["url"]))
            if status != event.fields["status"] and {status, event.fields["status"]} != {200, 304}:
                raise ConnectionError(f"{event.fields['url']}: {status} instead of {event.fields['status']}")
            self.learn(event.type, body.decode(errors="replace"))
        elif event.type == "WS_OPEN":
            self.socket = Socket(*self.address, self.fill_in(event.fields["url"]))
        elif event.type == "WS_SEND":
            self.socket.send(self.fill_in(event.fields["message"]).encode())
        elif event.type == "WS_CLOSE":
            self.socket.close()
        else:
            while not is_recorded(message := self.socket.message()):
                pass
            if event.type == "WS_RECV_INIT":
                self.tokens["${SESSION}"] = json.loads(message)["config"]["sessionId"]
            elif not is_like(self.fill_in(event.fields["message"]), message):
                raise ValueError(f"a message unlike the recorded one: {message[:100]}")

    def get(self, path):
        """Returns the status and the body. Reopens a kept-alive connection that the server has closed
        meanwhile.
        """
        while True:
            was_kept = self.requests.sock is not None
            try:
                self.requests.request("GET", path)
                response = self.requests.getresponse()
                return response.status, response.read()
            except (ConnectionError, http.client.HTTPException):
                self.requests.close()
                if not was_kept:
                    raise

    def learn(self, kind, body):
        if kind == "REQ_HOME":
            found = re.search(r"_w_(\w+)/", body)
            if found:
                self.tokens["${WORKER}"] = found.group(1)
        elif kind == "REQ_TOK":
            self.tokens["${TOKEN}"] = body


def play(recording, host, port, users, ramp):
    """Plays `users` sessions that begin `ramp` seconds apart. Returns a `Played` for each complete
    one, and the errors of the others.
    """
    events = read_recording(recording)

    def one(number):
        time.sleep(number * ramp)
        return Session(events, host, port).play()

    with concurrent.futures.ThreadPoolExecutor(users) as pool:
        sessions = [pool.submit(one, number) for number in range(users)]
    failures = [session.exception() for session in sessions if session.exception()]
    played = [session.result() for session in sessions if not session.exception()]
    return played, [f"{type(failure).__name__}: {failure}" for failure in failures]
