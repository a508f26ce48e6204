"""The front end's end of a worker's rings, and an HTTP server in front of it, for tests.

docs/rings.md defines the memory and crates/exchange/src/wire the records. One request is served on each connection.
"""

import ctypes
import fcntl
import ipaddress
import mmap
import os
import socket
import struct
import threading
import time
import urllib.parse

WORDS, VERSION = 1024, 4
# The number and size of the blocks of each class.
CLASSES = [(512, 1 << 10), (64, 8 << 10), (16, 80 << 10)]
# A longer record crosses in parts, all of which except the last one fill the largest block.
LARGEST = CLASSES[-1][1]
SLAB = sum(count * size for count, size in CLASSES)
DIRECTION = 2 * 8 * WORDS + SLAB
SLEEP_WORKER, DOWN = 128, 192
UP = DOWN + DIRECTION
SIZE = UP + DIRECTION
F_ADD_SEALS, SEALS = 1033, 1 | 2 | 4
FUTEX = {"x86_64": 202, "aarch64": 98}.get(os.uname().machine)
REQUEST, RESPONSE, DECLINED = 1, 5, 19
IS_HTTPS, HAS_CERTIFICATE = 1, 16
TEXTS = {200: "OK", 204: "No Content"}


def text(value):
    return struct.pack("<I", len(value)) + value


def address(word):
    if word == "-":
        return b"\0"
    host, port = word.rsplit(":", 1)
    ip = ipaddress.ip_address(host.strip("[]"))
    return bytes([ip.version]) + ip.packed + struct.pack("<H", int(port))


class Rings:
    def __init__(self):
        memory = os.memfd_create("rookery-rings", os.MFD_CLOEXEC | 2)
        os.ftruncate(memory, SIZE)
        fcntl.fcntl(memory, F_ADD_SEALS, SEALS)
        self.map = mmap.mmap(memory, SIZE)
        self.map[0:24] = b"RkRings\0" + struct.pack("<QQ", VERSION, SIZE)
        self.channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        # Without a timer, the worker wakes the front end at once.
        self.wakers = [os.eventfd(0, os.EFD_NONBLOCK) for _ in range(3)]
        self.inherited = [memory, theirs.detach(), *self.wakers]
        self.sent = self.taken = 0
        self.lock = threading.Lock()
        self.waiting = {}
        # What has arrived of a record in each lane.
        self.parts = {0: b"", 1: b""}

    def word(self, at, value=None):
        if value is None:
            return struct.unpack_from("<Q", self.map, at)[0]
        struct.pack_into("<Q", self.map, at, value)

    @staticmethod
    def place(block):
        start = 0
        for count, size in CLASSES:
            if block < count:
                return start + block * size
            block, start = block - count, start + count * size

    def send(self, kind, record):
        """Sends a record. The blocks of a class are used in turn, of which a test needs few at a time."""
        first = 0
        for count, size in CLASSES:
            if len(record) <= size:
                break
            first += count
        block = first + self.sent % count
        at = DOWN + 16 * WORDS + self.place(block)
        self.map[at : at + len(record)] = record
        self.word(DOWN + 8 * (self.sent % WORDS), kind << 56 | block << 32 | len(record))
        self.sent += 1
        # R waits for its sleep word, or the worker's I/O thread for the descriptor.
        struct.pack_into("<I", self.map, SLEEP_WORKER, 0)
        word = ctypes.c_uint32.from_buffer(self.map, SLEEP_WORKER)
        ctypes.CDLL(None).syscall(FUTEX, ctypes.byref(word), 1, 1, None, None, 0)
        os.write(self.wakers[0], struct.pack("<Q", 1))

    def receive(self):
        """Returns the kind of the next record, its bytes, and the content of its file; None if there is none."""
        at = UP + 8 * (self.taken % WORDS)
        word = self.word(at)
        if word == 0:
            return None
        kind, lane, has_file = word >> 56, word >> 55 & 1, word >> 54 & 1
        block, rest = word >> 32 & 0x3FFFFF, word & 0xFFFFFFFF
        start = UP + 16 * WORDS + self.place(block)
        self.parts[lane] += self.map[start : start + min(rest, LARGEST)]
        self.word(at, 0)
        self.word(at + 8 * WORDS, block + 1)
        self.taken += 1
        content = None
        if has_file:
            [fd] = socket.recv_fds(self.channel, 16, 1)[1]
            with open(fd, "rb") as file:
                file.seek(0)
                content = file.read()
        if rest > LARGEST:
            return self.receive_rest()
        record, self.parts[lane] = self.parts[lane], b""
        return kind, record, content

    def receive_rest(self):
        """Waits for the next part of a record, and returns the next record that is complete."""
        while True:
            if (record := self.receive()) is not None:
                return record
            time.sleep(0.001)

    def ask(self, call, method, target, headers, body):
        """Sends a request, whose properties `call` states, and returns the response, or None if the worker ends."""
        _, ticket, scheme, remote, local, name, fingerprint, subject = call.split(" ")
        with self.lock:
            number = self.sent + 1
            flags = (IS_HTTPS if scheme == "https" else 0) | (HAS_CERTIFICATE if subject != "-" else 0)
            ticket = 0 if ticket == "-" else int(ticket, 16)
            record = struct.pack("<QQQB", number, ticket, time.monotonic_ns(), flags)
            record += address(remote) + address(local) + text(method) + text(target)
            record += text(b"" if name == "-" else name.encode())
            if subject != "-":
                record += text(urllib.parse.unquote_to_bytes(subject)) + text(fingerprint.encode())
            record += struct.pack("<H", len(headers))
            record += b"".join(text(name) + text(value) for name, value in headers)
            record += struct.pack("<Q", len(body)) + body
            arrived = threading.Event()
            self.waiting[number] = [arrived, None]
            self.send(REQUEST, record)
        arrived.wait()
        return self.waiting.pop(number)[1]

    def forward(self, is_alive):
        """Passes on the worker's responses until the worker ends."""
        while True:
            was_alive = is_alive()
            came = self.receive()
            if came is None and not was_alive:
                break
            if came is None:
                time.sleep(0.001)
                continue
            kind, record, content = came
            number = struct.unpack_from("<Q", record)[0]
            if kind in (RESPONSE, DECLINED) and number in self.waiting:
                is_response = kind == RESPONSE
                self.waiting[number][1] = response(record[16:], content) if is_response else (503, [], b"")
                self.waiting[number][0].set()
        for waiting in list(self.waiting.values()):
            waiting[0].set()

    def serve(self, connection):
        with connection, connection.makefile("rb") as lines:
            method, target, _ = lines.readline().split(b" ", 2)
            headers, call, length = [], "1 - http - - - - -", 0
            while line := lines.readline().strip():
                name, value = line.split(b":", 1)
                name, value = name.lower(), value.strip()
                if name == b"rookery-call":
                    call = value.decode()
                else:
                    headers.append((name, value))
                if name == b"content-length":
                    length = int(value)
            answer = self.ask(call, method, target, headers, lines.read(length))
            if answer is None:
                return
            status, headers, body = answer
            headers = [name + b": " + value for name, value in headers]
            head = [b"HTTP/1.1 %d %s" % (status, TEXTS.get(status, "Other").encode()), *headers]
            head += [b"Content-Length: %d" % len(body), b"Connection: close", b"", b""]
            connection.sendall(b"\r\n".join(head) + body)

    def listen(self, path, is_alive):
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listener.bind(path)
        listener.listen(64)
        threading.Thread(target=self.forward, args=(is_alive,), daemon=True).start()

        def accept():
            while True:
                threading.Thread(target=self.serve, args=(listener.accept()[0],), daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()


def response(content, file):
    """Returns the status, the headers and the body of a response."""
    status, flags = struct.unpack_from("<HB", content)
    at = 3 + (9 if flags & 2 else 0)
    count = struct.unpack_from("<I", content, at)[0]
    at += 4
    parts = []
    for _ in range(2 * count):
        length = struct.unpack_from("<I", content, at)[0]
        parts.append(content[at + 4 : at + 4 + length])
        at += 4 + length
    form = content[at]
    body = {0: b"", 1: content[at + 1 :], 2: file}[form]
    return status, list(zip(parts[::2], parts[1::2])), body
