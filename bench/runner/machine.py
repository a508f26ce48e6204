"""The machine of a run: its cores, a network namespace, and programs that are run to their end."""

import ctypes
import fcntl
import functools
import os
import platform
import resource
import shutil
import socket
import struct
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

SERVER_CORE, GENERATOR_CORE = 0, 1
# Enough for the 10,000 idle connections of the memory groups; wsload and each server need one
# descriptor for each connection, and a front end two.
DESCRIPTORS = 24_576
TICKS = os.sysconf("SC_CLK_TCK")
# The share of the machine's time used by other programs above which figures must not be quoted.
QUIET = 0.05

CLONE_NEWNET, SIOCSIFFLAGS, SIOCSIFADDR, IFF_UP = 0x40000000, 0x8914, 0x8916, 0x1


def log(text: str) -> None:
    print(f"  {text}", file=sys.stderr, flush=True)


def pinned(core: int, placement: str) -> list[str]:
    """Returns the command prefix that pins a program to a core; empty if the kernel places it."""
    return ["taskset", "-c", str(core)] if placement == "pinned" else []


def default_placement() -> str:
    enough = len(os.sched_getaffinity(0)) >= 2
    return "pinned" if enough and shutil.which("taskset") else "free"


@functools.cache
def own_network() -> bool:
    """Moves this process and its children into a network namespace that has only a loopback device.

    Some contenders listen on all addresses. In the namespace nothing outside the machine can reach
    them, and no port of another program is in the way. Without the privilege to do so, the run
    continues in the current network.
    """
    if ctypes.CDLL(None).unshare(CLONE_NEWNET) != 0:
        return False
    with suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        fcntl.ioctl(control, SIOCSIFFLAGS, struct.pack("16sh", b"lo", IFF_UP))
        # With glibc's AI_ADDRCONFIG, which nanonext sets, no IPv4 address is found if 127.0.0.1 is
        # the only one.
        second = struct.pack("16sHH4s8x", b"lo:1", socket.AF_INET, 0, socket.inet_aton("127.0.0.2"))
        fcntl.ioctl(control, SIOCSIFADDR, second)
    return True


def raise_descriptor_limit() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft >= DESCRIPTORS:
        return
    # Only root may raise the hard limit.
    for wanted in ((DESCRIPTORS, max(DESCRIPTORS, hard)), (min(DESCRIPTORS, hard), hard)):
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, wanted)
            return


def clean_environment() -> dict[str, str]:
    """Returns the environment for measured programs, without the variable that adds a backtrace of 2.9
    us to each error.
    """
    # R_LIBS could contain a package that is only named httpuv (compat/httpuv).
    left_out = ("RUST_BACKTRACE", "RUST_LIB_BACKTRACE", "MALLOC_ARENA_MAX", "LD_PRELOAD", "R_LIBS", "R_LIBS_USER")
    return {name: value for name, value in os.environ.items() if name not in left_out}


def run(line: list[str], limit_s: float, environment: dict[str, str] | None = None) -> subprocess.CompletedProcess:
    """Runs a program to its end. Raises RuntimeError if it does not end in time or ends with an error."""
    name = Path(line[3] if line[0] == "taskset" else line[0]).name
    environment = environment or clean_environment()
    try:
        done = subprocess.run(line, env=environment, capture_output=True, text=True, timeout=limit_s, check=False)
    except subprocess.TimeoutExpired as error:
        raise RuntimeError(f"{name} did not end in {limit_s:.0f} s") from error
    if done.returncode != 0:
        raise RuntimeError(f"{name} ended with status {done.returncode}: {done.stderr.strip()[-200:]}")
    return done


def proc_field(path: str, name: str) -> str:
    """Returns the rest of the line that begins with `name`; empty if there is none."""
    for line in Path(path).read_text(encoding="utf-8").splitlines():
        if line.startswith(name):
            return line.removeprefix(name).strip(" \t:")
    return ""


def describe() -> dict[str, str]:
    """Describes the machine, and the versions of the tools."""
    info = {
        "processor": proc_field("/proc/cpuinfo", "model name") or platform.machine(),
        "cores": str(len(os.sched_getaffinity(0))),
        "memory": f"{int(proc_field('/proc/meminfo', 'MemTotal').split()[0]) / 2**20:.0f} GiB",
        "kernel": platform.release(),
    }
    versions = ("rustc --version", "go version", "Rscript --version", "wrk -v", "valgrind --version", "cc --version")
    for line in map(str.split, versions):
        if shutil.which(line[0]):
            # wrk prints its version only together with an error.
            done = subprocess.run(line, capture_output=True, text=True, check=False)
            name = "R" if line[0] == "Rscript" else line[0]
            info[name] = (done.stdout + done.stderr).strip().partition("\n")[0].split(" Copyright")[0].strip()
    return info
