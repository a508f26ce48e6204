"""The two sides: an R process with Debian's httpuv, and one with Rookery's, each doing what it is asked by `driver.R`."""

import itertools
import os
import re
import shutil
import socket
import subprocess
import tempfile
import threading

HERE = os.path.dirname(os.path.abspath(__file__))
# Below the ports that the kernel hands out by itself, so that no client's port is in the way.
PORTS = itertools.count(12000 + os.getpid() * 97 % 15000)
PORTS_LOCK = threading.Lock()
# How long an R process may take for one command, on a machine that does other things as well.
PATIENCE = 120
# A process that writes more than this between two looks has lost itself in a loop: it is not used any more.
FLOOD = 1 << 20
# Not within a number in hexadecimal, such as that of an entity tag.
NUMBER = re.compile(r"(?<![0-9a-f])\d{5}(?![0-9a-f])")

INSTALL = "Debian's httpuv is the measure, and is not installed: `make setup` installs it (apt-get install r-cran-httpuv)"


class Died(Exception):
    """The R process ended, or does not answer."""


def free_port(host="127.0.0.1"):
    """A port that nobody listens on."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    while True:
        with PORTS_LOCK:
            port = next(PORTS)
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((host, port))
                return port
            except OSError:
                continue


def r_string(text):
    """A string as R code."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


class Side:
    """One R process. It is started when it is first asked for something, and again when it has died."""

    def __init__(self, name, environment, site):
        self.name = name
        self.environment = environment
        self.site = site
        self.process = None
        self.ports = set()

    def _start(self):
        self.dir = tempfile.mkdtemp(prefix=f"differential-{self.name}-")
        self.servers = {}
        self.told = {"stdout": 0, "stderr": 0}
        listener = socket.create_server(("127.0.0.1", 0))
        with open(self._path("stdout"), "wb") as out, open(self._path("stderr"), "wb") as err:
            self.process = subprocess.Popen(
                ["Rscript", "--vanilla", os.path.join(HERE, "driver.R"), str(listener.getsockname()[1]),
                 self._made("tmp"), self.site],
                stdin=subprocess.DEVNULL, stdout=out, stderr=err, env=self.environment, cwd=self._made("cwd"))
        listener.settimeout(PATIENCE)
        try:
            self.control = listener.accept()[0]
        except TimeoutError:
            raise RuntimeError(f"R did not start: {self._read('stderr')}") from None
        finally:
            listener.close()
        self.control.settimeout(PATIENCE)
        self.barrier_port = self.serve("function(req) ok()")
        self.output()

    def _path(self, name):
        return os.path.join(self.dir, name)

    def _made(self, name):
        os.makedirs(self._path(name), exist_ok=True)
        return self._path(name)

    def _read(self, name):
        with open(self._path(name), "rb") as file:
            file.seek(self.told[name])
            text = file.read(FLOOD)
        self.told[name] += len(text)
        return text.decode("utf-8", "backslashreplace")

    def ready(self):
        """Starts the process if there is none."""
        if self.process is None:
            self._start()

    def ask(self, code):
        """The text that R code returns."""
        self.ready()
        payload = code.encode()
        try:
            self.control.sendall(b"%08d" % len(payload) + payload)
            return self._exactly(int(self._exactly(8))).decode("utf-8", "backslashreplace")
        except TimeoutError:
            raise Died("process hung") from None
        except OSError:
            raise Died("process died") from None

    def _exactly(self, length):
        got = b""
        while len(got) < length:
            more = self.control.recv(length - len(got))
            if not more:
                raise ConnectionResetError
            got += more
        return got

    def serve(self, app, host="127.0.0.1"):
        """The port of a server of `app`, which is R code. One server serves all probes with the same app."""
        self.ready()
        key = (app, host)
        if key not in self.servers:
            for _ in range(5):
                port = free_port(host)
                said = self.ask(f"start({port}, {app}, {r_string(host)})")
                if "Failed to create server" not in said:
                    break
            if said != "started":
                raise RuntimeError(f"{self.name}: {said}\n{app}")
            self.servers[key] = port
            self.ports.add(str(port))
        return self.servers[key]

    def serve_pipe(self, app):
        """The path of a Unix socket that `app` is served on."""
        self.ready()
        key = (app, "pipe")
        if key not in self.servers:
            path = self._path(f"pipe{len(self.servers)}")
            said = self.ask(f"start_pipe({r_string(path)}, {app})")
            if said != "started":
                raise RuntimeError(f"{self.name}: {said}\n{app}")
            self.servers[key] = path
        return self.servers[key]

    def port(self):
        """A free port, whose number `normal` takes out."""
        port = free_port()
        self.ports.add(str(port))
        return port

    def barrier(self):
        """Returns once both threads of the process have done all that came before."""
        for _ in range(2):
            try:
                with socket.create_connection(("127.0.0.1", self.barrier_port), timeout=PATIENCE) as wire:
                    wire.sendall(b"GET /@barrier HTTP/1.1\r\nHost: barrier\r\nConnection: close\r\n\r\n")
                    wire.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)
                    while wire.recv(4096):
                        wire.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)
            except OSError:
                if self.process.poll() is not None:
                    raise Died("process died") from None
            self.ask('{settle(); ""}')

    def collect(self, event=None):
        """What the apps have noted since the last time; waits for an event that begins so."""
        return self.ask(f"collect({r_string(event) if event else 'NULL'})")

    def output(self):
        """What the process has written since the last time, as (stdout, stderr)."""
        written = self._read("stdout"), self._read("stderr")
        if max(map(len, written)) >= FLOOD:
            raise Died("process writes without end")
        return written

    def normal(self, text):
        """Text without what differs from process to process: ports, folders."""
        text = text.replace(self.dir, "<dir>").replace(self.site, "<site>")
        return NUMBER.sub(lambda found: "<port>" if found.group() in self.ports else found.group(), text)

    def stop(self):
        """Ends the process, if there is one."""
        if self.process is None:
            return
        self.process.kill()
        self.process.wait()
        self.control.close()
        shutil.rmtree(self.dir, ignore_errors=True)
        self.process = None
        self.ports = set()

    def died(self, how):
        """Puts an end to a process that does not answer, and says how it ended."""
        if how == "process died":
            try:
                self.process.wait(timeout=5)
            except subprocess.TimeoutExpired:
                pass
        self.stop()
        return how


def environments(library):
    """The environment of either side: Debian's httpuv has R's own libraries, Rookery's has `library` before them."""
    common = {name: value for name, value in os.environ.items() if not name.startswith("R_")}
    common.update(LC_ALL="C.UTF-8", TZ="UTC")
    theirs = dict(common, R_LIBS="", R_LIBS_USER="")
    compat = os.path.join(library, "rookery", "compat")
    front = [compat, library] if os.path.isdir(os.path.join(compat, "httpuv")) else [library]
    ours = dict(theirs, R_LIBS=os.pathsep.join(front))
    return theirs, ours


def which(environment):
    """The version of httpuv that R finds, whether it is Rookery's, and its names; None when there is none."""
    code = ('d <- suppressWarnings(packageDescription("httpuv"));'
            'if (is.list(d)) cat(d$Version, isTRUE(d[["Config/rookery/compat"]] == "true"), getNamespaceExports("httpuv"),'
            ' paste0(":::", ls(asNamespace("httpuv"))))')
    said = subprocess.run(["Rscript", "--vanilla", "-e", code], env=environment, capture_output=True, text=True, check=True)
    words = said.stdout.split()
    return (words[0], words[1] == "TRUE", words[2:]) if words else None


def both(library):
    """The environments of both sides, the version of Debian's httpuv and its names. Ends the program when one is not there."""
    theirs, ours = environments(library)
    found = which(theirs)
    if found is None or found[1]:
        raise SystemExit(f"differential: {INSTALL}")
    rookery = which(ours)
    if rookery is None or not rookery[1]:
        raise SystemExit(f"differential: Rookery's httpuv is not in {library}: `make install` installs it")
    return theirs, ours, found[0], found[2]
