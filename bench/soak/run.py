#!/usr/bin/env python3
"""A soak test of Rookery under R: uploads, WebSockets, 500 streams, 500 clients of server-sent events, slow and killed
clients. At the end nothing of them may be left.

    python3 bench/soak/run.py [seconds]          default 600; `make soak SECONDS=600`

The load (bench/soak/load.py) runs for a minute and stops, and what the server holds then is the reference. The load runs
for the rest of the time and stops again, and then the server may hold no more than before, within the tolerances below.
In a run of less than three minutes the first part is a third. Samples of each second are in bench/out/soak.csv.

Exit status: 0 on success; 1 if something was left, an honest client was not served, or the server ended; 2 for wrong
arguments.
"""

import csv
import json
import signal
import subprocess
import sys
import time
from dataclasses import astuple, dataclass, fields
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from runner import build, contenders, machine  # noqa: E402
from runner.measure.memory import settled_memory  # noqa: E402
from runner.server import Server  # noqa: E402
from runner.report import table  # noqa: E402

LOAD = Path(__file__).with_name("load.py")
# The length of the first part; shorter in a short run.
FIRST_S = 60
SHORTEST_S = 20
# The time after which a client process is killed with SIGKILL, with all its open connections.
CLIENT_LIFE_S = 4
# The time for the server to notice that all clients have disconnected: its disk threads end 10 s
# after their last work, and reading after a refusal, or waiting for a close frame, takes up to 5 s.
SETTLE_S = 60

# The tolerances. Descriptors and threads are counted exactly.
MORE_DESCRIPTORS = 0
MORE_THREADS = 0
# The heaps of R and malloc return only whole pages, and which pages stay in use depends on their
# neighbours. The RSS of an idle server varies by some MiB from one minute to the next, without a
# trend. A leak of 100 bytes per request would be 24 MiB in ten minutes.
MORE_RSS = 12 << 20
# In its first minute a server still grows into the memory that it works in, so a short soak detects
# only fast leaks. Descriptors and threads are as exact as in a long one.
MORE_RSS_YOUNG = 32 << 20
# R's memory is exact except for what R compiles and loads meanwhile.
MORE_R = 2 << 20


@dataclass
class Level:
    second: int
    part: str
    descriptors: int
    threads: int
    rss: int
    # R's memory, which is not measured under load.
    r: int = 0


class Watch:
    def __init__(self, server: Server) -> None:
        self.server = server
        self.began = time.monotonic()
        self.levels: list[Level] = []

    def look(self, part: str) -> Level:
        process = Path(f"/proc/{self.server.process.pid}")
        try:
            descriptors, threads = (len(list((process / name).iterdir())) for name in ("fd", "task"))
            second, rss = round(time.monotonic() - self.began), self.server.memory_bytes("VmRSS")
            level = Level(second, part, descriptors, threads, rss)
        except (OSError, RuntimeError) as error:
            raise RuntimeError(f"the server ended: {self.server.last_output()}") from error
        self.levels.append(level)
        return level

    def settle(self, part: str, least: Level | None) -> Level:
        """Waits until the server holds no more than before any load, or for the limit; then collects
        R's garbage and reads the levels.
        """
        end = time.monotonic() + SETTLE_S
        while time.monotonic() < end:
            time.sleep(1)
            now = self.look(part)
            if least is not None and now.descriptors <= least.descriptors and now.threads <= least.threads:
                break
        settled_memory(self.server)
        time.sleep(1)
        level = self.look(part)
        level.r = int(float(self.server.get("/memory")))
        return level


class Clients:
    """One process of load that stays, and one that is killed repeatedly."""

    def __init__(self, port: int) -> None:
        self.line = [sys.executable, str(LOAD), str(port)]
        self.kills = 0
        self.counts: dict[str, list] = {}

    def run(self, seconds: float, watch: Watch, part: str) -> None:
        steady = subprocess.Popen(self.line, stdout=subprocess.PIPE, text=True)
        victim = subprocess.Popen(self.line, stdout=subprocess.DEVNULL)
        try:
            end = time.monotonic() + seconds
            kill_at = time.monotonic() + CLIENT_LIFE_S
            while time.monotonic() < end:
                time.sleep(1)
                watch.look(part)
                if steady.poll() is not None:
                    raise RuntimeError(f"the load ended with status {steady.returncode}")
                if time.monotonic() > kill_at:
                    victim.kill()
                    victim.wait()
                    self.kills += 1
                    victim = subprocess.Popen(self.line, stdout=subprocess.DEVNULL)
                    kill_at = time.monotonic() + CLIENT_LIFE_S
            steady.terminate()
            printed, _ = steady.communicate(timeout=60)
        finally:
            for process in (steady, victim):
                process.kill()
                process.wait()
        for kind, (done, failed, reason) in json.loads(printed).items():
            before = self.counts.get(kind, [0, 0, ""])
            self.counts[kind] = [before[0] + done, before[1] + failed, before[2] or reason]


def middle(levels: list[Level], name: str) -> Level:
    """Returns the medians of a range of samples."""
    values = [round(median(getattr(level, key) for level in levels)) for key in ("descriptors", "threads", "rss")]
    return Level(levels[-1].second, name, *values)


def complaints(reference: Level, end: Level, still_open: int, counts: dict[str, list], more_rss: int = MORE_RSS) -> list[str]:
    """Returns what was left at the end in addition to the level after the first part, and the failures
    meanwhile.
    """
    found = []
    limits = (("descriptors", 1, MORE_DESCRIPTORS), ("threads", 1, MORE_THREADS), ("rss", 2**20, more_rss), ("r", 2**20, MORE_R))
    for name, unit, room in limits:
        more = getattr(end, name) - getattr(reference, name)
        if more > room:
            unit_name = " MiB" if unit > 1 else ""
            found.append(f"{name}: {more / unit:+.4g}{unit_name} since the reference, at most {room / unit:+.4g}")
    if still_open != 0:
        found.append(f"the app still counts {still_open} open WebSockets and streams")
    for kind, (done, failed, reason) in counts.items():
        if failed:
            found.append(f"{kind}: {failed} of {done + failed} failed, the first with {reason}")
        if not done:
            found.append(f"{kind}: not one was done")
    return found


def soak(server: Server, seconds: int) -> int:
    watch, clients = Watch(server), Clients(server.port)
    settled_memory(server)
    start = watch.look("start")
    first = min(FIRST_S, seconds // 3)
    clients.run(first, watch, "first")
    reference = watch.settle("reference", start)
    clients.run(seconds - first, watch, "load")
    end = watch.settle("end", reference)
    with (build.OUT / "soak.csv").open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([[field.name for field in fields(Level)], *map(astuple, watch.levels)])

    loaded = [level for level in watch.levels if level.part == "load"]
    tenth = max(1, len(loaded) // 10)
    rows = [("before any load", start), (f"**after {first} s, load taken away**", reference)]
    tenths = [loaded[at : at + tenth] for at in range(0, len(loaded) - tenth + 1, tenth)]
    rows += [("under load, median of a tenth", middle(levels, "load")) for levels in tenths]
    rows += [("**at the end, load taken away**", end)]
    lines = [
        [name, *map(str, (at.second, at.descriptors, at.threads, f"{at.rss / 2**20:.1f}", f"{at.r / 2**20:.1f}" if at.r else "-"))]
        for name, at in rows
    ]
    print("\n".join(table(["", "second", "descriptors", "threads", "RSS MiB", "R MiB"], lines)))
    rounds = ", ".join(f"{kind} {done}" for kind, (done, _, _) in clients.counts.items())
    print(f"\nDone (rounds; a round may be a hundred requests): {rounds}; {clients.kills} clients killed.")
    more_rss = MORE_RSS if first == FIRST_S else MORE_RSS_YOUNG
    found = complaints(reference, end, int(server.get("/open")), clients.counts, more_rss)
    for line in found:
        print(f"soak: {line}")
    print(f"soak: {'FAILED' if found else 'passed'} after {seconds} s of load")
    return 1 if found else 0


def main() -> int:
    try:
        seconds = int(sys.argv[1]) if len(sys.argv) > 1 else 600
    except ValueError:
        seconds = 0
    if seconds < SHORTEST_S:
        print(f"usage: run.py [seconds, at least {SHORTEST_S}]", file=sys.stderr)
        return 2
    # SIGTERM raises an exception, so that no server or client outlives the program.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    machine.raise_descriptor_limit()
    machine.own_network()
    server = contenders.start("rookery", "soak")
    try:
        return soak(server, seconds)
    except RuntimeError as error:
        print(f"soak: {error}")
        return 1
    finally:
        server.stop()


if __name__ == "__main__":
    sys.exit(main())
