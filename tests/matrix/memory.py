"""Reloads in a control group whose memory is limited. They need the right to make one."""

import contextlib
import os
import signal
from pathlib import Path

from behaviours import behaviour
from server import Server, equal, until

APP = """
kept <- rep(1, %d)
list(call = function(req) list(status = 200L, headers = list(), body = "%s"))
"""


@contextlib.contextmanager
def control_group(megabytes):
    """Makes a control group with this limit; yields its folder, or None where that is not possible."""
    lines = dict(line.split(":", 2)[1:] for line in Path("/proc/self/cgroup").read_text().splitlines())
    is_first = "memory" in lines
    own = Path("/sys/fs/cgroup/memory" + lines["memory"] if is_first else "/sys/fs/cgroup" + lines.get("", "/"))
    group = own / f"rookery-matrix-{os.getpid()}"
    limit = "memory.limit_in_bytes" if is_first else "memory.max"
    try:
        group.mkdir()
    except OSError:
        yield None
        return
    try:
        (group / limit).write_text(str(megabytes * 1_000_000))
        with contextlib.suppress(OSError):
            # Without it what does not fit is swapped out.
            (group / ("memory.memsw.limit_in_bytes" if is_first else "memory.swap.max")).write_text(
                str(megabytes * 1_000_000) if is_first else "0")
        yield group
    except OSError:
        yield None
    finally:
        with contextlib.suppress(OSError, TimeoutError):
            until("the group is empty", lambda: not (group / "cgroup.procs").read_text().strip(), 20)
            group.rmdir()


def _within(group, megabytes):
    join = ("sh", "-c", f'echo $$ > {group}/cgroup.procs; exec "$@"', "sh")
    return Server(prefix=join, files={"app.R": APP % (megabytes * 125_000, "first")})


def _reload(server, megabytes):
    (server.app / "app.R").write_text(APP % (megabytes * 125_000, "second"))
    server.signal(signal.SIGHUP)
    until("the new app serves", lambda: server.get("/").text == "second")
    equal(len(server.workers()), 1, "the R processes")


@behaviour("one worker")
def replaces_without_overlap_a_worker_that_fits_only_once(_):
    with control_group(300) as group:
        if group is None:
            return "no control group can be made"
        with _within(group, 120) as server:
            _reload(server, 120)
            until("it is reported", lambda: "is replaced without overlap (it is reloaded): a second R process" in server.told())


@behaviour("one worker")
def replaces_without_overlap_when_the_new_worker_is_killed_for_want_of_memory(_):
    with control_group(300) as group:
        if group is None:
            return "no control group can be made"
        with _within(group, 1) as server:
            _reload(server, 200)
            until("it is reported", lambda: "was killed because the control group had no memory left" in server.told())
