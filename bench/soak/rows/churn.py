"""Thousands of connections, kills, reloads, and processes that handlers leave behind, none of which
may stay with the supervisor.
"""

import collections
import os
import random
import signal
import socket
import time

from soak.fleet import Clients, Fleet
from soak.rows.kills import left_behind, left_over, too_many_failed

# The number of connections at once, of kills and of reloads. A part of them comes first, and what
# is held then is the reference.
SHORT, LONG = (500, 4), (10_000, 100)
FIRST_OF = 5
# The number of connections that send requests at once, which fits into a listen queue.
AT_ONCE = 100
# The tolerances. In its first minute a server still grows into the memory that it works in.
MORE_MEMORY_SHORT, MORE_MEMORY_LONG = 8 << 20, 2 << 20


def churn(is_long: bool) -> list[str]:
    count, rounds = LONG if is_long else SHORT
    before = left_behind()
    with Fleet("--max-connections", "16000", workers=2) as fleet:
        bad, failed, killed = 0, collections.Counter(), 0
        levels = []
        for part in (max(1, rounds // FIRST_OF), rounds - max(1, rounds // FIRST_OF)):
            bad += _connect(fleet, count)
            with Clients(fleet, 2, ("/", "/child", "/count", "/")) as clients:
                for _ in range(part):
                    known = fleet.starts()
                    os.kill(random.choice(fleet.ready()), signal.SIGKILL)
                    fleet.wait("the next is ready", lambda known=known: fleet.starts() > known)
                    fleet.reload()
                    killed += 1
            failed.update(clients.failed)
            bad += _connect(fleet, count)
            fleet.wait("all have left", lambda: fleet.status()["connections"] == 0)
            # The disk threads, and reading after a refusal, end within ten seconds.
            time.sleep(15 if is_long else 2)
            levels.append((fleet.descriptors(), fleet.memory()))
        zombies = fleet.zombies()
    (descriptors, memory), (more_descriptors, more_memory) = levels
    more_descriptors, more_memory = more_descriptors - descriptors, more_memory - memory
    print(f"4 x {count} connections, {killed} kills, {killed} reloads: {more_descriptors:+} descriptors, {more_memory / 2**20:+.1f} MiB "
          f"since a fifth of it ({memory / 2**20:.1f}), zombies: {len(zombies)}; requests failed: {dict(failed) or 'none'}")  # fmt: skip
    found = [f"{bad} connections were not answered"] if bad else []
    found += too_many_failed(killed, failed)
    if more_descriptors > 0:
        found.append(f"{more_descriptors} descriptors more")
    if more_memory > (most := MORE_MEMORY_LONG if is_long else MORE_MEMORY_SHORT):
        found.append(f"{more_memory / 2**20:.1f} MiB more, at most {most >> 20}")
    return found + left_over(zombies, before)


def _connect(fleet: Fleet, count: int) -> int:
    """Opens `count` connections at once, each with one request, and returns the number of those
    without a response.
    """
    bad, held = 0, []
    try:
        while len(held) < count:
            new = [socket.create_connection(("127.0.0.1", fleet.port), timeout=60) for _ in range(min(AT_ONCE, count - len(held)))]
            held += new
            for each in new:
                each.sendall(b"GET / HTTP/1.1\r\nHost: soak\r\n\r\n")
            for each in new:
                try:
                    bad += not each.recv(4096).startswith(b"HTTP/1.1 200 ")
                except TimeoutError as error:
                    raise RuntimeError(f"connection {len(held)} of {count} has no answer: {fleet.told('/status')} {fleet.said()[-3000:]}") from error
    finally:
        for each in held:
            each.close()
    return bad
