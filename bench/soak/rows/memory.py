"""Workers that grow: they are replaced at their limit without failed requests, and a worker that the
system kills is survived and reported.
"""

import os
import socket
import ssl
import threading
import time
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from runner import build
from soak.fleet import Clients, Fleet, Skipped, wait

HOG_MB = 50
# Twice this limit is too much at once, and more than the limit when it lasts for twenty seconds. In
# the long form the memory grows that slowly.
LIMIT = "200MB"
HOG_EVERY_SHORT_S, HOG_EVERY_LONG_S = 0.2, 4.0
SHORT_TIMES, LONG_TIMES = 2, 6
# Enough memory for three R processes with little in them, but not for one that grows.
GROUP = 700 << 20
TOO_MUCH_MB = 2000
# The default of `max_connections`, and the memory for the program and one worker.
IDLE, IDLE_GROUP = 10_000, 1_000_000_000
CGROUPS = Path("/sys/fs/cgroup")


def memory(is_long: bool) -> list[str]:
    """Some requests make an R process 50 MB larger for good, and none is lost."""
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
    """The system kills an R process whose control group has no memory left. Its request is lost and no
    other, and the reason is reported.
    """
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
    # A request that this R process had received ahead is sent to another.
    return found + ([f"failed: {clients.failed}"] if clients.failed else [])


def idle_tls(_: bool) -> list[str]:
    """The default number of connections, all with TLS and idle, fits into a control group of 1 GB beside one worker."""
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
    build.certificate()
    with _group(IDLE_GROUP) as procs:
        within = ("sh", "-c", f'echo $$ > "{procs}" && exec "$@"', "sh")
        # No connection is closed while the last ones are opened.
        options = ("--idle-timeout", "10m", "--tls-cert", build.OUT / "tls.crt", "--tls-key", build.OUT / "tls.key")
        with Fleet(*options, workers=1, within=within) as fleet, ExitStack() as opened:
            clients = []
            for _ in range(IDLE):
                plain = socket.create_connection(("127.0.0.1", fleet.port), 10)
                clients.append(opened.enter_context(tls.wrap_socket(plain)))
                # A connection is idle after its first request.
                _is_answered(clients[-1])
            ended = [at for at, client in enumerate(clients) if _has_ended(client)]
            answered = sum(_is_answered(client) for client in clients[:: IDLE // 100])
            used = int((Path(procs).parent / "memory.max_usage_in_bytes").read_text()) if "memory/" in str(procs) else 0
            ends = fleet.metric("rookery_worker_exits_total")
    print(f"{IDLE - len(ended)} connections were open, {answered} of 100 were answered, at most {used >> 20} MiB, ended workers: {ends:.0f}")
    found = [f"{len(ended)} of {IDLE} connections were closed"] if ended else []
    found += [] if answered == 100 else [f"{answered} of 100 were answered"]
    return found + ([f"{ends:.0f} workers ended"] if ends else [])


def _is_answered(client: ssl.SSLSocket) -> bool:
    client.sendall(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
    return client.recv(65536).startswith(b"HTTP/1.1 200")


def _has_ended(client: ssl.SSLSocket) -> bool:
    client.setblocking(False)
    try:
        return client.recv(1) == b""
    except ssl.SSLWantReadError:
        return False
    except OSError:
        return True
    finally:
        client.settimeout(10)


@contextmanager
def _group(limit: int):  # noqa: ANN202
    """Yields the file that adds processes to a new control group with this much memory, below our own.
    Raises Skipped.
    """
    own = dict(line.split(":", 2)[1:] for line in Path("/proc/self/cgroup").read_text(encoding="utf-8").splitlines())
    if "memory" in own:
        parents, name = [CGROUPS / "memory" / own["memory"].lstrip("/")], "memory.limit_in_bytes"
    else:
        # A group with processes of its own gives no controllers to its children, except for the
        # root group.
        parents, name = [CGROUPS / own.get("", "/").lstrip("/"), CGROUPS], "memory.max"
    why = "no control group for memory"
    for parent in parents:
        group = parent / f"rookery-soak-{os.getpid()}"
        try:
            # Without systemd the controller is not enabled; the groups of version 1 have no such
            # file.
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
            # The memory must not be swapped out instead.
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
