"""Checks that many requests with a body, and many WebSockets, leave no memory behind in R.

    python3 bench/soak/leak.py [--posts 5000000] [--sockets 200000]

Needs wrk, and the library in ROOKERY_LIB (default .local/lib). Prints the resident memory of the server after each tenth
of both loads. The exit status is 1 if it grew by more than GROWTH_MIB from the second tenth to the last.
"""

import argparse
import socket
import struct
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from soak.websocket import frame, handshake  # noqa: E402
from runner import contenders  # noqa: E402
from runner.measure import load_generators  # noqa: E402
from runner.server import Server  # noqa: E402
from runner.scenarios import Scenario  # noqa: E402

# R's heap and the allocator vary by a few MiB. The leak for which this was written was 270 bytes
# per request.
GROWTH_MIB = 24
TENTHS = 10
WORKERS = 8
ROUND_S = 5
# The response is the same whether the app has read the body or not (`leak` in
# contenders/handlers.R).
POST = Scenario("leak", "", ["rookery"], "http", connections=50, body_bytes=1)


def posts(server: Server, count: int) -> None:
    """Sends at least `count` POSTs of one byte, half of which the app reads."""
    done = 0.0
    while done < count:
        done += load_generators.http(server, POST, ROUND_S)["requests_per_second"] * ROUND_S


def sockets(server: Server, count: int) -> None:
    """Opens `count` WebSockets, each with one echo."""

    def some(share: int) -> None:
        for _ in range(share):
            with socket.create_connection(("127.0.0.1", server.port)) as connection:
                connection.sendall(handshake("a", "/ws") + frame(1, b"hi"))
                got = b""
                while not got.endswith(b"\x81\x02hi"):
                    more = connection.recv(4096)
                    if not more:
                        raise RuntimeError(f"a WebSocket ended: {got!r}")
                    got += more
                # Reset, so that no port stays in TIME_WAIT.
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    with ThreadPoolExecutor(WORKERS) as pool:
        list(pool.map(some, [count // WORKERS] * WORKERS))


def measure(name: str, count: int, load: Callable[[Server, int], None], server: Server) -> bool:
    sizes = []
    for tenth in range(1, TENTHS + 1):
        load(server, count // TENTHS)
        sizes.append(server.memory_bytes("VmRSS") / 2**20)
        print(f"{name}: {count // TENTHS * tenth:>9,} done, {sizes[-1]:7.1f} MiB", flush=True)
    growth = sizes[-1] - sizes[1]
    print(f"{name}: {growth:+.1f} MiB from the second tenth to the last (at most {GROWTH_MIB})")
    return growth <= GROWTH_MIB


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--posts", type=int, default=5_000_000)
    arguments.add_argument("--sockets", type=int, default=200_000)
    chosen = arguments.parse_args()
    server = contenders.start("rookery", "leak")
    try:
        loads = (("POSTs", chosen.posts, posts), ("WebSockets", chosen.sockets, sockets))
        return 0 if all([measure(name, count, load, server) for name, count, load in loads if count]) else 1
    except (RuntimeError, OSError) as error:
        print(f"leak: {error}")
        return 1
    finally:
        server.stop()


if __name__ == "__main__":
    sys.exit(main())
