#!/usr/bin/env python3
"""Plays the life of the single R process that the Windows program `rookery` starts, under wine, with fake_r.c in place of R.

  single_process.py rookery.exe Rterm.exe

The R process is started again when it fails, on the port that the program has chosen, and ends with the program. What does not
depend on the system is tested in crates/cli/src/serve/single_process.
Exit status: 0 as expected, 1 not, 2 wrong arguments.
"""

import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

# Seconds; the first start of wine takes most of a minute.
LIMIT_S = 120.0


class Unexpected(Exception):
    """A result that was not expected."""


def main() -> int:
    if len(sys.argv) != 3:
        print(__doc__, file=sys.stderr)
        return 2
    program, fake_r = map(Path, sys.argv[1:])
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        package = folder / "package"
        for path in (package / "exec", package / "serve", folder / "bin"):
            path.mkdir(parents=True)
        (package / "serve" / "cli.R").write_text("# Rterm.exe is not R\n")
        (package / "DESCRIPTION").write_text("Package: rookery\nVersion: 0.1.0\n")
        shutil.copy(program, package / "exec" / "rookery.exe")
        shutil.copy(fake_r, folder / "bin" / "Rterm.exe")
        try:
            restarts(folder)
        except Unexpected as complaint:
            print(f"single process: {complaint}")
            return 1
    print("single process: R is started again, and ends with the program")
    return 0


def start(folder: Path) -> subprocess.Popen:
    app = folder / "app"
    app.mkdir()
    (app / "app.R").write_text("1\n")
    line = ["wine", str(folder / "package" / "exec" / "rookery.exe"), "serve", str(app), "--port", "0", "--log=none"]
    # wine reads PATH for Windows programs from WINEPATH, and uses drive Z: for the files of this system.
    path = windows_path(str(folder / "bin"))
    environment = dict(os.environ, WINEPATH=";".join(filter(None, [path, windows_path(os.environ.get("WINEPATH"))])), WINEDEBUG="-all")
    with (app / "log").open("wb") as log:
        return subprocess.Popen(line, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log)


def windows_path(path: str | None) -> str | None:
    return "Z:" + path.replace("/", "\\") if path and path.startswith("/") else path


def log_of(folder: Path) -> str:
    return (folder / "app" / "log").read_text(encoding="utf-8", errors="replace")


def get(port: int, path: str) -> str | None:
    """Returns the response, or None if nothing listens or the connection breaks."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
            connection.sendall(f"GET {path} HTTP/1.0\r\n\r\n".encode())
            received = b""
            while part := connection.recv(4096):
                received += part
            return received.decode(errors="replace")
    except OSError:
        return None


def wait_for(condition, what: str, folder: Path):
    until = time.monotonic() + LIMIT_S
    while True:
        if value := condition():
            return value
        if time.monotonic() > until:
            raise Unexpected(f"not within {LIMIT_S:.0f} s: {what}. The log:\n{log_of(folder)}")
        time.sleep(0.1)


def restarts(folder: Path) -> None:
    process = start(folder)
    try:
        def ports():
            return re.findall(r"listens on port (\d+)", log_of(folder))

        port = int(wait_for(ports, "the port that the program chooses", folder)[0])

        def started(number: int):
            return wait_for(lambda: re.search(rf"start {number}\b", get(port, "/") or ""), f"start {number} of R on the same port", folder)

        started(1)
        # The program has to have seen that R listens, or it would take the failure for one of the start.
        time.sleep(1)
        get(port, "/fail")
        started(2)
        if "R ended with status 3: it starts again in" not in log_of(folder):
            raise Unexpected(f"the restart is not logged:\n{log_of(folder)}")
    finally:
        process.kill()
        process.wait()
    # The job object ends R with the program, whatever has ended the program.
    wait_for(lambda: get(port, "/") is None, "the end of R after that of the program", folder)


if __name__ == "__main__":
    sys.exit(main())
