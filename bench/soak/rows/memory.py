"""Workers that grow: replaced at their limit and nobody notices; and killed by the system, which is survived and told."""

import os
import threading
import time
from contextlib import contextmanager, suppress
from pathlib import Path

from soak.fleet import Clients, Fleet, Skipped, wait

HOG_MB = 50
# Twice this is too much at the first look, and more than this when it has been so for twenty seconds: in the long form it grows as slowly.
LIMIT = "200MB"
HOG_EVERY_SHORT_S, HOG_EVERY_LONG_S = 0.2, 4.0
SHORT_TIMES, LONG_TIMES = 2, 6
# A group that holds three Rs with little in them, and not one that wants more.
GROUP = 700 << 20
TOO_MUCH_MB = 2000
CGROUPS = Path("/sys/fs/cgroup")


def memory(is_long: bool) -> list[str]:
    """Each request of some makes an R 50 MB larger for good, and none is lost."""
    times, every = (LONG_TIMES, HOG_EVERY_LONG_S) if is_long else (SHORT_TIMES, HOG_EVERY_SHORT_S)
    with Fleet("--max-memory", LIMIT) as fleet, Clients(fleet) as clients:
        hogs = Clients(fleet, 0)
        is_over = threading.Event()

        def hog() -> None:
            while not is_over.wait(every):
                hogs.seen[str(fleet.ask(f"/hog?{HOG_MB}")[0])] += 1

        growing = threading.Thread(target=hog, daemon=True)
        growing.start()
        replaced = lambda: fleet.metric('rookery_worker_exits_total{reason="memory"}')  # noqa: E731
        fleet.wait(f"{times} were replaced", lambda: replaced() >= times, 600)
        is_over.set()
        growing.join()
        clients.end()
        sizes = [int(size) for size in fleet.find(r"it has (\d+) MB of memory")]
        print(f"{replaced():.0f} workers were replaced at {sizes} MB, {clients.total} requests and {hogs.total} that grew, "
              f"failed: {clients.failed | hogs.failed or 'none'}")  # fmt: skip
        found = [f"failed: {clients.failed | hogs.failed}"] if clients.failed or hogs.failed else []
        others = fleet.metric("rookery_worker_exits_total") - replaced()
        return found + ([f"{others:.0f} ended for another reason"] if others else [])


def oom(_: bool) -> list[str]:
    """The system kills an R whose control group has no memory left: its request is lost and no other, and the reason is told."""
    with _group(GROUP) as procs:
        within = ("sh", "-c", f'echo $$ > "{procs}" && exec "$@"', "sh")
        with Fleet(within=within) as fleet, Clients(fleet) as clients:
            pids = fleet.pids()
            hog = fleet.ask(f"/hog?{TOO_MUCH_MB}")
            fleet.wait("three are ready", lambda: [one["state"] for one in fleet.workers()] == ["ready"] * 3)
            clients.wait_for(100)
            clients.end()
            reasons = [worker["last_exit"]["reason"] for worker in fleet.workers() if worker["last_exit"]]
            kept = pids & fleet.pids()
            print(f"the hog was answered {hog[0]}, the reason is {reasons}, {clients.total} other requests, failed: {clients.failed or 'none'}")
    found = [] if hog[0] == 502 else [f"the hog was answered {hog}"]
    found += [] if reasons == ["oom"] else [f"the reasons told are {reasons}"]
    found += [] if len(kept) == 2 else [f"of {pids} only {kept} live on"]
    # What that R had been given ahead goes to another.
    return found + ([f"failed: {clients.failed}"] if clients.failed else [])


@contextmanager
def _group(limit: int):  # noqa: ANN202
    """A control group below our own with so much memory, as the file that takes its processes. Raises Skipped."""
    own = dict(line.split(":", 2)[1:] for line in Path("/proc/self/cgroup").read_text(encoding="utf-8").splitlines())
    if "memory" in own:
        parents, name = [CGROUPS / "memory" / own["memory"].lstrip("/")], "memory.limit_in_bytes"
    else:
        # A group with processes of its own gives its children no controllers, but for the root.
        parents, name = [CGROUPS / own.get("", "/").lstrip("/"), CGROUPS], "memory.max"
    why = "no control group for memory"
    for parent in parents:
        group = parent / f"rookery-soak-{os.getpid()}"
        try:
            # Without systemd nobody has turned it on; the groups of version 1 have no such file.
            if (gives := parent / "cgroup.subtree_control").exists():
                with suppress(OSError):
                    gives.write_text("+memory", encoding="utf-8")
            group.mkdir()
        except OSError as error:
            why = f"no control group can be made: {error}"
            continue
        try:
            if not (group / name).exists():
                continue
            (group / name).write_text(str(limit), encoding="utf-8")
            # Nor may it lie in swap instead.
            with suppress(OSError):
                (group / ("memory.swap.max" if name == "memory.max" else "memory.memsw.limit_in_bytes")).write_text(
                    "0" if name == "memory.max" else str(limit), encoding="utf-8"
                )
            yield group / "cgroup.procs"
            return
        finally:
            wait("the group is empty", lambda group=group: not (group / "cgroup.procs").read_text(encoding="utf-8"))
            # The kernel may need a moment.
            end = time.monotonic() + 10
            while group.exists() and time.monotonic() < end:
                with suppress(OSError):
                    group.rmdir()
    raise Skipped(why)
