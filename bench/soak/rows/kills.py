"""Kills a worker every two seconds under load; every fifth time another worker is stopped for a second
with SIGSTOP.
"""

import os
import random
import signal
import subprocess
import time

from soak.fleet import Clients, Fleet, ran

KILL_EVERY_S = 2.0
# After this many kills another worker is stopped, for this many seconds.
STOP_EVERY = 5
STOPPED_S = 1.0
SHORT_S, LONG_S = 12, 200


def left_behind(before: set[str] = frozenset()) -> set[str]:
    """Returns the new processes of `sleep 1000`."""
    found = subprocess.run(["pgrep", "-fx", "sleep 1000"], stdout=subprocess.PIPE, text=True, check=False).stdout
    return set(found.split()) - before


def too_many_failed(killed: int, failed: dict[str, int]) -> list[str]:
    """Returns true if more requests than workers were lost, or with another status than 502."""
    is_too_much = sum(failed.values()) > killed or set(failed) - {"502"}
    return [f"{killed} kills cost {dict(failed)}"] if is_too_much else []


def left_over(zombies: list[int], before: set[str]) -> list[str]:
    """Returns what is left of processes that have ended, and of those that handlers started."""
    found = [f"zombies: {zombies}"] if zombies else []
    if left := left_behind(before):
        found.append(f"processes that handlers left behind live: {sorted(left)[:5]}")
    return found


def kills(is_long: bool) -> list[str]:
    """At most one request fails for each killed worker, with 502: the one that its R had begun. No
    POST runs twice, and each POST with a response has run. No descriptors, zombies or processes of
    handlers are left.
    """
    before, killed, level = left_behind(), 0, None
    with Fleet() as fleet:
        with Clients(fleet, ways=("/", "/count") * 24 + ("/child", "/count")) as clients:
            end = time.monotonic() + (LONG_S if is_long else SHORT_S)
            while time.monotonic() < end:
                time.sleep(KILL_EVERY_S)
                workers = fleet.children()
                victim = random.choice(workers)
                if killed % STOP_EVERY == STOP_EVERY - 1:
                    stopped = random.choice([pid for pid in workers if pid != victim])
                    os.kill(stopped, signal.SIGSTOP)
                    time.sleep(STOPPED_S)
                    os.kill(stopped, signal.SIGCONT)
                known = fleet.starts()
                os.kill(victim, signal.SIGKILL)
                killed += 1
                fleet.wait("the next is ready", lambda known=known: fleet.starts() > known)
                level = level or fleet.descriptors()
        time.sleep(1)
        more, zombies, runs = fleet.descriptors() - level, fleet.zombies(), ran(fleet)
    print(f"{killed} workers were killed, {clients.total} requests, failed: {clients.failed or 'none'}; descriptors: {more:+}")
    found = too_many_failed(killed, clients.failed)
    if twice := [name for name, number in runs.items() if number > 1]:
        found.append(f"ran twice: {twice[:5]}")
    if lost := clients.counted - set(runs):
        found.append(f"answered, and never ran: {sorted(lost)[:5]}")
    if more > 0:
        found.append(f"{more} descriptors more than after the first kill")
    return found + left_over(zombies, before)
