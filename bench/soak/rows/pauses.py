"""One R process in a handler of a minute, and one that is stopped: the others serve, none is killed,
and all begun requests are answered.
"""

import os
import signal
import threading
import time

from soak.fleet import Clients, Fleet

SHORT_S, LONG_S = 6, 60
# The time that others may wait once a process has been stopped: the supervisor detects it after a
# second.
SOON_S = 1.0


def pauses(is_long: bool) -> list[str]:
    seconds, found = (LONG_S if is_long else SHORT_S), []
    with Fleet() as fleet, Clients(fleet) as clients:
        for what in ("sleeps", "is stopped"):
            pids, answers = fleet.pids(), []
            handler_s = seconds if what == "sleeps" else 1
            asking = threading.Thread(target=lambda: answers.append(fleet.ask(f"/sleep?{handler_s}")))  # noqa: B023
            asking.start()
            fleet.wait("its R has begun it", lambda: _sleeper(fleet))
            sleeper = _sleeper(fleet)
            if what == "is stopped":
                os.kill(sleeper, signal.SIGSTOP)
                fleet.wait("that is known", lambda: "suspended" in [worker["state"] for worker in fleet.workers()])
            began = time.monotonic()
            probes = set()
            try:
                while (now := time.monotonic()) < began + seconds - 1:
                    probes |= {fleet.told(path)[0] for path in ("/-/live", "/-/ready")}
                    time.sleep(0.2)
                clients.wait_for(100)
            finally:
                os.kill(sleeper, signal.SIGCONT)
            asking.join()
            slowest = clients.slowest(began, now)
            print(f"while one {what} for {seconds} s: the slowest of the others' requests took {slowest * 1000:.0f} ms")
            # A short pause runs beside other work, where a second is nothing. A request that had to
            # wait for that process would have waited longer.
            if slowest >= (SOON_S if is_long else seconds - 2):
                found.append(f"while one {what}: a request took {slowest:.1f} s")
            if probes != {200}:
                found.append(f"while one {what}: probes were answered {probes}")
            if answers[0][0] != 200:
                found.append(f"what was begun when it {what} was answered {answers[0]}")
            fleet.wait("all are ready again", lambda: {worker["state"] for worker in fleet.workers()} == {"ready"})
            if fleet.pids() != pids:
                found.append(f"while one {what}: workers {pids} became {fleet.pids()}")
    if clients.failed:
        found.append(f"failed: {clients.failed}")
    return found


def _sleeper(fleet: Fleet) -> int | None:
    return next((worker["pid"] for worker in fleet.workers() if (worker["route"] or "").endswith("/sleep")), None)
