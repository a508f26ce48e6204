"""A supervisor for tests, which starts a worker with rings, a control channel and a scoreboard.

    supervisor.py SOCKET OUTPUT PROGRAM [ARGUMENT ...]

crates/worker-protocol defines the protocol. Each line on stdin is a command of `COMMANDS`, and its result is one line
on stdout. Requests to SOCKET are passed on to the worker. The worker is killed when the supervisor ends.
"""

import fcntl
import mmap
import os
import select
import signal
import socket
import struct
import subprocess
import sys

from rings import Rings

# The layout of crates/worker-protocol/src/scoreboard.rs.
VERSION = 10
SLOTS = 1024
HEADER = 192
# The counts of spans and rejections, after the slots.
COUNTS = 64 + 256
# The request that R is processing, the table of routes, and a report for each slot.
TASK, ROUTES, REPORT = 128, 274_976, 144
# The functions on R's stack, the request of a profile, and the times of messages.
STACK, PROFILE, MESSAGES = 256, 64, 128
REPORTS_END = HEADER + 8 * SLOTS + COUNTS + TASK + ROUTES + REPORT * SLOTS
SIZE = -(-REPORTS_END // 64) * 64 + STACK + PROFILE + MESSAGES
F_ADD_SEALS, SEAL_SEAL, SEAL_SHRINK, SEAL_GROW = 1033, 1, 2, 4
PATIENCE = 60
# The first bytes of a packet that announces static paths.
ANNOUNCEMENT = b"Rk\x01S"

path, output, program = sys.argv[1], sys.argv[2], sys.argv[3:]

rings = Rings()
control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
memory = os.memfd_create("rookery-scoreboard", os.MFD_CLOEXEC | 2)
os.ftruncate(memory, SIZE)
fcntl.fcntl(memory, F_ADD_SEALS, SEAL_SEAL | SEAL_SHRINK | SEAL_GROW)
board = mmap.mmap(memory, SIZE)
board[0:16] = b"Rookery\0" + struct.pack("<II", VERSION, SIZE)

environment = dict(
    os.environ,
    ROOKERY_INTERNAL_RINGS_FDS=",".join(map(str, rings.inherited)),
    ROOKERY_INTERNAL_CONTROL_FD=str(theirs.fileno()),
    ROOKERY_INTERNAL_SCOREBOARD_FD=str(memory),
    ROOKERY_WORKER="1",
    ROOKERY_WORKER_COUNT="4",
    ROOKERY_GENERATION="0",
)
worker = subprocess.Popen(
    program,
    env=environment,
    pass_fds=(*rings.inherited, theirs.fileno(), memory),
    stdin=subprocess.DEVNULL,
    stdout=open(output, "wb"),
    stderr=subprocess.STDOUT,
)
theirs.close()
rings.listen(path, lambda: worker.poll() is None)


def number(at):
    return struct.unpack_from("<Q", board, at)[0]


def small(at):
    return struct.unpack_from("<I", board, at)[0]


def show(_):
    """Returns the fields of the scoreboard as name=value."""
    state = number(64)
    return " ".join(
        f"{name}={value}"
        for name, value in [
            ("r", ["starting", "idle", "busy", "messages"][state & 3]),
            ("since", state >> 2),
            ("pid", small(16)),
            ("tid", small(20)),
            ("stopping", small(24)),
            ("taken", number(72)),
            ("done", number(80)),
            ("busy_ns", number(88)),
            ("answering_ns", number(96)),
            ("handed", number(128) + rings.sent),
            ("sessions", number(136)),
        ]
    )


def begun(words):
    """Returns 1 if R has begun the request with this sequence number and slot, else 0."""
    sequence, slot = int(words[1]), int(words[2])
    return str(int(number(HEADER + 8 * slot) >= sequence << 1))


def withdraw(words):
    """Withdraws the request with this sequence number and slot, which R has not begun."""
    sequence, slot = int(words[1]), int(words[2])
    struct.pack_into("<Q", board, HEADER + 8 * slot, sequence << 1 | 1)
    return "withdrawn"


def send(words):
    """Sends a message, which is a letter and for some messages a number."""
    value = int(words[2]) if len(words) > 2 else 0
    control.send(b"Rk\x01" + words[1].encode() + bytes(4) + struct.pack("<Q", value))
    return "sent"


def receive(words):
    """Returns the letter and number of the next message, "end" for the end of the channel, or "nothing" after a timeout.

    Announcements of static paths are skipped."""
    seconds = float(words[1]) if len(words) > 1 else PATIENCE
    packet = ANNOUNCEMENT
    while packet[:4] == ANNOUNCEMENT:
        if not select.select([control], [], [], seconds)[0]:
            return "nothing"
        packet = control.recv(1 << 17)
    if not packet:
        return "end"
    assert len(packet) == 16 and packet[:3] == b"Rk\x01" and packet[4:8] == bytes(4), packet
    return f"{packet[3:4].decode()} {struct.unpack_from('<Q', packet, 8)[0]}"


def close(_):
    """Closes the control channel."""
    control.close()
    return "closed"


def kill(words):
    """Sends a signal to the worker."""
    os.kill(worker.pid, int(words[1]))
    return "sent"


def wait(words):
    """Returns the worker's exit status; a negative number is the signal that ended the worker."""
    try:
        return str(worker.wait(float(words[1]) if len(words) > 1 else PATIENCE))
    except subprocess.TimeoutExpired:
        return "runs"


COMMANDS = {
    "board": show,
    "begun": begun,
    "withdraw": withdraw,
    "send": send,
    "receive": receive,
    "close": close,
    "kill": kill,
    "wait": wait,
}

try:
    for line in sys.stdin:
        words = line.split()
        print(COMMANDS[words[0]](words), flush=True)
finally:
    if worker.poll() is None:
        worker.send_signal(signal.SIGKILL)
        worker.wait()
