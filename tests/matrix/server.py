"""Starts `rookery serve` in a folder of its own, talks to it over real sockets, and ends it."""

import contextlib
import http.client
import itertools
import os
import shutil
import signal
import socket
import ssl
import subprocess
import tempfile
import threading
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
LIBRARY = Path(os.environ.get("ROOKERY_LIB", HERE.parent.parent / ".local" / "lib")).resolve()
PROGRAM = LIBRARY / "rookery" / "exec" / "rookery"
# Seconds that a step may take on a loaded machine before the test counts as failed.
PATIENCE = int(os.environ.get("ROOKERY_PATIENCE", "60"))

# The options that select each column of the matrix; `serve() in R` is one R process without the program.
MODES = {
    "serve() in R": None,
    "one worker": [],
    "two workers": ["--workers", "2"],
}


class Failed(Exception):
    """A behaviour that differs from the one expected."""


def check(holds, message):
    if not holds:
        raise Failed(message)


def equal(found, expected, message):
    check(found == expected, f"{message}: found {found!r}, expected {expected!r}")


def until(what, holds, seconds=PATIENCE):
    """Waits until `holds()` is true; an `OSError` counts as false."""
    deadline = time.monotonic() + seconds
    while True:
        with contextlib.suppress(OSError, http.client.HTTPException):
            if found := holds():
                return found
        check(time.monotonic() < deadline, f"waited in vain until {what}")
        time.sleep(0.03)


_ports = itertools.count(13000 + os.getpid() * 89 % 12000)
_ports_lock = threading.Lock()


def free_port():
    """Returns a port below the range from which the kernel assigns ports by itself."""
    while True:
        with _ports_lock:
            port = next(_ports)
        with contextlib.suppress(OSError), socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", port))
            return port


class Reply:
    def __init__(self, status, headers, body):
        self.status, self.headers, self.body = status, headers, body
        self.text = body.decode("utf-8", "replace")

    def header(self, name):
        return self.headers.get(name)


class _Unix(http.client.HTTPConnection):
    def __init__(self, path):
        super().__init__("localhost", timeout=PATIENCE)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self.path))


def _children(pid):
    with contextlib.suppress(OSError):
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return []


def _is_r(pid):
    with contextlib.suppress(OSError):
        return os.readlink(f"/proc/{pid}/exe").endswith("/R/bin/exec/R")
    return False


class Server:
    """A running `rookery serve`; use it as a context manager."""

    def __init__(self, *words, mode="one worker", yml=None, env=None, prefix=(), app=HERE / "app", files=None,
                 stdout=None, stderr=None, log="none", start=True, port=None, target=None, program=None,
                 r_code=None, r_settings=(), command=("serve",)):
        self.folder = Path(tempfile.mkdtemp(prefix="rookery-matrix-"))
        self.app = self.folder / "app"
        shutil.copytree(app, self.app)
        for name, text in (files or {}).items():
            path = self.app / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        if yml is not None:
            (self.app / "_server.yml").write_text("engine: rookery\napp: app.R\n" + yml)
        self.port = port or free_port()
        self.host = "127.0.0.1"
        self.tls = None
        self.is_in_r = r_code is not None
        # Sockets of clients, which close() closes: the server would wait for them.
        self.opened = []
        (self.folder / "tmp").mkdir()
        environment = {name: value for name, value in os.environ.items()
                       if not name.startswith(("ROOKERY_", "NOTIFY_", "LISTEN_")) or name == "ROOKERY_LIB"}
        environment |= {
            "R_LIBS": str(LIBRARY),
            "TMPDIR": str(self.folder / "tmp"),
            "HOME": str(self.folder),
            "XDG_DATA_HOME": str(self.folder / "data"),
            "R_USER_DATA_DIR": str(self.folder / "data"),
            "NO_COLOR": "1",
        } | (env or {})
        self.errors_path = self.folder / "stderr"
        self.output_path = self.folder / "stdout"
        if r_code is not None:
            # serve() with the settings of a case; `r_settings` are those that it gives in any place.
            more = {"port": 0 if port == 0 else self.port, "log": log}
            more = {name: value for name, value in more.items() if name not in r_settings and value is not None}
            command = [*prefix, "Rscript", "-e", r_code(more)]
        elif mode == "serve() in R":
            log_to = {"stdout": "TRUE", "none": "FALSE"}.get(log, f"'{log}'")
            # The app as an object, which this very R process serves.
            app = "setwd('{folder}/app'); app <- source('app.R', local = TRUE)$value"
            app = app if yml is None else "app <- '{folder}/app'"
            code = f"{app}; rookery::serve(app, port = {self.port}, log = {log_to})"
            command = [*prefix, "Rscript", "-e", code]
        else:
            command = [*prefix, str(program or PROGRAM), *command, str(target or self.app)]
            command += [str(word) for word in [*MODES[mode], *words]]
            has_port = port == 0 or "--port" in words or (yml is not None and '"port"' in yml) or "ROOKERY_PORT" in (env or {})
            command += [] if has_port else ["--port", str(self.port)]
            # None leaves the log to the settings of the case.
            command += [] if log in ("stdout", None) else ["--log", log]
        command = [word.replace("{folder}", str(self.folder)) for word in command]
        self.command = command
        self.process = subprocess.Popen(
            command, env=environment, stdin=subprocess.DEVNULL, cwd=self.folder,
            stdout=stdout or open(self.output_path, "wb"), stderr=stderr or open(self.errors_path, "wb"),
            start_new_session=True,
        )
        if start:
            try:
                until("it serves", self._is_serving)
            except Exception:
                self.close()
                raise

    def _is_serving(self):
        check(self.process.poll() is None, f"ended with {self.process.returncode}: {self.told()[-1500:]}")
        if not self.errors_path.exists():
            return self.get("/").status > 0
        return "Serving on" in self.told() or "Serving on" in self.written()

    def told(self):
        return self.errors_path.read_text(errors="replace") if self.errors_path.exists() else ""

    def written(self):
        return self.output_path.read_text(errors="replace") if self.output_path.exists() else ""

    def connect(self, timeout=PATIENCE, port=None):
        client = socket.create_connection((self.host, port or self.port), timeout)
        return self.tls.wrap_socket(client, server_hostname="localhost") if self.tls else client

    def request(self, method, path, body=None, headers=None, timeout=PATIENCE, unix=None, port=None):
        if unix:
            connection = _Unix(unix)
        elif self.tls and port is None:
            connection = http.client.HTTPSConnection("localhost", self.port, timeout=timeout, context=self.tls)
        else:
            connection = http.client.HTTPConnection(self.host, port or self.port, timeout=timeout)
        try:
            connection.request(method, path, body, headers or {})
            reply = connection.getresponse()
            return Reply(reply.status, reply.headers, reply.read())
        finally:
            connection.close()

    def get(self, path="/", **options):
        return self.request("GET", path, **options)

    def raw(self, text, timeout=PATIENCE):
        """Sends bytes on a new connection and returns everything that comes until it is closed."""
        with self.connect(timeout) as client:
            client.sendall(text if isinstance(text, bytes) else text.encode())
            return self.drain(client)

    @staticmethod
    def drain(client):
        received = b""
        with contextlib.suppress(ConnectionResetError, ssl.SSLEOFError):
            while part := client.recv(65536):
                received += part
        return received.decode("latin-1")

    def begin(self, path, **options):
        """Starts a GET in a thread; the result is a function that waits for its reply."""
        found = []

        def run():
            try:
                found.append(self.get(path, **options))
            except (OSError, http.client.HTTPException) as error:
                found.append(error)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()

        def wait():
            thread.join(PATIENCE)
            check(found, f"no reply to {path} in {PATIENCE} s")
            if isinstance(found[0], Exception):
                raise Failed(f"{path}: {found[0]!r}")
            return found[0]

        wait.is_over = lambda: bool(found)
        return wait

    def workers(self):
        """The processes of R below this server."""
        supervisor = self.supervisor()
        if _is_r(supervisor):
            return [supervisor]
        return [pid for pid in _children(supervisor) if _is_r(pid)]

    def supervisor(self):
        """The program, also where serve() in R has started it; without one the process of R."""
        if not self.is_in_r:
            return self.process.pid
        return next((pid for pid in _children(self.process.pid) if not _is_r(pid)), self.process.pid)

    def hold(self, count):
        """Keeps `count` R processes busy until the returned function is called, which gives the replies."""
        name = self.folder / f"hold-{time.monotonic_ns()}"
        name.touch()
        waits = [self.begin(f"/hold?{name}") for _ in range(count)]

        def release():
            name.unlink(missing_ok=True)
            return [wait() for wait in waits]

        return release

    def signal(self, number, everybody=False):
        os.killpg(self.process.pid, number) if everybody else os.kill(self.supervisor(), number)

    def ended(self, seconds=PATIENCE):
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise Failed(f"still running {seconds} s later; it said: {self.told()[-800:]}") from None

    def close(self):
        for client in self.opened:
            client.close()
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(20)
            except subprocess.TimeoutExpired:
                pass
        with contextlib.suppress(OSError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self):
        return self

    def __exit__(self, kind, error, _):
        if error is not None and isinstance(error, Exception):
            error.args = (f"{error}\n    command: {' '.join(self.command[1:])}\n    stderr: {self.told()[-600:].strip()}",)
        self.close()


def run(*words, mode="one worker", yml=None, env=None, files=None, seconds=PATIENCE, command=("serve",)):
    """Runs a server that is expected to end by itself; returns the exit status and what it said."""
    server = Server(*words, mode=mode, yml=yml, env=env, files=files, start=False, command=command)
    try:
        status = server.ended(seconds)
        return status, server.told() + server.written()
    finally:
        server.close()
