"""A service manager for tests: opens sockets, starts a program with them and a way to tell it things, as systemd does.

    manager.py SOCKET OUTPUT WATCHDOG_USEC PROGRAM [ARGUMENT ...]

It listens on 127.0.0.1 and at SOCKET, and hears at SOCKET.notify. Its stdin takes a command a line, and each is answered with a line:
`port`; `pid`; `hear`, with what it is told next that is no sign of life, its lines separated by `|`; `alive`, when a sign of life has come;
`signal N`; `end`, with the exit status. The program is killed with it. Without WATCHDOG_USEC (0) nobody watches. In an ARGUMENT `{port}` is
the port.
"""

import os
import signal
import socket
import subprocess
import sys

PATIENCE = 60

path, output, watchdog, program = sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4:]

tcp = socket.create_server(("127.0.0.1", 0))
unix = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
unix.bind(path)
unix.listen(64)
notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
notify.bind(path + ".notify")
notify.settimeout(PATIENCE)


def settle():
    """In the new process: the sockets lie where they have to."""
    above = [os.dup2(it.fileno(), 200 + at) for at, it in enumerate([tcp, unix])]
    for at, fd in enumerate(above):
        os.dup2(fd, 3 + at)
        os.set_inheritable(3 + at, True)


environment = dict(os.environ, LISTEN_FDS="2", NOTIFY_SOCKET=path + ".notify")
if watchdog != "0":
    environment["WATCHDOG_USEC"] = watchdog
program = [word.replace("{port}", str(tcp.getsockname()[1])) for word in program]
# A process's own number is known to itself first: so a shell names it.
child = subprocess.Popen(
    ["/bin/sh", "-c", 'LISTEN_PID=$$ exec "$0" "$@"', *program],
    env=environment,
    stdin=subprocess.DEVNULL,
    stdout=open(output, "ab"),
    stderr=subprocess.STDOUT,
    close_fds=False,
    preexec_fn=settle,
)


def hear(wants_sign):
    while True:
        said = notify.recv(4096).decode()
        if (said == "WATCHDOG=1") == wants_sign:
            return said.replace("\n", "|")


def answer(words):
    match words:
        case ["port"]:
            return tcp.getsockname()[1]
        case ["pid"]:
            return child.pid
        case ["hear"]:
            return hear(False)
        case ["alive"]:
            return hear(True)
        case ["signal", number]:
            child.send_signal(int(number))
            return "sent"
        case ["end"]:
            return child.wait(PATIENCE)


try:
    for line in sys.stdin:
        print(answer(line.split()), flush=True)
finally:
    if child.poll() is None:
        child.send_signal(signal.SIGKILL)
    os.unlink(path)
    os.unlink(path + ".notify")
