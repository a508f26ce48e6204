#!/usr/bin/env python3
"""Plays hostile clients against a program `rookery` that serves a static site, on any system.

  probes.py PROGRAM...        such as: probes.py target/debug/rookery, or: probes.py wine target/.../rookery.exe

Each probe has its own connection. Within its time, the probe must get a response that it expects, or the connection must be
closed. Then a plain request must get the same response as before. No response may contain the secret, which is in a file
beside the site.
Exit status: 0 as expected, 1 not, 2 wrong arguments.
"""

import contextlib
import re
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

# Seconds: for the start (wine sets up its folder), for a response, and for a head that does not
# end.
START_S, ANSWER_S, SLOW_S = 120.0, 60.0, 90.0
SECRET = b"a secret beside the site"
PAGE = b"<p>the page</p>"
LARGE = bytes(range(256)) * 20_000
CLOSED = 0


def main() -> int:
    if len(sys.argv) < 2:
        print(__doc__, file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as folder, serving(sys.argv[1:], site_in(Path(folder))) as port:
        complaints = play(port)
    for complaint in complaints:
        print(f"probes: {complaint}")
    print(f"probes: {len(REQUESTS) + len(PATHS) + len(OTHERS)} played, {len(complaints)} not as expected")
    return int(bool(complaints))


def site_in(folder: Path) -> Path:
    """Writes a site and a secret beside it."""
    site = folder / "site"
    (site / "sub").mkdir(parents=True)
    (site / "index.html").write_bytes(PAGE)
    (site / "sub" / "a long file name.txt").write_bytes(b"in a folder")
    (site / "large.bin").write_bytes(LARGE)
    (folder / "secret.txt").write_bytes(SECRET)
    return site


@contextlib.contextmanager
def serving(program: list[str], site: Path):
    """Serves the site on a port that the system chooses."""
    line = [*program, "serve", str(site), "--port", "0", "--log=none"]
    process = subprocess.Popen(line, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, errors="replace")
    found: list[int] = []
    output: list[str] = []
    is_found = threading.Event()

    def read() -> None:
        for text in process.stderr:
            output.append(text)
            port = re.search(r"http://127\.0\.0\.1:(\d+)", text)
            if port and not found:
                found.append(int(port.group(1)))
                is_found.set()
        is_found.set()

    threading.Thread(target=read, daemon=True).start()
    try:
        if not is_found.wait(START_S) or not found:
            raise SystemExit(f"probes: the program did not start: {''.join(output)}")
        yield found[0]
        if process.poll() is not None:
            raise SystemExit(f"probes: the program ended with status {process.returncode}: {''.join(output)}")
    finally:
        process.kill()
        process.wait()


def head(line: str, *headers: str) -> bytes:
    return "\r\n".join([line, "Host: a", *headers, "", ""]).encode("latin-1")


# The bytes that are sent, and the statuses that the first response may have; CLOSED: the connection may end
# without a response.
REQUESTS = {
    "two lengths": (head("POST / HTTP/1.1", "Content-Length: 1", "Content-Length: 2") + b"ab", {400}),
    "a length and chunks": (head("POST / HTTP/1.1", "Content-Length: 4", "Transfer-Encoding: chunked") + b"0\r\n\r\n", {400, 405}),
    "a coding that is not chunked": (head("POST / HTTP/1.1", "Transfer-Encoding: chunked, gzip"), {400, 501}),
    "a negative length": (head("POST / HTTP/1.1", "Content-Length: -1"), {400}),
    "a length beyond all numbers": (head("POST / HTTP/1.1", f"Content-Length: {'9' * 40}"), {400, 413}),
    "a chunk beyond all numbers": (head("POST / HTTP/1.1", "Transfer-Encoding: chunked") + b"f" * 40 + b"\r\n", {400, 405, CLOSED}),
    "a space before the colon": (b"GET / HTTP/1.1\r\nHost : a\r\n\r\n", {400}),
    "a folded header": (b"GET / HTTP/1.1\r\nHost: a\r\nX: 1\r\n 2\r\n\r\n", {400, 200}),
    "a carriage return in a header": (b"GET / HTTP/1.1\r\nHost: a\r\nX: 1\rY: 2\r\n\r\n", {400}),
    "a zero byte in a header": (b"GET / HTTP/1.1\r\nHost: a\r\nX: 1\x002\r\n\r\n", {400}),
    "no Host": (b"GET / HTTP/1.1\r\n\r\n", {400}),
    "two Hosts": (b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", {400}),
    "a Host that is none": (b"GET / HTTP/1.1\r\nHost: a/b\r\n\r\n", {400}),
    "a method that is none": (b"G\x01T / HTTP/1.1\r\nHost: a\r\n\r\n", {400}),
    "a target that is an authority": (b"GET host:80 HTTP/1.1\r\nHost: a\r\n\r\n", {400}),
    "CONNECT": (b"CONNECT host:80 HTTP/1.1\r\nHost: host:80\r\n\r\n", {400, 404, 405, 501}),
    "a version that is none": (b"GET / HTTP/9.9\r\nHost: a\r\n\r\n", {400, 505, CLOSED}),
    "the preface of HTTP/2": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0", {400, 505, CLOSED}),
    "TLS": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"a" * 500, {400, CLOSED}),
    "noise": (bytes(range(256)) * 40, {400, CLOSED}),
    "a target of 1 MB": (b"GET /" + b"a" * 1_000_000 + b" HTTP/1.1\r\nHost: a\r\n\r\n", {400, 414, 431, CLOSED}),
    "a header of 1 MB": (head("GET / HTTP/1.1", "X: " + "a" * 1_000_000), {400, 431, CLOSED}),
    "10,000 headers": (head("GET / HTTP/1.1", *[f"X{i}: 1" for i in range(10_000)]), {400, 431, CLOSED}),
    "a handshake of a WebSocket": (
        head("GET / HTTP/1.1", "Upgrade: websocket", "Connection: Upgrade", "Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA=="),
        {200, 400, 403, 404, 426},
    ),
    "ranges without end": (head("GET /large.bin HTTP/1.1", "Range: bytes=" + ",".join(f"{i}-" for i in range(500))), {200, 206, 400, 416, 431}),
    "a range beyond all numbers": (head("GET /large.bin HTTP/1.1", f"Range: bytes={'9' * 40}-"), {200, 416}),
}

# Paths by which a file beside the site, a device or another name of a file might be reached.
PATHS = [
    "/../secret.txt", "/%2e%2e/secret.txt", "/sub/../../secret.txt", "/..%2fsecret.txt", "/..%5csecret.txt", "/..\\secret.txt",
    "/%252e%252e/secret.txt", "/.%00./secret.txt", "/secret.txt%00", "/index.html%00.txt", "//secret.txt", "/./../secret.txt",
    "/.../secret.txt", "/....//secret.txt", "/..;/secret.txt", "/C:/Windows/win.ini", "/C:%5cWindows%5cwin.ini", "/c:secret.txt",
    "/Z:/etc/passwd", "//server/share/file", "/%5c%5cserver%5cshare%5cfile", "/%5c%5c.%5cpipe%5cx", "/%5c%5c%3f%5cC:%5cWindows%5cwin.ini",
    "/CON", "/nul", "/aux.txt", "/com1", "/LPT1.html", "/sub/prn", "/COM%C2%B9", "/conin$", "/index.html::$DATA", "/index.html:stream",
    "/sub:$I30:$INDEX_ALLOCATION/", "/index.html.", "/index.html%20", "/index.html...", "/SUB~1/ALONGF~1.TXT", "/sub/ALONGF~1.TXT",
    "/etc/passwd", "/proc/self/environ", "/dev/zero", "/%ff%fe", "/%", "/%zz", "/%e2%80%ae", "/" + "a/" * 2000,
    "/" + "a" * 300,
]


def fetch(port: int, request: bytes, limit: float = ANSWER_S) -> tuple[int, bytes]:
    """Sends bytes, and returns the status of the first response (or CLOSED) and all bytes that were received until the connection ended or
    was silent for a second.
    """
    received = b""
    with socket.create_connection(("127.0.0.1", port), timeout=limit) as connection:
        # The server may refuse a long request before it has read all of it.
        with contextlib.suppress(OSError):
            connection.sendall(request)
        deadline = time.monotonic() + limit
        with contextlib.suppress(ConnectionError, OSError):
            while time.monotonic() < deadline and len(received) < 100 * len(LARGE):
                try:
                    part = connection.recv(1 << 20)
                except TimeoutError:
                    if received:
                        break
                    raise ProbeError(f"no answer and no end within {limit:.0f} s") from None
                if not part:
                    break
                received += part
                connection.settimeout(1.0)
    found = re.match(rb"HTTP/1\.[01] (\d{3}) ", received)
    if received and not found:
        raise ProbeError(f"the answer is not HTTP: {received[:80]!r}")
    return int(found.group(1)) if found else CLOSED, received


class ProbeError(Exception):
    """A result that was not expected."""


def expect(port: int, request: bytes, statuses: set[int], limit: float = ANSWER_S) -> None:
    status, received = fetch(port, request, limit)
    if SECRET in received or b"[extensions]" in received or b"root:x:" in received:
        raise ProbeError(f"the answer contains another file: {received[:200]!r}")
    if status not in statuses:
        raise ProbeError(f"status {status}, not one of {sorted(statuses)}")


def a_path(port: int, path: str) -> None:
    status, received = fetch(port, f"GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n".encode("latin-1"))
    body = received.partition(b"\r\n\r\n")[2]
    if SECRET in received or b"[fonts]" in received or b"root:x:" in received:
        raise ProbeError(f"the answer contains another file: {received[:200]!r}")
    if status not in (301, 308, 400, 403, 404, 414, 431):
        raise ProbeError(f"status {status}: {body[:60]!r}")


def a_head_without_end(port: int) -> None:
    """Checks that a head whose bytes come one by one is refused in the end."""
    with socket.create_connection(("127.0.0.1", port), timeout=SLOW_S) as connection:
        until = time.monotonic() + SLOW_S
        with contextlib.suppress(ConnectionError):
            connection.sendall(b"GET / HTTP/1.1\r\nHost: a\r\nX: ")
            connection.settimeout(0.5)
            while time.monotonic() < until:
                try:
                    if not connection.recv(4096):
                        return
                except TimeoutError:
                    connection.sendall(b"x")
            raise ProbeError(f"the connection is open after {SLOW_S:.0f} s")


def many_connections(port: int) -> None:
    """Checks that silent connections do not keep others from being served."""
    with contextlib.ExitStack() as stack:
        for _ in range(200):
            stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=ANSWER_S))
        plain(port)


def a_client_that_does_not_read(port: int) -> None:
    """Checks that the response to a client that reads nothing does not keep others from being
    served.
    """
    with socket.create_connection(("127.0.0.1", port), timeout=ANSWER_S) as connection:
        connection.sendall(head("GET /large.bin HTTP/1.1") * 20)
        time.sleep(0.5)
        plain(port)


def clients_that_leave(port: int) -> None:
    """Resets connections in the middle of a response, after which the server must still serve
    others.
    """
    for _ in range(50):
        connection = socket.create_connection(("127.0.0.1", port), timeout=ANSWER_S)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        connection.sendall(head("GET /large.bin HTTP/1.1"))
        connection.close()


def pipelined(port: int) -> None:
    """Checks that requests in one packet all get their responses, in order."""
    request = head("GET / HTTP/1.1") * 99 + head("GET /sub/a%20long%20file%20name.txt HTTP/1.1", "Connection: close")
    _, received = fetch(port, request)
    if received.count(PAGE) != 99 or not received.endswith(b"in a folder"):
        raise ProbeError(f"{received.count(PAGE)} of 99 pages, and {received[-40:]!r}")


def whole_files(port: int) -> None:
    """Checks that a large file, and a range of it, arrive whole."""
    _, received = fetch(port, head("GET /large.bin HTTP/1.1", "Connection: close"))
    if received.partition(b"\r\n\r\n")[2] != LARGE:
        raise ProbeError(f"{len(received)} bytes")
    status, received = fetch(port, head("GET /large.bin HTTP/1.1", "Range: bytes=1000-1999", "Connection: close"))
    if status != 206 or received.partition(b"\r\n\r\n")[2] != LARGE[1000:2000]:
        raise ProbeError(f"range: status {status}")


OTHERS = [whole_files, pipelined, many_connections, a_client_that_does_not_read, clients_that_leave, a_head_without_end]


def plain(port: int) -> None:
    status, received = fetch(port, head("GET / HTTP/1.1", "Connection: close"))
    if status != 200 or not received.endswith(PAGE):
        raise ProbeError(f"a plain request gets status {status}: {received[-80:]!r}")


def play(port: int) -> list[str]:
    probes = [(name, lambda request=request, statuses=statuses: expect(port, request, statuses)) for name, (request, statuses) in REQUESTS.items()]
    probes += [(path[:60], lambda path=path: a_path(port, path)) for path in PATHS]
    probes += [(probe.__name__, lambda probe=probe: probe(port)) for probe in OTHERS]
    complaints = []
    for name, probe in probes:
        for what, check in ((name, probe), (f"after {name}", lambda: plain(port))):
            try:
                check()
            except (ProbeError, OSError) as error:
                complaints.append(f"{what}: {error}")
    return complaints


if __name__ == "__main__":
    sys.exit(main())
