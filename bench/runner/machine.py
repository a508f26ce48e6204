"""Where the run happens: cores, versions, and a network of its own."""

import ctypes
import fcntl
import os
import platform
import resource
import shutil
import socket
import struct
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .peers import Server

SERVER_CORE = 0
GENERATOR_CORE = 1
# The 10,000 idle connections of the memory group, with room; wsload and each server need one descriptor a connection.
DESCRIPTORS = 16_384

CLONE_NEWNET = 0x40000000
SIOCGIFFLAGS, SIOCSIFFLAGS, SIOCSIFADDR, IFF_UP = 0x8913, 0x8914, 0x8916, 0x1


def pinned(core: int, placement: str) -> list[str]:
    """The command prefix that ties a program to a core; empty where the run leaves placement to the kernel."""
    return ["taskset", "-c", str(core)] if placement == "pinned" else []


def default_placement() -> str:
    enough = len(os.sched_getaffinity(0)) >= 2
    return "pinned" if enough and shutil.which("taskset") else "free"


def own_network() -> bool:
    """Moves this process, and all it starts, into a network namespace that has only a loopback.

    Some peers listen on every address; here nothing outside the machine can reach them, and no other program's port
    is in the way. Without the right to do it the run goes on in the network it is in.
    """
    try:
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.unshare(CLONE_NEWNET) != 0:
            return False
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
            request = struct.pack("16sh", b"lo", 0)
            flags = struct.unpack("16sh", fcntl.ioctl(control, SIOCGIFFLAGS, request)[:18])[1]
            fcntl.ioctl(control, SIOCSIFFLAGS, struct.pack("16sh", b"lo", flags | IFF_UP))
            # glibc's AI_ADDRCONFIG, which nanonext asks for, finds no IPv4 where 127.0.0.1 is the only address.
            second = struct.pack("16sHH4s8x", b"lo:1", socket.AF_INET, 0, socket.inet_aton("127.0.0.2"))
            fcntl.ioctl(control, SIOCSIFADDR, second)
        return True
    except OSError:
        return False


def raise_descriptor_limit() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = DESCRIPTORS if hard == resource.RLIM_INFINITY else min(DESCRIPTORS, hard)
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def clean_environment() -> dict[str, str]:
    """The environment of everything measured: a backtrace per error would be measured along (2.9 us each)."""
    environment = dict(os.environ)
    # R_LIBS could put a package that is only named httpuv (compat/httpuv) before the real one.
    for name in ("RUST_BACKTRACE", "RUST_LIB_BACKTRACE", "MALLOC_ARENA_MAX", "LD_PRELOAD", "R_LIBS", "R_LIBS_USER"):
        environment.pop(name, None)
    return environment


def run(line: list[str], limit_s: float, environment: dict[str, str] | None = None) -> subprocess.CompletedProcess:
    """Runs a program to its end. Raises RuntimeError when that does not come in time or is none in order."""
    name = Path(line[3] if line[0] == "taskset" else line[0]).name
    try:
        done = subprocess.run(
            line, env=environment or clean_environment(), capture_output=True, text=True, timeout=limit_s, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise RuntimeError(f"{name} did not end in {limit_s:.0f} s") from error
    if done.returncode != 0:
        raise RuntimeError(f"{name} ended with status {done.returncode}: {done.stderr.strip()[-200:]}")
    return done


def sample(
    line: list[str], limit_s: float, server: "Server | None" = None, environment: dict[str, str] | None = None
) -> tuple[str, float]:
    """What a program prints that is a sample, or loads the server of one, and the seconds that the server spent meanwhile."""
    others = bystanders.sample()
    before = server.cpu_seconds() if server else 0.0
    try:
        printed = run(line, limit_s, environment).stdout
    except RuntimeError as error:
        raise RuntimeError(f"{error}; {server.last_words()}" if server else str(error)) from error
    if server and not server.is_alive():
        raise RuntimeError(f"the server ended: {server.last_words()}")
    spent = server.cpu_seconds() - before if server else 0.0
    others.end(spent)
    return printed, spent


# Above this share of the machine's time spent by other programs during the samples, figures are not to be quoted.
QUIET = 0.05


class Bystanders:
    """How much of the machine other programs used while samples were taken.

    A server with two threads gets twice the time of one with one thread on a core that it shares with a stranger, so on
    a machine that is not quiet even ratios are off.
    """

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self.total_ticks = 0
        self.other_ticks = 0.0

    def sample(self) -> "_Sample":
        return _Sample(self)

    def share(self) -> float:
        return max(0.0, self.other_ticks) / self.total_ticks if self.total_ticks else 0.0


class _Sample:
    """One stretch of time; `own_seconds` is the processor time that the measured programs reported for it."""

    def __init__(self, owner: Bystanders) -> None:
        self.owner = owner
        self.before = _cpu_times()
        self.children_before = _children_seconds()

    def end(self, own_seconds: float) -> None:
        after = _cpu_times()
        total = sum(after[:8]) - sum(self.before[:8])
        idle = after[3] + after[4] - self.before[3] - self.before[4]
        own = (own_seconds + _children_seconds() - self.children_before) * os.sysconf("SC_CLK_TCK")
        self.owner.total_ticks += total
        self.owner.other_ticks += max(0.0, total - idle - own)


def _children_seconds() -> float:
    """Processor time of the children that ended and were waited for: the load generators, and this program itself."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    own = resource.getrusage(resource.RUSAGE_SELF)
    return children.ru_utime + children.ru_stime + own.ru_utime + own.ru_stime


bystanders = Bystanders()


def _cpu_times() -> list[int]:
    line = Path("/proc/stat").read_text(encoding="utf-8").splitlines()[0]
    return [int(field) for field in line.split()[1:]]


def describe() -> dict[str, str]:
    info = {
        "processor": _processor(),
        "cores": str(len(os.sched_getaffinity(0))),
        "memory": _memory(),
        "kernel": platform.release(),
    }
    commands = {
        "rustc": ["rustc", "--version"],
        "go": ["go", "version"],
        "R": ["Rscript", "--version"],
        "wrk": ["wrk", "-v"],
        "valgrind": ["valgrind", "--version"],
        "cc": ["cc", "--version"],
    }
    for name, command in commands.items():
        line = _first_line(command)
        if line:
            info[name] = line
    return info


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.machine()


def _memory() -> str:
    for line in Path("/proc/meminfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("MemTotal"):
            return f"{int(line.split()[1]) / 1048576:.0f} GiB"
    return "unknown"


def _first_line(command: list[str]) -> str:
    if shutil.which(command[0]) is None:
        return ""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    lines = (done.stdout + done.stderr).strip().splitlines()
    return lines[0].split(" Copyright")[0].strip() if lines else ""
