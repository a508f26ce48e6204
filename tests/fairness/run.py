#!/usr/bin/env python3
"""Lets one client attack `rookery serve` while honest clients use it, and compares what the honest clients get with what they get alone.

    tests/fairness/run.py [--only GLOB] [--short] [--seconds N] [--judge-latency] [--list]

Each case is an attack of attacks.py, costly.py, elsewhere.py or proxied.py, over one protocol, with one worker or two, or with an R process that
serves by itself (`embedded`). ROOKERY_LIB is the library with the R package (default .local/lib). An honest request fails if it is refused, has
another status than 200, or no complete response. An honest WebSocket fails if it is closed, or an echo does not come. If an attack names for how
many of its items honest clients may wait (`turns`), none of them may wait for longer than as many items take on this machine, measured before
the attack. The memory of all processes may grow to 64 MB above the limit that the case sets. `--seconds` is how long an attack lasts (default
2.5; longer if honest clients may wait for longer). The 99th percentile of honest requests is always printed; `--judge-latency` also fails above
250 ms and the items, which only a machine without other load can tell. `--short` plays each attack once, with the numbers of workers and the
protocols in turn, and attacks from the address of the honest clients once with each number of workers. Exit status: 0 when no case failed.
"""

import argparse
import contextlib
import fnmatch
import multiprocessing
import resource
import sys
import threading
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "matrix"))

from attacks import ATTACKS, Attack  # noqa: E402
import costly  # noqa: E402, F401
import elsewhere  # noqa: E402, F401
import proxied  # noqa: E402
from clients import Address, WebSocket, get  # noqa: E402
from server import Failed, Server, check, until  # noqa: E402

MODES = {0: "embedded", 1: "one worker", 2: "two workers"}
# In seconds: the interval of honest requests, the longest that any of them may take, and the limit of the 99th percentile.
INTERVAL, LONGEST, P99 = 0.05, 10.0, 0.25
# What the memory of all processes may have above the limit on the memory of clients, in bytes.
ABOVE = 64 << 20


def websocket(address):
    return WebSocket(address, "tls" if address.has_tls else "http")


def open_websocket(address):
    """Opens a WebSocket, and closes it at once."""
    websocket(address).socket.close()


class Honest:
    """A client that requests each of `paths`, on a new connection, and sends messages on a WebSocket. For the path `/ws`, it opens another one."""

    def __init__(self, address, paths):
        self.address = address
        # What took how many seconds.
        self.latencies, self.failures = [], []
        self.is_over = threading.Event()
        self.threads = [threading.Thread(target=self._requests, args=(path,)) for path in paths]
        self.threads.append(threading.Thread(target=self._messages))
        for thread in self.threads:
            thread.start()

    def _timed(self, what, run):
        began = time.monotonic()
        try:
            status = run()
            if status not in (None, 200):
                self.failures.append(f"{what}: status {status}")
        except OSError as error:
            self.failures.append(f"{what}: {error!r} after {time.monotonic() - began:.1f} s")
        self.latencies.append((time.monotonic() - began, what))

    def _requests(self, path):
        while not self.is_over.wait(INTERVAL):
            self._timed(path, lambda: open_websocket(self.address) if path == "/ws" else get(self.address, path, LONGEST))

    def _messages(self):
        try:
            client = websocket(self.address)
        except OSError as error:
            self.failures.append(f"WebSocket: {error!r}")
            return
        number = 0
        while not self.is_over.wait(INTERVAL) and len(self.failures) < 100:
            number += 1
            self._timed("message", lambda: client.echo(b"honest %d" % number, LONGEST))

    def end(self):
        self.is_over.set()
        for thread in self.threads:
            thread.join()


def memory(server):
    """Returns the bytes that the program and its workers hold together: their pages, and those of files in memory that no process has mapped."""
    total, files = 0, {}
    for pid in {server.supervisor(), *server.workers()}:
        try:
            for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
                if line.startswith("Pss:"):
                    total += int(line.split()[1]) << 10
            for descriptor in Path(f"/proc/{pid}/fd").iterdir():
                if "/memfd:" in str(descriptor.readlink()):
                    about = descriptor.stat()
                    files[about.st_ino] = about.st_blocks * 512
        except OSError:
            continue
    return total + sum(files.values())


def descriptor_limit(descriptors):
    """Returns the command that limits the descriptors of the server."""
    return ("prlimit", f"--nofile={descriptors}:{descriptors}") if descriptors else ()


def needs_tls(protocol):
    return protocol not in ("http", "haproxy")


def start(attack, protocol, workers):
    """Returns the server of a case."""
    has_tls = needs_tls(protocol)
    given = {"app": HERE / "app", "files": {"www/small.txt": "small", "www/large.bin": "x" * 4_000_000},
             "prefix": descriptor_limit(attack.descriptors)}
    if workers:
        limits = [f"--{name.replace('_', '-')}={value}" for name, value in attack.limits.items()]
        return Server(*attack.options, *limits, *(["--tls", "dev"] if has_tls else []), mode=MODES[workers], **given)
    limits = ", ".join(f"{name} = {value}" for name, value in attack.limits.items())
    tls = '"dev"' if has_tls else "NULL"
    return Server(r_code=lambda more: f"setwd('{{folder}}/app'); app <- source('app.R')$value; rookery::serve(app, port = {more['port']}, "
                  f"log = FALSE, tls = {tls}, limits = rookery::server_limits({limits}))", **given)


def attack_for(seconds, begins, attack, address, protocol):
    """Attacks as soon as `begins` is set."""
    begins.wait()
    attack.function(address._replace(source=attack.source), protocol, time.monotonic() + seconds)


def longest_item(address, seconds):
    """Returns the seconds that a call of the app that sleeps for `seconds` takes a client without an attacker."""
    took = []
    for _ in range(3):
        began = time.monotonic()
        get(address, f"/sleep?{seconds}")
        took.append(time.monotonic() - began)
    return max(took)


def play(attack, protocol, workers, seconds):
    """Runs one case. Returns the honest clients' latencies in seconds, sorted, each with what took so long, and the growth of memory in bytes."""
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(start(attack, protocol, workers))
        address = Address(server.host, server.port, needs_tls(protocol), processes=max(1, workers),
                          is_announced="--proxy-protocol" in attack.options)
        if protocol in proxied.PROTOCOLS:
            port = stack.enter_context(proxied.in_front(server, protocol))
            address = address._replace(port=port, has_tls=False, source="127.0.0.3")
        # R keeps the large response from now on, so that it does not count.
        for path in ("/small", "/large?20000000", *attack.paths):
            for _ in range(2 * address.processes):
                until("R answers", lambda: path == "/ws" or get(address, path) == 200)
        bound = attack.turns * longest_item(address, attack.busy) if attack.turns else None
        before = peak = memory(server)
        # An attack must last longer than an honest client may wait.
        seconds = max(seconds, (bound or 0) + 1.5)
        begins = multiprocessing.Event()
        # Before there are threads, one of which could have a lock of OpenSSL, which would stay locked in the new process.
        attacker = multiprocessing.Process(target=attack_for, args=(seconds, begins, attack, address, protocol), daemon=True)
        attacker.start()
        honest = Honest(address, attack.paths)
        begins.set()
        end = time.monotonic() + seconds + 15
        while attacker.is_alive() and time.monotonic() < end:
            peak = max(peak, memory(server))
            attacker.join(0.1)
        honest.end()
        attacker.kill()
        check(server.process.poll() is None, "the server has ended")
        check(len(server.workers()) == address.processes, "a worker has ended")
    latencies = sorted(honest.latencies)
    check(not honest.failures, f"{len(honest.failures)} of {len(latencies)} honest clients failed, the first: {honest.failures[:3]}")
    grown = peak - before
    check(not attack.memory or grown <= attack.memory + ABOVE, f"memory grew by {grown >> 20} MB")
    slowest, what = latencies[-1]
    if bound:
        # At least once, an honest client waits for the end of an item.
        check(slowest >= attack.busy / 2, f"R was not busy: no honest client waited for longer than {slowest:.2f} s")
        check(slowest <= bound, f"an honest client waited {slowest:.2f} s for {what}, and may wait {bound:.2f} s: {attack.turns} items")
    return latencies, grown


def cases(is_short):
    """Yields name, attack, protocol and number of workers of each case."""
    for at, (name, attack) in enumerate(ATTACKS.items()):
        is_once = is_short and attack.source != Attack.HONEST
        for workers in (attack.modes[at % len(attack.modes)],) if is_once else attack.modes:
            in_turn = attack.protocols[(at + workers) % len(attack.protocols)]
            for protocol in (in_turn,) if is_short else attack.protocols:
                yield f"{name}/{protocol}/{workers or MODES[0]}", attack, protocol, workers


def main():
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--only", default="*")
    asked.add_argument("--short", action="store_true")
    asked.add_argument("--seconds", type=float, default=2.5)
    asked.add_argument("--judge-latency", action="store_true")
    asked.add_argument("--list", action="store_true")
    asked = asked.parse_args()
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    failed = passed = skipped = 0
    for name, attack, protocol, workers in cases(asked.short):
        if not fnmatch.fnmatch(name, asked.only):
            continue
        if asked.list:
            print(name)
            continue
        if proxied.REMEDY and protocol in proxied.PROTOCOLS:
            skipped += 1
            print(f"SKIPPED {name}: {proxied.REMEDY}", flush=True)
            continue
        try:
            latencies, grown = play(attack, protocol, workers, asked.seconds)
            p99, limit = latencies[len(latencies) * 99 // 100][0], P99 + attack.busy * (attack.turns or 1)
            check(not asked.judge_latency or p99 <= limit, f"the 99th percentile of honest clients is {p99 * 1000:.0f} ms")
            passed += 1
            print(f"{name}: p99 {p99 * 1000:.0f} ms, longest {latencies[-1][0] * 1000:.0f} ms, memory +{grown >> 20} MB", flush=True)
        except (Failed, OSError) as error:
            failed += 1
            print(f"FAILED {name}: {error}", flush=True)
    if not asked.list:
        print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return failed > 0 or (passed == 0 and not asked.list)


if __name__ == "__main__":
    sys.exit(main())
