"""Where the run happens: its cores, a network of its own, programs run to their end, and who else used the machine."""

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
# The 10,000 idle connections of the memory group, with room; wsload and each server need one descriptor a connection.
DESCRIPTORS = 16_384
TICKS = os.sysconf("SC_CLK_TCK")
# Above this share of the machine's time spent by other programs during the samples, figures are not to be quoted.
QUIET = 0.05

CLONE_NEWNET, SIOCSIFFLAGS, SIOCSIFADDR, IFF_UP = 0x40000000, 0x8914, 0x8916, 0x1


def log(text: str) -> None:
    print(f"  {text}", file=sys.stderr, flush=True)


def pinned(core: int, placement: str) -> list[str]:
    """The command prefix that ties a program to a core; empty where the run leaves placement to the kernel."""
    return ["taskset", "-c", str(core)] if placement == "pinned" else []


def default_placement() -> str:
    enough = len(os.sched_getaffinity(0)) >= 2
    return "pinned" if enough and shutil.which("taskset") else "free"


@functools.cache
def own_network() -> bool:
    """Moves this process, and all it starts, into a network namespace that has only a loopback.

    Some contenders listen on every address; here nothing outside the machine can reach them, and no other program's port
    is in the way. Without the right to do it the run goes on in the network it is in.
    """
    if ctypes.CDLL(None).unshare(CLONE_NEWNET) != 0:
        return False
    with suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        fcntl.ioctl(control, SIOCSIFFLAGS, struct.pack("16sh", b"lo", IFF_UP))
        # glibc's AI_ADDRCONFIG, which nanonext asks for, finds no IPv4 where 127.0.0.1 is the only address.
        second = struct.pack("16sHH4s8x", b"lo:1", socket.AF_INET, 0, socket.inet_aton("127.0.0.2"))
        fcntl.ioctl(control, SIOCSIFADDR, second)
    return True


def raise_descriptor_limit() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = DESCRIPTORS if hard == resource.RLIM_INFINITY else min(DESCRIPTORS, hard)
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def clean_environment() -> dict[str, str]:
    """The environment of everything measured: a backtrace per error would be measured along (2.9 us each)."""
    # R_LIBS could put a package that is only named httpuv (compat/httpuv) before the real one.
    left_out = ("RUST_BACKTRACE", "RUST_LIB_BACKTRACE", "MALLOC_ARENA_MAX", "LD_PRELOAD", "R_LIBS", "R_LIBS_USER")
    return {name: value for name, value in os.environ.items() if name not in left_out}


def run(line: list[str], limit_s: float, environment: dict[str, str] | None = None) -> subprocess.CompletedProcess:
    """Runs a program to its end. Raises RuntimeError when that does not come in time or is none in order."""
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
    """What stands behind the name at the beginning of a line; empty where no line begins so."""
    for line in Path(path).read_text(encoding="utf-8").splitlines():
        if line.startswith(name):
            return line.removeprefix(name).strip(" \t:")
    return ""


def describe() -> dict[str, str]:
    """The machine and the versions of what is measured with."""
    info = {
        "processor": proc_field("/proc/cpuinfo", "model name") or platform.machine(),
        "cores": str(len(os.sched_getaffinity(0))),
        "memory": f"{int(proc_field('/proc/meminfo', 'MemTotal').split()[0]) / 2**20:.0f} GiB",
        "kernel": platform.release(),
    }
    versions = ("rustc --version", "go version", "Rscript --version", "wrk -v", "valgrind --version", "cc --version")
    for line in map(str.split, versions):
        if shutil.which(line[0]):
            # wrk has no option for it alone, and ends with 1.
            done = subprocess.run(line, capture_output=True, text=True, check=False)
            name = "R" if line[0] == "Rscript" else line[0]
            info[name] = (done.stdout + done.stderr).strip().partition("\n")[0].split(" Copyright")[0].strip()
    return info
