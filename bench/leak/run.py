"""R's memory over many requests with a body and many WebSockets: what each leaves behind must be nothing.

    python3 bench/leak/run.py [--posts 5000000] [--sockets 200000]

Needs wrk and the library in ROOKERY_LIB (default .local/lib). Prints the resident memory of the server after each tenth of
either, and ends with status 1 when it grew by more than GROWTH_MIB from the second tenth to the last.
"""

import argparse
import os
import re
import socket
import struct
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).resolve().parent
# R's heap and the allocator breathe by a few MiB; the leak that this was written for was 270 bytes a request.
GROWTH_MIB = 24
TENTHS = 10
WORKERS = 8
UPGRADE = (
    b"GET /ws HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)
TEXT_FRAME = b"\x81\x82\x00\x00\x00\x00hi"


def resident_mib(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(re.search(r"VmRSS:\s+(\d+)", status)[1]) / 1024


def posts(port: int, count: int) -> None:
    """At least `count` POSTs of one byte, half of them read by the app."""
    script = 'wrk.method = "POST"; wrk.body = "x"'
    with tempfile.NamedTemporaryFile("w", suffix=".lua") as lua:
        lua.write(script)
        lua.flush()
        done = 0
        while done < count:
            url = f"http://127.0.0.1:{port}/"
            said = subprocess.run(
                ["wrk", "-t1", "-c50", "-d5s", "-s", lua.name, url], capture_output=True, text=True, check=True
            ).stdout
            if "Non-2xx" in said:
                sys.exit(said)
            done += int(re.search(r"(\d+) requests in", said)[1])


def sockets(port: int, count: int) -> None:
    """`count` WebSockets, each with one echo."""

    def some(share: int) -> None:
        for _ in range(share):
            with socket.create_connection(("127.0.0.1", port)) as connection:
                connection.sendall(UPGRADE + TEXT_FRAME)
                got = b""
                while not got.endswith(b"\x81\x02hi"):
                    more = connection.recv(4096)
                    if not more:
                        sys.exit(f"a WebSocket ended: {got!r}")
                    got += more
                # Reset, so that no port waits for stragglers.
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    with ThreadPoolExecutor(WORKERS) as pool:
        for outcome in [pool.submit(some, count // WORKERS) for _ in range(WORKERS)]:
            outcome.result()


def measure(name: str, count: int, load, port: int, pid: int) -> bool:
    sizes = []
    for tenth in range(TENTHS):
        load(port, count // TENTHS)
        sizes.append(resident_mib(pid))
        print(f"{name}: {count // TENTHS * (tenth + 1):>9,} done, {sizes[-1]:7.1f} MiB", flush=True)
    growth = sizes[-1] - sizes[1]
    print(f"{name}: {growth:+.1f} MiB from the second tenth to the last (at most {GROWTH_MIB})")
    return growth <= GROWTH_MIB


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--posts", type=int, default=5_000_000)
    arguments.add_argument("--sockets", type=int, default=200_000)
    chosen = arguments.parse_args()
    os.environ.setdefault("ROOKERY_LIB", str(HERE.parents[1] / ".local/lib"))
    server = subprocess.Popen(["Rscript", "--vanilla", str(HERE / "server.R")], stdout=subprocess.PIPE, text=True)
    try:
        port = int(server.stdout.readline())
        fine = measure("POSTs", chosen.posts, posts, port, server.pid) if chosen.posts else True
        if chosen.sockets:
            fine = measure("WebSockets", chosen.sockets, sockets, port, server.pid) and fine
        return 0 if fine else 1
    finally:
        server.terminate()


if __name__ == "__main__":
    sys.exit(main())
