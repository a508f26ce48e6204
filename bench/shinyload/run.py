"""Plays a recorded session of examples/shiny with 1, 10 and 50 users against httpuv and Rookery. Prints the lengths of
the sessions, and the two latencies of shinyloadtest's report: the sum of a session's requests, and its longest wait for a
message.

    python3 bench/shinyload/run.py [--users 1,10,50] [--rounds 1] [--write]

`make loadtest` runs it, with the library of `make install` in ROOKERY_LIB. The recording was made by shinyloadtest's
own recorder (record.R); player.py reads the same format as its player, which is a Java program. Each number of users gets
a new R process for each server and round. The servers are measured in turns, so that other load on the machine affects
both, and the load averages of the run are printed with the table. --write puts the table into the vignette. The exit
status is 1 if a session over Rookery failed.
"""

import argparse
import contextlib
import itertools
import os
import pathlib
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import player  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent
TREE = HERE.parent.parent
RECORDING = HERE / "recording.log"
VIGNETTE = TREE / "r" / "vignettes" / "from-httpuv.Rmd"
BEGIN, END = "<!-- loadtest: made by make loadtest -->", "<!-- loadtest: end -->"
SIDES = ("httpuv", "rookery")
# The start of an R process with Shiny, in seconds; on a busy machine it has taken two minutes.
LONGEST_START = 600
# The interval between the starts of users, in seconds.
RAMP = 0.1


def libraries_of(side):
    rookery = pathlib.Path(os.environ.get("ROOKERY_LIB", TREE / ".local" / "lib")).resolve()
    if side == "httpuv":
        return ""
    inside = rookery / "rookery" / "compat"
    return os.pathsep.join(map(str, (inside if (inside / "httpuv").is_dir() else rookery, rookery)))


# A port below those that the kernel assigns, so that no other program gets it before it is used.
PORTS = itertools.count(12000 + os.getpid() * 97 % 15000)


def free_port():
    while True:
        with contextlib.suppress(OSError), socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", port := next(PORTS)))
            return port


class App:
    """Runs examples/shiny in an R process of its own, which ends with the block."""

    def __init__(self, side):
        self.side = side
        self.port = free_port()
        self.output = tempfile.TemporaryFile("w+")

    def __enter__(self):
        wanted = "TRUE" if self.side == "rookery" else "FALSE"
        check = f'identical(packageDescription("httpuv")[["Config/rookery/compat"]], "true") == {wanted}'
        serve = f'stopifnot({check}); shiny::runApp("{TREE / "examples" / "shiny"}", port = {self.port}L, launch.browser = FALSE)'
        self.process = subprocess.Popen(
            ["Rscript", "--vanilla", "-e", serve],
            stdin=subprocess.DEVNULL,
            stdout=self.output,
            stderr=subprocess.STDOUT,
            env={**os.environ, "R_LIBS": libraries_of(self.side)},
            start_new_session=True,
        )
        until = time.monotonic() + LONGEST_START
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                return self
            except OSError:
                if self.process.poll() is not None or time.monotonic() > until:
                    self.__exit__()
                    self.output.seek(0)
                    raise RuntimeError(f"the app does not start over {self.side}:\n{self.output.read()}") from None
                time.sleep(0.1)

    def __exit__(self, *_):
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()


def row(users, side, played, failures):
    if not played:
        return f"| {users} | {side} | - | - | - | {len(failures)} |"
    whole = [one.whole for one in played]
    cells = (
        f"{statistics.median(whole):.2f} / {max(whole):.2f}",
        f"{statistics.median(one.requests for one in played):.2f}",
        f"{statistics.median(one.message for one in played):.2f}",
    )
    return f"| {users} | {side} | {' | '.join(cells)} | {len(failures)} |"


def measured(options, failed, loads):
    """Returns the table of all numbers of users. Appends the failures over Rookery to `failed`, and
    load averages to `loads`.
    """
    rows = ["| Users | Server | Session, median / longest | Its requests | Its longest wait | Failed |", "|---|---|---|---|---|---|"]
    for users in map(int, options.users.split(",")):
        found = {side: ([], []) for side in SIDES}
        for turn in range(options.rounds):
            # Neither server is always the first.
            for side in SIDES if turn % 2 == 0 else SIDES[::-1]:
                with App(side) as app:
                    # The first page loads what Shiny loads only once.
                    player.play(RECORDING, "127.0.0.1", app.port, 1, 0)
                    played, failures = player.play(RECORDING, "127.0.0.1", app.port, users, RAMP)
                found[side][0].extend(played)
                found[side][1].extend(failures)
                loads.append(os.getloadavg()[0])
                print(row(users, side, played, failures), flush=True)
                for failure in sorted(set(failures))[:3]:
                    print(f"  {failure}", flush=True)
        rows += [row(users, side, *found[side]) for side in SIDES]
        failed += found["rookery"][1]
    return "\n".join(rows)


def machine(loads):
    """Describes the machine for the readers of the figures."""
    return (
        f"{os.cpu_count()} processors, shared by the player and the server; load averages between "
        f"{min(loads):.1f} and {max(loads):.1f}"
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--users", default="1,10,50")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    events = player.read_recording(RECORDING)
    failed = []
    loads = [os.getloadavg()[0]]
    rows = measured(options, failed, loads)
    text = (
        f"Of a session's {len(events)} events the user's pauses are {sum(player.pauses(events)):.1f} s. Rounds: "
        f"{options.rounds}; {machine(loads)}.\n\n{rows}"
    )
    print(f"\n{text}")
    if options.write:
        page = VIGNETTE.read_text()
        head, rest = page.split(BEGIN)
        _, foot = rest.split(END)
        VIGNETTE.write_text(f"{head}{BEGIN}\n{text}\n{END}{foot}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
