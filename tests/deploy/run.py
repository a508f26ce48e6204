#!/usr/bin/env python3
"""The files of deploy/, used: HAProxy and nginx before a real Rookery, systemd's own check of the units, Kubernetes' own types for the
manifests, and what they name asked of a server.

    tests/deploy/run.py [haproxy|replicas|nginx|systemd|kubernetes|prometheus ...]      default: all

ROOKERY_LIB is the library with the R package (default .local/lib). What is not installed is said, and no failure. Exit status: 0 all that
ran passed; 1 not.
"""

import base64
import contextlib
import itertools
import json
import os
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from urllib.parse import quote

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
DEPLOY = ROOT / "deploy"
LIBRARY = Path(os.environ.get("ROOKERY_LIB", ROOT / ".local" / "lib")).resolve()
ROOKERY = LIBRARY / "rookery" / "exec" / "rookery"
# Seconds that anything may take on a machine that is busy.
PATIENCE = 60
# Not the address of the proxy, which is 127.0.0.1: all of 127.0.0.0/8 is this machine.
CLIENT = "127.0.0.2"


class Failed(Exception):
    """What is wrong."""


def check(is_so, what):
    if not is_so:
        raise Failed(what)


def until(what, is_so):
    deadline = time.monotonic() + PATIENCE
    while True:
        with contextlib.suppress(OSError):
            if is_so():
                return
        check(time.monotonic() < deadline, f"it did not come to be that {what}")
        time.sleep(0.05)


# Below the ports that the kernel hands out by itself, so that nobody else gets one in the moment until it is used.
PORTS = itertools.count(12000 + os.getpid() * 97 % 15000)


def free_port():
    while True:
        with contextlib.suppress(OSError), socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", port := next(PORTS)))
            return port


@contextlib.contextmanager
def running(words, **options):
    """A process, which is ended; `stop` ends it in order before, and gives its exit status."""
    log = tempfile.TemporaryFile("w+")
    process = subprocess.Popen([str(word) for word in words], stdout=log, stderr=log, **options)
    try:
        yield process
    except Exception:
        log.seek(0)
        sys.stderr.write(f"--- {words[0]} said:\n{log.read()[-4000:]}\n")
        raise
    finally:
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        log.close()


def connect(port, source="127.0.0.1"):
    client = socket.create_connection(("127.0.0.1", port), PATIENCE, (source, 0))
    client.settimeout(PATIENCE)
    return client


def ask(port, path, headers="", method="GET", body=b"", source="127.0.0.1", host="app.example.org"):
    """The status, the head and the body of a reply."""
    with connect(port, source) as client:
        length = f"Content-Length: {len(body)}\r\n" if body else ""
        head = f"{method} {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n{length}{headers}\r\n"
        client.sendall(head.encode() + body)
        reply = b""
        while part := client.recv(65536):
            reply += part
    head, _, body = reply.partition(b"\r\n\r\n")
    if b"transfer-encoding: chunked" in head.lower():
        rest, body = body, b""
        while rest:
            size, _, rest = rest.partition(b"\r\n")
            body += rest[: int(size, 16)]
            rest = rest[int(size, 16) + 2 :]
    return int(head.split()[1]) if head else 0, head.decode("latin-1"), body.decode()


def frame(text):
    """A message of a client, masked by zeros."""
    data = text.encode()
    return struct.pack("!BBI", 0x81, 0x80 | len(data), 0) + data


def whole(client, length):
    data = b""
    while len(data) < length:
        part = client.recv(length - len(data))
        check(part, "the connection ended early")
        data += part
    return data


def check_websocket(port):
    with connect(port) as client:
        key = base64.b64encode(b"0123456789abcdef").decode()
        client.sendall(
            (
                "GET / HTTP/1.1\r\nHost: app.example.org\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
                f"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key}\r\n\r\n"
            ).encode()
        )
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            head += whole(client, 1)
        check(head.startswith(b"HTTP/1.1 101 "), f"a handshake is answered with {head!r}")
        for text in ["a", "b" * 100]:
            client.sendall(frame(text))
            first, length = whole(client, 2)
            said = whole(client, length).decode()
            check((first, said) == (0x81, f"you said {text}"), f"a message is answered with {first}, {said!r}")


def check_events(port):
    with connect(port) as client:
        client.sendall(b"GET /events HTTP/1.1\r\nHost: a\r\nAccept: text/event-stream\r\nConnection: close\r\n\r\n")
        seen = b""
        while b"data: first" not in seen:
            part = client.recv(65536)
            check(part, f"the stream ended: {seen!r}")
            seen += part
        # The app makes the second a second later.
        check(b"data: second" not in seen, "an event is held back until the next")
        while part := client.recv(65536):
            seen += part
        check(b"data: second" in seen, f"an event was lost: {seen!r}")


class Server:
    """A real Rookery, with workers."""

    def __init__(self, folder, *options, app_file="app.R"):
        self.port, self.admin = free_port(), free_port()
        app = Path(folder) / "app"
        app.mkdir(parents=True)
        shutil.copy(HERE / app_file, app / "app.R")
        words = [ROOKERY, "serve", app, "--workers", "2", "--port", self.port, "--admin", f"127.0.0.1:{self.admin}", "--log=none"]
        self.words = [*words, *options]

    def run(self):
        return running(self.words, env={**os.environ, "R_LIBS": f"{LIBRARY}:{os.environ.get('R_LIBS', '')}"})

    def tell(self, path):
        """What the admin listener says: to names of this machine alone, on loopback."""
        status, _, body = ask(self.admin, path, host="localhost")
        return status, body

    def is_ready(self):
        return self.tell("/-/ready")[0] == 200


def shipped(name, replaced):
    """The text of a file of deploy/, with each of these, which it has, replaced."""
    text = (DEPLOY / name).read_text()
    for old, new in replaced.items():
        check(text.count(old) == 1, f"deploy/{name} has not {old!r} once")
        text = text.replace(old, new)
    return text


def check_through(front, server, process, who):
    """What has to be the same through any proxy, and the order of an end."""
    until("it answers", lambda: ask(front, "/")[0] == 200)
    check(ask(front, "/")[2] == "hello", "a request")
    status, _, said = ask(front, "/who", headers="X-Forwarded-For: 1.2.3.4\r\n", source=CLIENT)
    check((status, said) == (200, who), f"the client is {said!r}, and not {who!r}")
    status, _, said = ask(front, "/size", method="POST", body=b"x" * 3_000_000)
    check((status, said) == (200, "3000000"), f"3 MB are answered with {status}, {said!r}")
    check_websocket(front)
    check_events(front)
    # What was begun is answered.
    with connect(front) as client:
        client.sendall(b"GET /sleep HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        until("it has begun", lambda: "GET /sleep" in server.tell("/status")[1])
        process.send_signal(signal.SIGTERM)
        until("it is ready no more", lambda: server.tell("/-/ready")[0] == 503)
        reply = b""
        while part := client.recv(65536):
            reply += part
    check(reply.startswith(b"HTTP/1.1 200 ") and b"slept" in reply, f"what was begun is answered with {reply[:200]!r}")
    check(process.wait(PATIENCE) == 0, f"it ends with status {process.returncode}")
    check(ask(front, "/")[0] in (502, 503), "a proxy without a server")


def haproxy(folder):
    server, front = Server(folder, "--proxy-protocol", "--proxy-protocol-from", "127.0.0.1"), free_port()
    file = Path(folder) / "haproxy.cfg"
    file.write_text(
        shipped(
            "haproxy.cfg",
            {"bind :80\n": f"bind 127.0.0.1:{front}\n", "server one 127.0.0.1:8000": f"server one 127.0.0.1:{server.port}", "check port 9100": f"check port {server.admin}"},
        )
    )
    with server.run() as process:
        until("workers are ready", server.is_ready)
        with running(["haproxy", "-db", "-f", file]):
            # By the PROXY protocol; a header of the client's own is the client's own.
            check_through(front, server, process, f"{CLIENT} 1.2.3.4 http app.example.org")


def nginx(folder):
    server, front = Server(folder, "--trusted-proxies", "127.0.0.1"), free_port()
    file = Path(folder) / "nginx.conf"
    replaced = {"listen 80;": f"listen 127.0.0.1:{front};", "        server 127.0.0.1:8000;": f"        server 127.0.0.1:{server.port};", "pid /run/nginx.pid;": f"pid {folder}/nginx.pid;"}
    file.write_text(shipped("nginx.conf", replaced))
    with server.run() as process:
        until("workers are ready", server.is_ready)
        with running(["nginx", "-p", folder, "-c", file, "-g", "daemon off; error_log stderr;"]):
            check_through(front, server, process, f"{CLIENT} {CLIENT} http app.example.org")


def systemd(folder):
    # Its users and its program are not here.
    unit = shipped("systemd/rookery.service", {"ExecStart=/usr/local/bin/rookery": f"ExecStart={ROOKERY}", "ExecStartPre=/usr/local/bin/rookery": f"ExecStartPre={ROOKERY}", "User=rookery": "User=daemon"})
    (Path(folder) / "rookery.service").write_text(unit)
    shutil.copy(DEPLOY / "systemd" / "rookery.socket", folder)
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", f"{folder}/rookery.service", f"{folder}/rookery.socket"],
        capture_output=True, text=True, check=False,
    )
    said = [line for line in done.stderr.splitlines() if "rookery" in line]
    check(done.returncode == 0 and not said, f"systemd-analyze says: {done.stderr}")
    values = dict(line.split("=", 1) for line in unit.splitlines() if "=" in line and not line.startswith("#"))
    drain = seconds(option(values["ExecStart"].split(), "--drain"))
    check(int(values["TimeoutStopSec"]) >= drain + 15, "TimeoutStopSec is shorter than what ending may take")
    socket_activation(folder, values["ExecStart"].split(), (DEPLOY / "systemd" / "rookery.socket").read_text())


def socket_activation(folder, words, unit):
    """The words of rookery.service with the port of rookery.socket, and then with the two ports that its comment names for HTTPS."""
    if shutil.which("systemd-socket-activate") is None:
        print("deploy: systemd: sockets NOT RUN: there is no systemd-socket-activate")
        return
    check("ListenStream=80\n" in unit and "`ListenStream=443`" in unit, "rookery.socket has other ports")
    app = Path(folder) / "app"
    app.mkdir()
    shutil.copy(HERE / "app.R", app / "app.R")
    own = {"/srv/app": app, "auto": "1", "unix:/run/rookery/admin.sock": f"unix:{folder}/admin.sock", "/var/log/rookery/access.log": f"{folder}/access.log"}
    words = [str(own.get(word, word)) for word in words]
    environment = {**os.environ, "R_LIBS": f"{LIBRARY}:{os.environ.get('R_LIBS', '')}"}

    def activated(ports, options):
        listen = [f"--listen=127.0.0.1:{port}" for port in ports]
        # The name that systemd gives to the sockets of a unit without FileDescriptorName=.
        names = f"--fdname={':'.join('rookery.socket' for _ in ports)}"
        variables = [f"R_LIBS={environment['R_LIBS']}"]
        if "--domain" in options:
            # No authority is needed for these tests.
            variables += ["ROOKERY_ACME_DIRECTORY=https://127.0.0.1:1/", f"ROOKERY_ACME_DIR={folder}/acme"]
        setenv = [f"--setenv={variable}" for variable in variables]
        return running(["systemd-socket-activate", *listen, names, *setenv, *words, *options], env=environment)

    http, https = free_port(), free_port()
    with activated([http], []) as process:
        until("the app answers on the inherited port", lambda: ask(http, "/")[::2] == (200, "hello"))
        process.terminate()
        check(process.wait(PATIENCE) == 0, f"it ends with status {process.returncode}")
    options = ["--domain=app.example.org", "--agree-tos", f"--port={https}", f"--redirect-from={http}"]
    with activated([http, https], options) as process:
        until("the port for HTTP redirects", lambda: f"\r\nLocation: https://app.example.org:{https}/x\r\n" in ask(http, "/x")[1])
        with connect(https) as client:
            client.sendall(b"GET / HTTP/1.1\r\nHost: app.example.org\r\nConnection: close\r\n\r\n")
            check(client.recv(4096).startswith(b"HTTP/1.1 400"), "the port for HTTPS answers to plain HTTP")
        process.terminate()
        check(process.wait(PATIENCE) == 0, f"it ends with status {process.returncode}")


def option(words, name):
    for at, word in enumerate(words):
        if word == name:
            return words[at + 1]
        if word.startswith(f"{name}="):
            return word.split("=", 1)[1]
    raise Failed(f"{name} is not given in {words}")


def seconds(text):
    check(text.endswith("s") and text[:-1].isdigit(), f"{text} is no number of seconds")
    return int(text[:-1])


def words_of_pod(words, server):
    """The words of the pod, with the address and the ports of a server of this machine."""
    own = {"--port": f"--port={server.port}", "--admin": f"--admin=127.0.0.1:{server.admin}"}
    return [own.get(word.split("=", 1)[0], word) for word in words]


# Makes the file system read-only, in a name space of its own.
READ_ONLY = "mount --make-rprivate / && mount -o remount,bind,ro / && ! touch /rookery-test 2>/dev/null"


def may_confine(user):
    """Whether a process can be confined: only as root, not in every container, and if the user may read the program."""
    script = f"{READ_ONLY} && exec setpriv --reuid={user} --clear-groups test -x {ROOKERY}"
    return subprocess.run(["unshare", "--mount", "sh", "-c", script], capture_output=True, check=False).returncode == 0


def confined(folder, user):
    """The words that run a program as the pod does: as a user without privileges, with one writable folder for temporary files."""
    own = Path(folder) / "tmp"
    own.mkdir(mode=0o777)
    own.chmod(0o1777)
    script = f"mount --bind {own} {own} && {READ_ONLY} && export HOME={own} TMPDIR={own} && exec setpriv --reuid={user} --regid={user}"
    return ["unshare", "--mount", "sh", "-c", f'{script} --clear-groups --no-new-privs --bounding-set=-all --inh-caps=-all "$@"', "sh"]


def affinity_cookie():
    """The name of the cookie for session affinity in deploy/haproxy.cfg."""
    (line,) = [line for line in (DEPLOY / "haproxy.cfg").read_text().splitlines() if line.strip().startswith("#cookie ")]
    return line.split()[1]


class Session:
    """A page of Shiny: its cookies, its WebSocket and the URL of its download."""

    def __init__(self, port):
        self.port, self.cookies = port, {}
        check(self.get("/")[0] == 200, "the page is not served")
        self.client = connect(port)
        key = base64.b64encode(b"0123456789abcdef").decode()
        self.client.sendall(
            (
                "GET /websocket/ HTTP/1.1\r\nHost: app.example.org\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
                f"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key}\r\n{self.cookie_line()}\r\n"
            ).encode()
        )
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            head += whole(self.client, 1)
        check(head.startswith(b"HTTP/1.1 101 "), f"a handshake is answered with {head!r}")
        self.client.sendall(frame('{"method":"init","data":{".clientdata_output_file_hidden":false}}'))
        while not (found := re.search(r'session/[0-9a-f]+/download/file\?w=[^"\\]*', self.message())):
            pass
        self.url = f"/{found[0]}"

    def cookie_line(self):
        return f"Cookie: {'; '.join(f'{name}={value}' for name, value in self.cookies.items())}\r\n" if self.cookies else ""

    def get(self, path):
        """The status and the body of a reply; its cookies are kept."""
        status, head, body = ask(self.port, path, headers=self.cookie_line())
        for line in head.split("\r\n"):
            name, _, value = line.partition(":")
            if name.lower() == "set-cookie":
                self.cookies.update([value.strip().split(";")[0].split("=", 1)])
        return status, body

    def message(self):
        """The text of the next frame of the server."""
        _, length = whole(self.client, 2)
        if length > 125:
            (length,) = struct.unpack("!H" if length == 126 else "!Q", whole(self.client, 2 if length == 126 else 8))
        return whole(self.client, length).decode()


def replicas(folder):
    """The pods of kubernetes.yaml, two of them, behind HAProxy with session affinity: downloads of Shiny's sessions reach their pod."""
    words = re.findall(r"^ +- (--\S+)$", (DEPLOY / "kubernetes.yaml").read_text(), re.MULTILINE)
    servers = [Server(Path(folder) / name, app_file="download.R") for name in ("one", "two")]
    for name, server in zip(("one", "two"), servers):
        server.words = [ROOKERY, "serve", Path(folder) / name / "app", *words_of_pod(words, server), "--proxy-protocol", "--proxy-protocol-from=127.0.0.1"]
    front, file = free_port(), Path(folder) / "haproxy.cfg"
    lines = [f"    server {name} 127.0.0.1:{server.port} cookie {name} check port {server.admin}\n" for name, server in zip(("one", "two"), servers)]
    file.write_text(
        shipped(
            "haproxy.cfg",
            {"bind :80\n": f"bind 127.0.0.1:{front}\n", "    #cookie": "    cookie", "    server one 127.0.0.1:8000\n": "".join(lines), "check port 9100 ": "", " slowstart 10s": ""},
        )
    )
    with contextlib.ExitStack() as stack:
        for server in servers:
            stack.enter_context(server.run())
        for server in servers:
            until("workers are ready", server.is_ready)
        stack.enter_context(running(["haproxy", "-db", "-f", file]))
        until("both pods are in use", lambda: len({Session(front).cookies[affinity_cookie()] for _ in range(2)}) == 2)
        sessions = [Session(front) for _ in range(4)]
        check(len({it.cookies[affinity_cookie()] for it in sessions}) == 2, "all sessions are in one pod")
        for session in sessions * 2:
            status, body = session.get(session.url)
            check((status, body) == (200, "downloaded"), f"a download is answered with {status} {body!r}")
        # Without its cookie, a download finds its session only by luck.
        found = [ask(front, sessions[0].url)[0] for _ in range(8)]
        check(404 in found, f"session affinity is not needed: {found}")


def kubernetes(folder):
    program = Path(folder) / "manifests"
    done = subprocess.run(["go", "build", "-o", program, "."], cwd=HERE / "kubernetes", check=False)
    check(done.returncode == 0, "the reader of manifests cannot be built: Go's module proxy (GOPROXY) has to be reachable")
    done = subprocess.run([program, DEPLOY / "kubernetes.yaml"], capture_output=True, text=True, check=False)
    check(done.returncode == 0, f"deploy/kubernetes.yaml: {done.stderr}")
    documents = {it["kind"]: it for it in map(json.loads, done.stdout.splitlines())}
    objects = {kind: it["spec"] for kind, it in documents.items()}
    # A field that Kubernetes has not is found.
    wrong = Path(folder) / "wrong.yaml"
    wrong.write_text((DEPLOY / "kubernetes.yaml").read_text().replace("periodSeconds", "periodSecond"))
    check(subprocess.run([program, wrong], capture_output=True, check=False).returncode == 1, "a wrong field is not found")
    pod = objects["Deployment"]["template"]["spec"]
    (container,) = pod["containers"]
    words, ports = container["args"], {it["name"]: it["containerPort"] for it in container["ports"]}
    grace = seconds(option(words, "--drain")) + container["lifecycle"]["preStop"]["sleep"]["seconds"] + 15
    check(pod["terminationGracePeriodSeconds"] >= grace, f"the grace period is shorter than {grace} s")
    check(objects["Deployment"]["strategy"]["rollingUpdate"]["maxUnavailable"] == 0, "a roll-out takes away what serves")
    check(option(words, "--port") == str(ports["http"]), "the port is another")
    # The port of the probes is open at the address of the pod alone.
    check(option(words, "--admin") == f"$(POD_IP):{ports['admin']}", "--admin is not at the address of the pod")
    variables = {it["name"]: it for it in container["env"]}
    check(variables["POD_IP"]["valueFrom"]["fieldRef"]["fieldPath"] == "status.podIP", "POD_IP is not the address of the pod")
    labels = objects["Deployment"]["template"]["metadata"]["labels"]
    check(objects["Service"]["selector"].items() <= labels.items(), "the service selects nothing")
    check({it["targetPort"] for it in objects["Service"]["ports"]} <= ports.keys(), "the service's port leads nowhere")
    # A client stays with its pod, with an Ingress and without one.
    check(objects["Deployment"]["replicas"] > 1 and objects["Service"]["sessionAffinity"] == "ClientIP", "the service has no session affinity")
    annotations = documents["Ingress"]["metadata"]["annotations"]
    cookie = affinity_cookie()
    check(annotations["haproxy.org/cookie-persistence"] == cookie, "the Ingress has no cookie for HAProxy")
    check(annotations["nginx.ingress.kubernetes.io/session-cookie-name"] == cookie, "the Ingress has no cookie for nginx")
    (rule,) = objects["Ingress"]["rules"]
    backend = rule["http"]["paths"][0]["backend"]["service"]
    check(backend == {"name": documents["Service"]["metadata"]["name"], "port": {"name": "http"}}, "the Ingress leads nowhere")
    budget = objects["PodDisruptionBudget"]
    check(budget["selector"]["matchLabels"].items() <= labels.items(), "the budget selects nothing")
    check(0 < budget["maxUnavailable"] < objects["Deployment"]["replicas"], "the budget allows no disruption, or any")
    user, own = pod["securityContext"]["runAsUser"], container["securityContext"]
    check(pod["securityContext"]["runAsNonRoot"] and user > 0, "the pod may run as root")
    check(own["readOnlyRootFilesystem"] and not own["allowPrivilegeEscalation"] and own["capabilities"]["drop"] == ["ALL"], "the container has privileges")
    # Its words, to a real server: with other ports, and an app that is here.
    server = Server(folder)
    server.words = [ROOKERY, "serve", Path(folder) / "app", *words_of_pod(words[2:], server)]
    paths = [container[f"{probe}Probe"]["httpGet"] for probe in ("startup", "liveness", "readiness")]
    check(all(it["port"] == "admin" for it in paths), "a probe asks another port")
    if may_confine(user):
        server.words = [*confined(folder, user), *server.words]
    with server.run() as process:
        until("workers are ready", server.is_ready)
        for path in [*(it["path"] for it in paths), objects["Deployment"]["template"]["metadata"]["annotations"]["prometheus.io/path"]]:
            status = server.tell(path)[0]
            check(status == 200, f"{path} is answered with {status}")
        check(ask(server.port, "/")[2] == "hello", "the app answers")
        process.send_signal(signal.SIGTERM)
        check(process.wait(PATIENCE) == 0, f"it ends with status {process.returncode}")


# Values for the variables of the dashboard's queries.
VARIABLES = {"$__rate_interval": "10m", "$job": ".*", "$instance": ".*", "$route": ".*"}


def queries():
    """The queries of the dashboard, by the title of their panel."""
    for panel in json.loads((DEPLOY / "grafana-dashboard.json").read_text())["panels"]:
        for target in panel["targets"]:
            query = target["expr"]
            for name, value in VARIABLES.items():
                query = query.replace(name, value)
            yield panel["title"], query


# The first crash, in a series that begins with 0, as the server writes it.
FIRST_CRASH = """
rule_files: [alerts.yml]
evaluation_interval: 1m
tests:
  - interval: 1m
    input_series:
      - series: 'rookery_worker_exits_total{reason="crash",instance="a"}'
        values: "0 0 0 1 1 1"
      - series: 'rookery_worker_exits_total{reason="reload",instance="a"}'
        values: "0 0 0 2 2 2"
    alert_rule_test:
      - {eval_time: 2m, alertname: WorkersEnd}
      - {eval_time: 4m, alertname: WorkersEnd, exp_alerts: [{exp_labels: {}}]}
"""


def check_alerts(folder):
    """The alerts are those of the vignette, and the first crash of a worker triggers one."""
    alerts = (DEPLOY / "alerts.yml").read_text()
    vignette = (ROOT / "r" / "vignettes" / "production.Rmd").read_text()
    check(alerts[alerts.index("groups:") :] in vignette, "the vignette has other alerts than deploy/alerts.yml")
    test = Path(folder) / "alerts-test.yml"
    test.write_text(FIRST_CRASH)
    tool = subprocess.run(["promtool", "test", "rules", test], capture_output=True, text=True, check=False)
    check(tool.returncode == 0, tool.stdout + tool.stderr)


def series_of(text):
    """The names and labels of the series of a metrics text."""
    return {line.rsplit(" ", 1)[0] for line in text.splitlines() if line and not line.startswith("#")}


def metric_names(query):
    return set(re.findall(r"\b(rookery_\w+|http_server_\w+)", query))


def prometheus(folder):
    server, port = Server(folder), free_port()
    config = Path(folder) / "prometheus.yml"
    config.write_text(
        shipped("prometheus.yml", {"127.0.0.1:9100": f"127.0.0.1:{server.admin}", "scrape_interval: 15s": "scrape_interval: 1s"})
    )
    shutil.copy(DEPLOY / "alerts.yml", folder)
    tool = subprocess.run(["promtool", "check", "config", config], capture_output=True, text=True, check=False)
    check(tool.returncode == 0, tool.stdout + tool.stderr)
    check_alerts(folder)
    words = ["prometheus", f"--config.file={config}", f"--storage.tsdb.path={folder}/data", f"--web.listen-address=127.0.0.1:{port}"]

    def result(query):
        status, _, body = ask(port, f"/api/v1/query?query={quote(query)}", host="localhost")
        check(status == 200, f"{query} is answered with {status} {body}")
        return json.loads(body)["data"]["result"]

    def value(query):
        found = result(query)
        return float(found[0]["value"][1]) if found else None

    with server.run(), running(words):
        until("workers are ready", server.is_ready)
        for path in ("/", "/", "/who", "/routed/7", "/missing"):
            ask(server.port, path)
        until("the requests are collected", lambda: value("sum(rookery_route_requests_total)") == 5)
        check(value('rookery_route_requests_total{route="/"}') == 2, "the requests of / are not counted")
        check(value('rookery_route_errors_total{route="/missing"}') == 1, "the error of /missing is not counted")
        for name in ("queue", "r"):
            check(value(f'rookery_route_{name}_seconds_count{{route="/who"}}') == 1, f"{name}: /who is not counted")
        name = "http_server_request_duration_seconds"
        check(value(f'{name}_count{{http_route="/routed/<id>",http_response_status_code="200"}}') == 1, f"{name} is not counted")
        check(value(f"histogram_quantile(0.5, sum by (le) ({name}_bucket))") > 0, f"{name} has no median")
        # A rate needs two samples.
        until("there is a rate", lambda: value("sum(rate(rookery_requests_total[1m]))") is not None)
        empty = [title for title, query in queries() if not result(query)]
        check(not empty, f"panels of the dashboard are empty: {empty}")
        known = {name.split("{")[0] for name in series_of(server.tell("/metrics")[1])}
        unknown = metric_names((DEPLOY / "alerts.yml").read_text()) - known
        check(not unknown, f"alerts use metrics that do not exist: {unknown}")
        tool = subprocess.run(["promtool", "check", "metrics"], input=server.tell("/metrics")[1], capture_output=True, text=True, check=False)
        check(tool.returncode == 0 and not tool.stderr, f"promtool: {tool.stdout}{tool.stderr}")


NEEDS = {haproxy: "haproxy", replicas: "haproxy", nginx: "nginx", systemd: "systemd-analyze", kubernetes: "go", prometheus: "prometheus"}


def main():
    wanted = sys.argv[1:] or [it.__name__ for it in NEEDS]
    failed = 0
    for test, program in NEEDS.items():
        name = test.__name__
        if name not in wanted:
            continue
        if shutil.which(program, path=f"{os.environ['PATH']}:/usr/sbin:/sbin") is None:
            print(f"deploy: {name}: NOT RUN: there is no {program}")
            continue
        with tempfile.TemporaryDirectory(prefix="rookery-deploy-") as folder:
            # What runs as another user has to read it.
            os.chmod(folder, 0o755)
            try:
                test(folder)
                print(f"deploy: {name}: passed")
            except Failed as error:
                failed += 1
                print(f"deploy: {name}: FAILED: {error}")
    return int(failed > 0)


if __name__ == "__main__":
    os.environ["PATH"] += ":/usr/sbin:/sbin"
    sys.exit(main())
