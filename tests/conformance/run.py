#!/usr/bin/env python3
"""Our WebSockets under Autobahn's cases, and what they find against expected.json.

  run.py server|client|tls|h2|workers|all [full|short]

server: our WebSocket crate's server under Autobahn's fuzzing client; client: its client under Autobahn's fuzzing server; tls and h2: our HTTP server
under the fuzzing client, over TLS and within HTTP/2 (RFC 8441), which Autobahn does not speak: a bridge of ours carries the bytes
(crates/websocket-client/examples/websocket_bridge.rs); workers: an R app that echoes, with two workers, from the library in
ROOKERY_LIB (default .local/lib). short leaves out sections 12 and 13 (compression), which take most of the time. Environment: CARGO_FLAGS (other than --release), CONFORMANCE_OUT (default
.local/conformance), CONFORMANCE_DRIVER (another program than the suite), what install.py and suite/__main__.py name.
Exit status: 0 as expected, 1 not, 2 wrong arguments.
"""

import contextlib
import http.client
import json
import os
import selectors
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import install
import judge

ROOT = Path(__file__).resolve().parents[2]
ROLES = ("server", "client", "tls", "h2", "workers")
ECHO = """list(call = function(req) list(status = 404L, headers = list(), body = ""),
  onWSOpen = function(ws) ws$onMessage(function(binary, message) ws$send(message)))
"""
LEFT_OUT = {"full": "", "short": "12 13"}
# How long our server has to start, and how long past its own limit the suite has to end.
START_LIMIT_S, GRACE_S = 20.0, 60.0


class RunError(Exception):
    """Nothing to judge; the text says why and what to do."""


def main() -> int:
    arguments = sys.argv[1:]
    if len(arguments) not in (1, 2) or arguments[0] not in (*ROLES, "all"):
        print(__doc__, file=sys.stderr)
        return 2
    size = (arguments + ["full"])[1]
    if size not in LEFT_OUT:
        print(f"conformance: {size} is neither full nor short", file=sys.stderr)
        return 2
    try:
        driver = [os.environ.get("CONFORMANCE_DRIVER") or ""]
        if not driver[0]:
            install.install()
            driver = ["nice", "-n", "10", *install.command()]
        chosen = ROLES if arguments[0] == "all" else (arguments[0],)
        # All are played, also where the first is not as expected.
        return max([PLAYS[role](driver, size) for role in chosen])
    except (RunError, install.InstallError) as error:
        print(f"conformance: {error}", file=sys.stderr)
        return 1


def play_server(driver: list[str], size: str) -> int:
    with serving([example("echo_server"), "127.0.0.1:0", "--deflate"]) as url:
        return play("server", [*driver, "client", url, "*", LEFT_OUT[size]], size)


def play_client(driver: list[str], size: str) -> int:
    return play("client", [*driver, "server", "*", LEFT_OUT[size], "--", example("autobahn_client")], size)


def play_bridged(way: str, driver: list[str], size: str) -> int:
    """Plays our HTTP server over TLS; `way` is how, for the bridge."""
    with tempfile.TemporaryDirectory() as folder:
        server = example("https_server", package="rookery-server")
        bridge = example("websocket_bridge", package="rookery-websocket-client")
        with serving([server, "127.0.0.1:0", folder]) as address:
            [certificate] = Path(folder).glob("*.pem")
            with serving([bridge, way, address, str(certificate)]) as url:
                return play(way, [*driver, "client", url, "*", LEFT_OUT[size]], size)


def play_workers(driver: list[str], size: str) -> int:
    """Plays an R app with two workers."""
    library = Path(os.environ.get("ROOKERY_LIB") or ROOT / ".local" / "lib")
    with tempfile.TemporaryDirectory() as folder, socket.socket() as probe:
        Path(folder, "app.R").write_text(ECHO, encoding="utf-8")
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
        probe.close()
        program = library / "rookery" / "exec" / "rookery"
        options = ["--workers", "2", "--port", str(port), "--log", "none", "--ws-compression", "threshold=1,takeover=on"]
        environment = dict(os.environ, R_LIBS=str(library))
        with subprocess.Popen([program, "serve", folder, *options], env=environment) as server:
            try:
                wait_for(port)
                return play("workers", [*driver, "client", f"ws://127.0.0.1:{port}", "*", LEFT_OUT[size]], size)
            finally:
                server.terminate()


def wait_for(port: int) -> None:
    """Waits until an app responds at a port."""
    end = time.monotonic() + START_LIMIT_S
    while time.monotonic() < end:
        with contextlib.suppress(OSError), contextlib.closing(http.client.HTTPConnection("127.0.0.1", port)) as connection:
            connection.request("GET", "/")
            connection.getresponse()
            return
        time.sleep(0.2)
    raise RunError("the app did not start")


PLAYS = {"workers": play_workers, "server": play_server, "client": play_client, "tls": partial(play_bridged, "tls"), "h2": partial(play_bridged, "h2")}


def play(role: str, line: list[str], size: str) -> int:
    """Runs a driver of the suite and judges what it found.

    What an earlier run found is deleted first, or a run that never began would be judged by it. The driver ends with 1 where
    a case failed, which is the judge's to say, since some failures are expected; with anything else it did not play to the
    end.
    """
    folder = Path(os.environ.get("CONFORMANCE_OUT") or ROOT / ".local" / "conformance") / f"{role}-{size}"
    folder.mkdir(parents=True, exist_ok=True)
    index, summary = folder / "index.json", folder / "summary.txt"
    index.unlink(missing_ok=True)
    environment = dict(install.environment(), AB_OUT=str(folder), AB_AGENT="rookery")
    limit = float(environment.setdefault("AB_TIMEOUT", "3600")) + GRACE_S
    with summary.open("wb") as out:
        try:
            status = subprocess.run(line, env=environment, stdout=out, timeout=limit, check=False).returncode
        except subprocess.TimeoutExpired:
            raise RunError(f"the driver did not end within {limit:.0f} s; AB_TIMEOUT sets another limit") from None
    if status not in (0, 1) or not index.is_file() or index.stat().st_size == 0:
        end = "\n".join(summary.read_text(encoding="utf-8", errors="replace").splitlines()[-20:])
        found = "an index" if index.is_file() else "no index"
        raise RunError(f"{end}\nthe driver ended with status {status} and {found}; AB_VERBOSE=1 shows each case: {line}")
    count, wrong = judge.complaints(index, size, role)
    for text in wrong:
        print(f"judge: {text}")
    print(f"judge: {role}: {count} cases, {len(wrong)} not as expected ({index})", flush=True)
    return 1 if wrong else 0


def example(name: str, package: str = "rookery-websocket") -> str:
    """Builds an example of a crate; its path."""
    flags = os.environ.get("CARGO_FLAGS", "--release").split()
    line = ["cargo", "build", "--quiet", *flags, "-p", package, "--example", name, "--message-format", "json"]
    try:
        done = subprocess.run(line, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False)
    except FileNotFoundError:
        raise RunError("cargo is not on the PATH; `make setup` installs it") from None
    messages = [json.loads(text) for text in done.stdout.splitlines()]
    paths = [each["executable"] for each in messages if each.get("executable") and each["target"]["name"] == name]
    if done.returncode != 0 or not paths:
        raise RunError(f"`{' '.join(line)}` failed")
    return paths[-1]


@contextmanager
def serving(line: list[str]):
    """A server of ours, which says where it listens; its address."""
    with subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as server:
        try:
            with selectors.DefaultSelector() as selector:
                selector.register(server.stdout, selectors.EVENT_READ)
                said = server.stdout.readline() if selector.select(START_LIMIT_S) else ""
            if not said.startswith("listening on "):
                raise RunError(f"the server did not start; run `{' '.join(line)}` to see why")
            yield said.removeprefix("listening on ").strip()
        finally:
            server.kill()


if __name__ == "__main__":
    began = time.monotonic()
    status = main()
    print(f"conformance: {time.monotonic() - began:.0f} s", file=sys.stderr)
    sys.exit(status)
