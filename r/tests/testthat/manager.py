"""A service manager for tests, which starts a program with sockets and receives its notifications, as systemd does.

    manager.py SOCKET OUTPUT WATCHDOG_USEC PROGRAM [ARGUMENT ...]

The sockets are one on 127.0.0.1 and one at SOCKET. Notifications arrive at SOCKET.notify. Each line on stdin is a
command, and its result is one line on stdout:

- `port`: the TCP port
- `pid`: the process id of the program
- `hear`: the next notification that is not from the watchdog, with its lines separated by `|`
- `alive`: the next notification for the watchdog
- `signal N`: sends signal N to the program
- `end`: waits for the end of the program; the result is its exit status

The program is killed when the manager ends. WATCHDOG_USEC 0 means no watchdog. `{port}` in an ARGUMENT is replaced
by the port.
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


def move_sockets():
    """Moves the sockets to descriptors 3 and 4, in the new process."""
    above = [os.dup2(it.fileno(), 200 + at) for at, it in enumerate([tcp, unix])]
    for at, fd in enumerate(above):
        os.dup2(fd, 3 + at)
        os.set_inheritable(3 + at, True)


environment = dict(os.environ, LISTEN_FDS="2", NOTIFY_SOCKET=path + ".notify")
if watchdog != "0":
    environment["WATCHDOG_USEC"] = watchdog
program = [word.replace("{port}", str(tcp.getsockname()[1])) for word in program]
# A shell sets LISTEN_PID, because the process id is not known before the process starts.
child = subprocess.Popen(
    ["/bin/sh", "-c", 'LISTEN_PID=$$ exec "$0" "$@"', *program],
    env=environment,
    stdin=subprocess.DEVNULL,
    stdout=open(output, "ab"),
    stderr=subprocess.STDOUT,
    close_fds=False,
    preexec_fn=move_sockets,
)


def next_notification(is_watchdog):
    while True:
        text = notify.recv(4096).decode()
        if (text == "WATCHDOG=1") == is_watchdog:
            return text.replace("\n", "|")


def run_command(arguments):
    match arguments:
        case ["port"]:
            return tcp.getsockname()[1]
        case ["pid"]:
            return child.pid
        case ["hear"]:
            return next_notification(False)
        case ["alive"]:
            return next_notification(True)
        case ["signal", number]:
            child.send_signal(int(number))
            return "sent"
        case ["end"]:
            return child.wait(PATIENCE)


try:
    for line in sys.stdin:
        print(run_command(line.split()), flush=True)
finally:
    if child.poll() is None:
        child.send_signal(signal.SIGKILL)
    os.unlink(path)
    os.unlink(path + ".notify")
