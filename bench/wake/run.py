"""The wake protocol under a load and a clock: what docs/DESIGN.md quotes of it. `python3 bench/wake/run.py`

Prints three lines: throughput at 10 connections with package later beside the server and without it, how late a
callback runs that a thread which is not R's has scheduled, and the processor time of an idle server. What needs
neither is a test: r/tests/testthat/test-wake.R.
"""
import os
import re
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

HERE = Path(__file__).parent
ROUNDS = 7


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Server:
    def __init__(self, mode, library):
        self.port = free_port()
        self.process = subprocess.Popen(["Rscript", HERE / "server.R", str(self.port), mode, library])
        for _ in range(300):
            try:
                socket.create_connection(("127.0.0.1", self.port)).close()
                return
            except OSError:
                time.sleep(0.1)
        raise SystemExit(f"the server `{mode}` did not start")

    def get(self, path):
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=30) as reply:
            return reply.read().decode()

    def rate(self, seconds):
        out = subprocess.run(["wrk", "-t1", "-c10", f"-d{seconds}", f"http://127.0.0.1:{self.port}/"],
                             capture_output=True, text=True, check=True).stdout
        return float(re.search(r"Requests/sec:\s+([0-9.]+)", out)[1])

    def delays(self, load):
        self.get("/start")
        if load:
            self.rate(3)
        else:
            time.sleep(3)
        return sorted(float(number) for number in self.get("/delays").split())

    def cpu(self):
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def stop(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()


def quantile(values, q):
    return values[min(len(values) - 1, int(q * len(values)))]


def main():
    folder = tempfile.TemporaryDirectory()
    library = str(Path(folder.name) / "foreign.so")
    subprocess.run(["R", "CMD", "SHLIB", "-o", library, HERE / "foreign.c"], check=True, stdout=subprocess.DEVNULL)
    subprocess.run(["rm", "-f", HERE / "foreign.o"], check=True)
    with_later, without = Server("with", library), Server("without", library)
    try:
        with_later.rate(1), without.rate(1)
        ratios = [with_later.rate(2) / without.rate(2) for _ in range(ROUNDS)]
        print(f"throughput with later / without, 10 connections: {statistics.median(ratios):.3f} "
              f"(median of {ROUNDS}, {min(ratios):.3f} to {max(ratios):.3f}; floor 0.9)")
        for load in (True, False):
            delays = with_later.delays(load)
            print(f"a foreign thread's callback, {'under load' if load else 'idle'}: median {quantile(delays, .5):.2f} ms, "
                  f"p90 {quantile(delays, .9):.2f}, p99 {quantile(delays, .99):.2f} ({len(delays)} callbacks; floor 2 ms)")
        before = with_later.cpu()
        time.sleep(5)
        print(f"processor time of an idle server: {with_later.cpu() - before:.2f} s in 5 s")
    finally:
        with_later.stop()
        without.stop()


sys.exit(main())
