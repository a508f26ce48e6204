"""Apps that end: at the start, after a second, and in a reload."""

import re
import signal
import subprocess
import tempfile
import time
from pathlib import Path

from soak.fleet import APP, Clients, Fleet

STOPS = 'stop("the database is away")\n'
# Soon after it serves, and before any request.
ENDS_SOON = "later::later(function() quit(status = 7), 1)\n"
LOOP_SHORT_S, LOOP_LONG_S = 12, 120
# The share of one processor that the supervisor itself uses.
CPU_SHARE = 0.02


def starts(_: bool) -> list[str]:
    """If no worker ever served, the exit status is 3, and the app's error is printed."""
    with Fleet(app=_app(STOPS), workers=2, is_ready=False) as fleet:
        try:
            status = fleet.process.wait(120)
        except subprocess.TimeoutExpired:
            return ["it did not end"]
        said = fleet.said()
    print(f"ended with {status}")
    return [] if status == 3 and "the database is away" in said else [f"status {status}: {said[-500:]}"]


def loops(is_long: bool) -> list[str]:
    """An app that always ends after a second is started at growing intervals, and the supervisor stays
    idle.
    """
    seconds = LOOP_LONG_S if is_long else LOOP_SHORT_S
    with Fleet(app=_app(ENDS_SOON + APP.read_text(encoding="utf-8")), workers=2, is_ready=False) as fleet:
        fleet.wait("both have served", lambda: fleet.starts() >= 2)
        before, before_with_rs, began = fleet.cpu_seconds(False), fleet.cpu_seconds(True), time.monotonic()
        probes = set()
        while time.monotonic() < began + seconds:
            probes.add(fleet.told("/-/live")[0])
            time.sleep(1)
        took = time.monotonic() - began
        spent = (fleet.cpu_seconds(False) - before) / took
        with_rs = (fleet.cpu_seconds(True) - before_with_rs) / took
        ends, states = fleet.metric("rookery_worker_exits_total"), {worker["state"] for worker in fleet.workers()}
        pauses = {worker["slot"]: worker["restarts"] for worker in fleet.workers()}
        reasons = {worker["last_exit"]["reason"] for worker in fleet.workers()}
    print(f"{ends:.0f} ends in {took:.0f} s, {spent:.2%} of a processor by the supervisor, {with_rs:.1%} with the Rs that it started")
    found = [] if probes == {200} else [f"/-/live was answered {probes}"]
    # Half a second, doubled each time and reduced by up to a fifth, and a second of life.
    most, at = 0, 0.0
    while at < took + 2:
        at += 1 + 0.4 * 2**most
        most += 1
    if (often := max(pauses.values())) > most + 1:
        found.append(f"a slot was started {often} times in {took:.0f} s, at most {most + 1} are due")
    if reasons - {"crash"} or states - {"backing_off", "starting", "ready"}:
        found.append(f"told as {states}, because of {reasons}")
    return found + ([f"the supervisor took {spent:.1%} of a processor"] if spent > CPU_SHARE else [])


def broken(_: bool) -> list[str]:
    """If a reload fails because the app no longer starts, the old generation continues to serve and
    the reason is reported. After a repair the next reload succeeds.
    """
    app = _app(APP.read_text(encoding="utf-8"))
    with Fleet(app=app) as fleet, Clients(fleet) as clients:
        pids = fleet.pids()
        app.write_text(STOPS, encoding="utf-8")
        fleet.process.send_signal(signal.SIGHUP)
        fleet.wait("it failed", lambda: fleet.status()["reload"]["failed"] == 1)
        clients.wait_for(100)
        failed, kept = fleet.status(), fleet.pids()
        app.write_text(APP.read_text(encoding="utf-8"), encoding="utf-8")
        fleet.reload()
        clients.wait_for(100)
        mended, others = fleet.status(), fleet.pids()
        clients.end()
        said = fleet.said()
    print(f"{clients.total} requests, failed: {clients.failed or 'none'}; told: {failed['reload']['last_error']!r}")
    found = [f"failed: {clients.failed}"] if clients.failed else []
    if kept != pids or not failed["reload"]["last_error"] or not re.search("the database is away", said):
        found.append(f"after a reload that failed: {failed}")
    if others & pids or mended["reload"]["last_error"]:
        found.append(f"after one that succeeded: {mended}")
    return found


def _app(text: str) -> Path:
    path = Path(tempfile.mkdtemp(prefix="rookery-soak-app-")) / "app.R"
    path.write_text(text, encoding="utf-8")
    return path
