"""A client of raw sockets that writes down what comes back, in aspects that are compared one by one."""

import collections
import gzip
import re
import select
import socket
import struct
import time
import zlib

# A byte that has not come this long is asked for with a barrier, see `Wire._more`.
SHORT = 0.25
# What may keep a connection waiting on a busy machine.
LONG = 60

DATE = re.compile(rb"^[A-Z][a-z]{2}, \d\d [A-Z][a-z]{2} \d{4} \d\d:\d\d:\d\d GMT$")
# Headers that the server is answerable for. They are compared as aspects of their own.
FRAMING = (b"date", b"connection", b"content-length", b"transfer-encoding", b"keep-alive")
VALIDATORS = (b"etag", b"accept-ranges", b"vary")


def shown(data):
    """Bytes as text of one line, abridged."""
    text = data.decode("latin-1").encode("unicode_escape").decode() if isinstance(data, bytes) else data
    return text if len(text) <= 600 else f"{text[:200]}... ({len(data)} bytes, crc {zlib.crc32(data):08x})"


class Wire:
    """One connection. The aspects of what it saw are in `record`, a list of lines each."""

    def __init__(self, side, address, family=socket.AF_INET):
        self.side = side
        self.address = address
        self.record = collections.defaultdict(list)
        self.buffer = b""
        self.ended = None
        self.opened = False
        self.socket = socket.socket(family, socket.SOCK_STREAM)
        self.socket.settimeout(LONG)
        self.socket.connect(address)
        if family != socket.AF_UNIX:
            self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.family = family
        self.port = self.socket.getsockname()[1] if family != socket.AF_UNIX else None

    # ---- Writing ----

    def send(self, data, at=()):
        """Writes bytes, with a pause at each of the offsets `at`, so that they arrive in segments of their own."""
        begin = 0
        for end in [*at, len(data)]:
            if begin > 0:
                time.sleep(0.03)
            try:
                self.socket.sendall(data[begin:end])
            except OSError:
                # The server has closed; reading tells how.
                return
            begin = end

    def shut(self):
        """Says that nothing more comes."""
        self.socket.shutdown(socket.SHUT_WR)

    def abort(self):
        """Ends the connection with a reset."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close()

    def close(self):
        """Ends the connection."""
        self.socket.close()

    # ---- Reading ----

    def _more(self):
        """Reads once; False when the other end has closed, or nothing comes although the server has nothing to do."""
        if self.ended:
            return False
        if not self._wait(SHORT):
            self.side.barrier()
            if not self._wait(SHORT):
                return False
        try:
            if self.family != socket.AF_UNIX:
                # Or a head and a body in two writes cost 40 ms.
                self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)
            data = self.socket.recv(1 << 18)
        except OSError:
            self.ended = "reset"
            return False
        if not data:
            self.ended = "closed"
            return False
        self.buffer += data
        return True

    def _wait(self, seconds):
        return bool(select.select([self.socket], [], [], seconds)[0])

    def _until(self, mark):
        while mark not in self.buffer:
            if not self._more():
                return False
        return True

    def _take(self, length):
        while len(self.buffer) < length:
            if not self._more():
                break
        data, self.buffer = self.buffer[:length], self.buffer[length:]
        return data

    def answer(self, method="GET"):
        """Reads one response and writes it down. False when there is none."""
        if not self._until(b"\r\n\r\n"):
            self.record["status"].append("none" if not self.buffer else "no head: " + shown(self.buffer))
            return False
        head, self.buffer = self.buffer.split(b"\r\n\r\n", 1)
        line, *lines = head.split(b"\r\n")
        version, code, reason = (line.split(b" ", 2) + [b"", b""])[:3]
        self.record["status"].append(code.decode("latin-1"))
        self.record["version"].append(version.decode("latin-1"))
        self.record["reason"].append(f"{code.decode('latin-1')} {reason.decode('latin-1')}")
        fields = [(name, value.strip(b" \t")) for name, _, value in (field.partition(b":") for field in lines)]
        self._headers(fields)
        last = {name.lower(): value for name, value in fields}
        bare = method == "HEAD" or code in (b"204", b"304") or code.startswith(b"1")
        if b"chunked" in last.get(b"transfer-encoding", b"").lower() and not bare:
            framing, body = "chunked", self._chunks()
        elif bare:
            framing, body = f"length {last[b'content-length'].decode()}" if b"content-length" in last else "none", b""
        elif b"content-length" in last and re.fullmatch(rb"\d+", last[b"content-length"]):
            framing, body = "length " + last[b"content-length"].decode(), self._take(int(last[b"content-length"]))
        else:
            framing, body = "until the end", b""
            while self._more():
                pass
            body, self.buffer = self.buffer, b""
        if last.get(b"content-encoding") == b"gzip" and body:
            try:
                body = gzip.decompress(body)
            except (OSError, EOFError, zlib.error) as error:
                body = f"no gzip: {error}".encode()
            framing = "gzip, " + framing.split()[0]
        self.record["framing"].append(framing)
        if not code.startswith(b"1"):
            self.record["body"].append(shown(body))
        return True

    def _headers(self, fields):
        """The headers of one response, as an app and a client see them."""
        own = [(name, value) for name, value in fields if name.lower() not in FRAMING + VALIDATORS]
        lower = [b"%s: %s" % (name.lower(), value) for name, value in own]
        self.record["headers"].append(shown(b"\n".join(sorted(lower))))
        self.record["order"].append(b"\n".join(name.lower() for name, _ in own).decode("latin-1"))
        self.record["case"].append(b"\n".join(sorted((name for name, _ in own), key=bytes.lower)).decode("latin-1"))
        self.record["validators"].append(
            shown(b"; ".join(b"%s: %s" % (name.lower(), value) for name, value in fields if name.lower() in VALIDATORS)))
        dates = [value for name, value in fields if name.lower() == b"date"]
        self.record["date"].append(", ".join("<date>" if DATE.match(value) else shown(value) for value in dates))
        said = [value.lower() for name, value in fields if name.lower() == b"connection"]
        self.record["connection"].append(shown(b", ".join(said)))

    def _chunks(self):
        body = b""
        while self._until(b"\r\n"):
            size, self.buffer = self.buffer.split(b"\r\n", 1)
            length = int(size.split(b";")[0], 16)
            chunk = self._take(length + 2)
            if length == 0:
                return body
            body += chunk[:length]
        return body + b"<unfinished>"

    def fate(self):
        """What became of the connection: kept when it answers one more request."""
        if self.ended is None and not self.buffer:
            said = (self.record["connection"] or [""])[-1]
            if "close" in said and not self._more():
                self.record["fate"].append(self.ended or "open, with nothing to come")
                return
            if self.ended is None:
                self.send(b"GET /@alive HTTP/1.1\r\nHost: alive\r\nConnection: close\r\n\r\n")
                while self._more():
                    pass
        if self.buffer.startswith(b"HTTP/1.1 ") and self.ended != "reset":
            self.record["fate"].append("kept")
        elif self.buffer:
            self.record["fate"].append("more: " + re.sub(r"Date: [^\\]+", "Date: <date>", shown(self.buffer)))
        else:
            self.record["fate"].append(self.ended or "open, without an answer")

    def end(self):
        """Reads up to the end, and writes down what came and how it ended."""
        while self._more():
            pass
        if self.buffer:
            self.record["rest"].append(shown(self.buffer))
        self.record["fate"].append(self.ended or "open")

    # ---- WebSockets ----

    def upgrade(self, path="/", headers=(), also=b"", lines=None):
        """Sends a handshake, and what comes with it; reads the answer."""
        if lines is None:
            lines = ["Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13",
                     "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="]
        head = [f"GET {path} HTTP/1.1", "Host: probe.test", *lines, *headers, "", ""]
        self.send("\r\n".join(head).encode() + also)
        self.opened = self.answer() and self.record["status"][-1] == "101"
        return self.opened

    def frame(self, opcode, payload=b"", **bits):
        """Sends one frame."""
        self.send(frame(opcode, payload, **bits))

    def frames(self, count=1):
        """Reads frames and writes them down, or that none came."""
        for _ in range(count):
            head = self._take(2)
            if len(head) < 2:
                self.record["frames"].append("none")
                return
            length = head[1] & 0x7F
            if length == 126:
                length = struct.unpack(">H", self._take(2))[0]
            elif length == 127:
                length = struct.unpack(">Q", self._take(8))[0]
            payload = self._take(length)
            kind = {0: "continuation", 1: "text", 2: "binary", 8: "close", 9: "ping", 10: "pong"}.get(head[0] & 15, "?")
            bits = "" if head[0] & 0xF0 == 0x80 else f" bits {head[0] >> 4:04b}"
            masked = " masked" if head[1] & 0x80 else ""
            if kind == "close" and len(payload) >= 2:
                text = f"{struct.unpack('>H', payload[:2])[0]} {shown(payload[2:])}"
            else:
                text = shown(payload)
            self.record["frames"].append(f"{kind}{bits}{masked} {text}")


def frame(opcode, payload=b"", fin=True, mask=True, rsv=0, length=None):
    """The bytes of one frame; `length` writes another length than the payload's."""
    length = len(payload) if length is None else length
    head = bytes([(0x80 if fin else 0) | rsv << 4 | opcode])
    bit = 0x80 if mask else 0
    if length < 126:
        head += bytes([bit | length])
    elif length < 65536:
        head += bytes([bit | 126]) + struct.pack(">H", length)
    else:
        head += bytes([bit | 127]) + struct.pack(">Q", length)
    if not mask:
        return head + payload
    key = b"\x11\x22\x33\x44"
    return head + key + bytes(byte ^ key[i & 3] for i, byte in enumerate(payload))


def close_frame(code, reason=b""):
    """The bytes of a close frame."""
    return frame(8, struct.pack(">H", code) + reason)
