"""Plays a recorded session of examples/shiny with 1, 10 and 50 users against httpuv and Rookery, and prints how long the
sessions took, side by side.

    python3 bench/shinyload/run.py [--users 1,10,50] [--rounds 1] [--write]

`make loadtest` runs it, with ROOKERY_LIB the library of `make install`. The recording is of shinyloadtest's own recorder
(record.R); its player is a Java program, player.py speaks the same format. Each number of users gets a new R per server, and
the servers take turns. --write puts the table into the vignette. The status is 1 when a session over Rookery failed.
"""

import argparse
import asyncio
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
# Of an R with Shiny, in seconds; on a machine that has much else to do it has taken two minutes.
LONGEST_START = 600
# Users begin this far apart, in seconds.
RAMP = 0.1


def libraries_of(side):
    rookery = pathlib.Path(os.environ.get("ROOKERY_LIB", TREE / ".local" / "lib")).resolve()
    if side == "httpuv":
        return ""
    inside = rookery / "rookery" / "compat"
    return os.pathsep.join(map(str, (inside if (inside / "httpuv").is_dir() else rookery, rookery)))


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class App:
    """examples/shiny in an R of its own, which ends with the block."""

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


def cell(durations, failures):
    text = f"{statistics.median(durations):.2f} / {max(durations):.2f}" if durations else "-"
    return text + (f", {len(failures)} failed" if failures else "")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--users", default="1,10,50")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    events = player.read_recording(RECORDING)
    recorded = events[-1].end - events[0].begin
    bad = 0
    rows = ["| Users | httpuv | Rookery | ratio of the medians |", "|---|---|---|---|"]
    for users in map(int, options.users.split(",")):
        found = {side: ([], []) for side in SIDES}
        for _ in range(options.rounds):
            for side in SIDES:
                with App(side) as app:
                    # The first page loads what Shiny loads once.
                    asyncio.run(player.play(RECORDING, "127.0.0.1", app.port, 1, 0))
                    durations, failures = asyncio.run(player.play(RECORDING, "127.0.0.1", app.port, users, RAMP))
                found[side][0].extend(durations)
                found[side][1].extend(failures)
                print(f"{users} users, {side}: {cell(durations, failures)}", flush=True)
                for failure in sorted(set(failures))[:3]:
                    print(f"  {failure}", flush=True)
        medians = [statistics.median(found[side][0]) if found[side][0] else float("nan") for side in SIDES]
        rows.append(f"| {users} | {cell(*found['httpuv'])} | {cell(*found['rookery'])} | {medians[1] / medians[0]:.2f} |")
        bad += len(found["rookery"][1])
    text = "\n".join(rows)
    print(f"\nSeconds a session took, median / longest; recorded in {recorded:.2f} s, {len(events)} events:\n\n{text}")
    if options.write:
        page = VIGNETTE.read_text()
        head, rest = page.split(BEGIN)
        _, foot = rest.split(END)
        VIGNETTE.write_text(f"{head}{BEGIN}\nRecorded in {recorded:.1f} s, {len(events)} events.\n\n{text}\n{END}{foot}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
