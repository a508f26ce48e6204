"""The end of a server under load, during a reload, and by force; and two reloads in succession."""

import os
import shutil
import signal
import tempfile
import time
from pathlib import Path

from soak.fleet import Clients, Fleet, ran, state, wait

# The time in which all workers of a killed supervisor have to end.
GONE_S = 2.0
TIMES_SHORT, TIMES_LONG = 1, 10


def ends(is_long: bool) -> list[str]:
    """All requests that R has begun are answered, also if the server ends during a reload."""
    found = []
    for when in ("under load", "in a reload") * (TIMES_LONG if is_long else TIMES_SHORT):
        home = Path(tempfile.mkdtemp(prefix="rookery-soak-"))
        try:
            with Fleet(home=home) as fleet, Clients(fleet) as clients:
                clients.wait_for(100)
                pids = fleet.children()
                if when == "in a reload":
                    fleet.process.send_signal(signal.SIGHUP)
                    fleet.wait("it has begun", lambda: fleet.status()["reload"]["state"] != "idle")
                    pids += fleet.children()
                fleet.process.send_signal(signal.SIGTERM)
                began = time.monotonic()
                status = fleet.process.wait(120)
                took = time.monotonic() - began
                clients.end()
                runs = ran(fleet)
                left = [str(path) for path in home.glob("rookery-workers-*")]
            lives = [pid for pid in pids if state(pid) not in ("", "Z")]
            unanswered = set(runs) - clients.counted
            print(f"TERM {when}: ended with {status} in {took:.1f} s, {clients.seen['200']} answered, begun and not answered: {len(unanswered)}")
            if status or unanswered or lives or left or any(outcome.isdigit() for outcome in clients.failed if outcome != "503"):
                found.append(f"TERM {when}: status {status}, {sorted(unanswered)[:5]} begun and not answered, "
                             f"{lives} and {left} left, {clients.failed}")  # fmt: skip
        finally:
            shutil.rmtree(home, ignore_errors=True)
    return found


def twice(is_long: bool) -> list[str]:
    """Sends HUP, and HUP again before the first reload is done: the second reload follows the first."""
    with Fleet() as fleet, Clients(fleet) as clients:
        for _ in range(TIMES_LONG if is_long else TIMES_SHORT):
            generation, succeeded = fleet.status()["generation"], fleet.status()["reload"]["succeeded"]
            fleet.process.send_signal(signal.SIGHUP)
            fleet.wait("it has begun", lambda: fleet.status()["reload"]["state"] != "idle")
            fleet.process.send_signal(signal.SIGHUP)
            # A reload that is requested during another one is not forgotten.
            fleet.wait("both are done", lambda: {one["generation"] for one in fleet.workers()} == {generation + 2})  # noqa: B023
            fleet.wait("that is told", lambda: fleet.status()["reload"]["state"] == "idle")
            status = fleet.status()
        clients.end()
    print(f"{clients.total} requests, failed: {clients.failed or 'none'}; {status['reload']}")
    found = [f"failed: {clients.failed}"] if clients.failed else []
    return found + ([f"of {succeeded} before: {status['reload']}"] if status["reload"]["failed"] else [])


def murder(is_long: bool) -> list[str]:
    """When a supervisor is killed, its R processes end, and the next supervisor removes its files."""
    home, found = Path(tempfile.mkdtemp(prefix="rookery-soak-")), []
    try:
        with Fleet(home=home) as fleet, Clients(fleet) as clients:
            clients.wait_for(100)
            pids = fleet.children()
            os.kill(fleet.pid, signal.SIGKILL)
            began = time.monotonic()
            fleet.process.wait()
            wait("all Rs are gone", lambda: not [pid for pid in pids if state(pid) not in ("", "Z")])
            took = time.monotonic() - began
            clients.end()
        left = list(home.glob("rookery-workers-*"))
        with Fleet(home=home) as fleet:
            after = list(home.glob("rookery-workers-*"))
            answered = fleet.ask("/")[0]
        print(f"{len(pids)} Rs were gone {took:.2f} s after their supervisor; {len(left)} folder was left, and none of it after the next start")
        if is_long and took > GONE_S:
            found.append(f"Rs lived on for {took:.1f} s")
        if set(left) & set(after) or len(after) != 1 or answered != 200:
            found.append(f"{left} was left, and {after} after the next start, which answered {answered}")
    finally:
        shutil.rmtree(home, ignore_errors=True)
    return found
