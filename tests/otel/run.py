#!/usr/bin/env python3
"""Traces, exported to the real OpenTelemetry collector by `rookery serve` with one worker, by several, and by R's own serve().

    tests/otel/run.py [one|several|standalone|otel|away ...]      default: all

ROOKERY_LIB is the library with the R package (default .local/lib). OTELCOL is the collector (default .local/otel/otelcol), which
`tests/otel/run.py build` makes with Go. The case `otel` needs the R packages otel and otelsdk. What is not installed is said, and no failure.
Exit status: 0 all that ran passed; 1 not.
"""

import base64
import contextlib
import json
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
LIBRARY = Path(os.environ.get("ROOKERY_LIB", ROOT / ".local" / "lib")).resolve()
ROOKERY = LIBRARY / "rookery" / "exec" / "rookery"
COLLECTOR = Path(os.environ.get("OTELCOL", ROOT / ".local" / "otel" / "otelcol"))
# Seconds that anything may take on a machine that is busy.
PATIENCE = 90
TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = "b7ad6b7169203331"
SERVER, INTERNAL = 2, 1


class Failed(Exception):
    """What is wrong."""


def check(is_so, what):
    if not is_so:
        raise Failed(what)


def until(what, found):
    deadline = time.monotonic() + PATIENCE
    while True:
        with contextlib.suppress(OSError):
            value = found()
            if value:
                return value
        check(time.monotonic() < deadline, f"it did not come to be that {what}")
        time.sleep(0.1)


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


class Process:
    """A program that is ended with the test."""

    def __init__(self, command, environment, log):
        self.log = log
        # Not the caller's settings of OpenTelemetry.
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")}
        with open(log, "wb") as output:
            self.process = subprocess.Popen(
                command, env=inherited | environment, stdout=output, stderr=output, stdin=subprocess.DEVNULL
            )

    def end(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        return self.process.returncode

    def until(self, what, found):
        """Waits, but not for a program that has ended."""
        def found_or_ended():
            check(self.process.poll() is None, f"the program has ended: {self.output()}")
            return found()

        return until(what, found_or_ended)

    def output(self):
        return Path(self.log).read_text(errors="replace")


class Collector(Process):
    """The real collector, which writes what it gets to a file."""

    def __init__(self, folder):
        self.port, self.file = free_port(), folder / "spans.json"
        config = folder / "config.yaml"
        config.write_text(f"""
receivers: {{otlp: {{protocols: {{http: {{endpoint: "127.0.0.1:{self.port}"}}}}}}}}
exporters: {{file: {{path: "{self.file}", flush_interval: 100ms}}}}
service:
  telemetry: {{metrics: {{level: none}}}}
  pipelines: {{traces: {{receivers: [otlp], exporters: [file]}}}}
""")
        super().__init__([str(COLLECTOR), "--config", f"file:{config}"], {}, folder / "collector.log")
        self.until("the collector listens", lambda: socket.create_connection(("127.0.0.1", self.port)))

    def spans(self):
        """Returns all spans, each a dict with its attributes and those of its process."""
        spans = []
        for line in self.file.read_text().splitlines() if self.file.exists() else []:
            for resource_spans in json.loads(line)["resourceSpans"]:
                resource = attributes(resource_spans["resource"])
                for scope_spans in resource_spans["scopeSpans"]:
                    for span in scope_spans["spans"]:
                        spans.append({"parentSpanId": ""} | span | {"attributes": attributes(span), "resource": resource})
        return spans


def attributes(item):
    def value(any_value):
        (kind, found), = any_value.items()
        return int(found) if kind == "intValue" else found

    return {pair["key"]: value(pair["value"]) for pair in item.get("attributes", [])}


def variables(port, **more):
    return {
        "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{port}",
        "OTEL_BSP_SCHEDULE_DELAY": "200",
    } | more


class Server(Process):
    """A Rookery with the test's app."""

    def __init__(self, folder, environment, *options, in_r=False):
        self.port, self.admin = free_port(), free_port()
        libraries = os.pathsep.join(filter(None, [str(LIBRARY), os.environ.get("R_LIBS")]))
        environment = environment | {"R_LIBS": libraries, "ROOKERY_LIB": str(LIBRARY)}
        if in_r:
            code = f'rookery::serve("{HERE / "app.R"}", port = {self.port}, admin = "127.0.0.1:{self.admin}")'
            command = ["Rscript", "--vanilla", "-e", code]
        else:
            command = [
                str(ROOKERY), "serve", str(HERE / "app.R"), "--port", str(self.port), "--admin", f"127.0.0.1:{self.admin}",
                "--log-format", "json", "--drain", "5", *options,
            ]
        super().__init__(command, environment, folder / "server.log")
        try:
            self.until("the server responds", lambda: self.get("/-/ready", self.admin)[0] == 200)
        except Failed as failed:
            raise Failed(f"{failed}\n{self.output()}") from failed

    def get(self, path, port=None, headers=None, body=None):
        request = urllib.request.Request(f"http://127.0.0.1:{port or self.port}{path}", body, headers or {})
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE) as response:
                return response.status, response.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def metric(self, result):
        text = self.get("/metrics", self.admin)[1]
        lines = [line for line in text.splitlines() if line.startswith(f'rookery_trace_spans_total{{result="{result}"}}')]
        check(len(lines) == 1, f"one line of the metric: {lines}")
        return int(lines[0].split()[-1])

    def websocket(self, *messages):
        """Sends messages, and returns the answers."""
        key = base64.b64encode(os.urandom(16)).decode()
        with socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE) as connection:
            connection.sendall(
                f"GET /ws HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
                f"Sec-WebSocket-Key: {key}\r\n\r\n".encode()
            )
            stream = connection.makefile("rb")
            check(b" 101 " in stream.readline(), "the handshake is accepted")
            while stream.readline() != b"\r\n":
                pass
            answers = []
            for message in messages:
                data = message.encode()
                connection.sendall(struct.pack("!BB", 0x81, 0x80 | len(data)) + bytes(4) + data)
                _, length = stream.read(2)
                answers.append(stream.read(length).decode())
            return answers


def one(spans, what, **wanted):
    """Returns the only span with these properties."""
    found = [span for span in spans if all(span.get(name) == value for name, value in wanted.items())]
    check(len(found) == 1, f"one span of {what}, not {len(found)}: {json.dumps(spans, indent=1)}")
    return found[0]


def server_span(spans, path):
    return one([span for span in spans if span["attributes"].get("url.path") == path], path, kind=SERVER)


def below(spans, parent, name):
    return one(spans, name, parentSpanId=parent["spanId"], traceId=parent["traceId"], name=name)


def requests(collector, server, workers):
    """Sends requests, ends the server and checks the spans."""
    if workers:
        ready = f'rookery_workers{{state="ready"}} {workers}'
        until("all workers are ready", lambda: ready in server.get("/metrics", server.admin)[1].splitlines())
    headers = {"traceparent": f"00-{TRACE}-{PARENT}-01", "tracestate": "a=b"}
    status, seen = server.get("/seen?q=1&token=secret", headers=headers)
    check(status == 200, seen)
    for path, wanted in (("/fail", 500), ("/promise", 200), ("/missing", 200)):
        check(server.get(path)[0] == wanted, path)
    check(server.get("/early", body=b"x")[0] == 403, "/early")
    check(server.get("/body", body=b"text")[1] == "text", "/body")
    check(server.get("/unsampled", headers={"traceparent": f"00-{TRACE}-{PARENT}-00"})[0] == 200, "/unsampled")
    answers = server.websocket("a", "b")
    # Exported while the server runs, and counted.
    until("spans are counted", lambda: server.metric("exported") >= 9)
    check((server.metric("dropped"), server.metric("failed")) == (0, 0), "no span is lost")
    server.end()
    spans = collector.spans()
    span = server_span(spans, "/seen")
    check((span["traceId"], span["parentSpanId"], span["traceState"]) == (TRACE, PARENT, "a=b"), f"the client's context: {span}")
    check(span["name"] == "GET", f"the path is not in the name: {span}")
    check(span["attributes"]["url.query"] == "q=1&token=REDACTED", f"secrets are masked: {span}")
    check(span["attributes"]["http.response.status_code"] == 200 and "code" not in span.get("status", {}), f"no error: {span}")
    call = below(spans, span, "rookery.call")
    check(call["kind"] == INTERNAL, f"the invocation is internal: {call}")
    start, end = (int(call[name]) - int(span[name]) for name in ("startTimeUnixNano", "endTimeUnixNano"))
    check(start >= 0 and end <= 0, f"the invocation lies within the request: {span} {call}")
    context, state, service, resource = seen.split(" ")
    check(context == f"00-{TRACE}-{call['spanId']}-01" and state == "a=b", f"the app gets the context of its span: {seen}")
    if workers:
        check(service == "otel" and resource.startswith("service.instance.id="), f"the worker's identity: {seen}")
        check(call["resource"]["service.instance.id"] == resource.split("=")[1], f"the span has it: {call}")
    if workers > 1:
        check(span["resource"]["service.instance.id"] != call["resource"]["service.instance.id"], f"the front end makes the span: {span}")
        check({span["resource"]["service.name"], call["resource"]["service.name"]} == {"otel"}, f"one service: {span} {call}")
    failed = server_span(spans, "/fail")
    check(failed["status"]["code"] == 2 and failed["attributes"]["error.type"] == "500", f"5xx is an error: {failed}")
    check(below(spans, failed, "rookery.call")["status"]["code"] == 2, "also in R")
    early = server_span(spans, "/early")
    check("code" not in early.get("status", {}), f"4xx is none: {early}")
    below(spans, early, "rookery.call")
    below(spans, server_span(spans, "/promise"), "rookery.call")
    body = server_span(spans, "/body")
    calls = [span for span in spans if span["parentSpanId"] == body["spanId"]]
    check(len(calls) == 2, f"onHeaders and the request: {calls}")
    check(not [span for span in spans if span["attributes"].get("url.path") == "/unsampled"], "an unsampled request has no span")
    handshake = server_span(spans, "/ws")
    opened = below(spans, handshake, "rookery.on_ws_open")
    messages = [span for span in spans if span["name"] == "rookery.on_message"]
    check(len(messages) == 2 and len({span["traceId"] for span in messages}) == 2, f"a trace for each message: {messages}")
    for message in messages:
        links = [(link["traceId"], link["spanId"]) for link in message["links"]]
        check(links == [(handshake["traceId"], handshake["spanId"])], f"linked to the handshake: {message}")
    check(all(answer.endswith(f"{opened['spanId']}-01") for answer in answers), f"the request of the WebSocket: {answers}")
    resources = [span["resource"] for span in spans if "process.pid" in span["resource"]]
    check(resources and all(isinstance(it["process.pid"], int) for it in resources), f"a process id is a number: {resources[:1]}")
    processes = {(it["process.pid"], it["service.instance.id"]) for it in resources}
    check(len({pid for pid, _ in processes}) == len({one for _, one in processes}) == len(processes), f"an identity for each process: {processes}")
    if workers:
        starts = [span for span in spans if span["name"] == "rookery.worker.start"]
        check(len(starts) == workers, f"a span for each start: {starts}")
        check(all(int(span["endTimeUnixNano"]) > int(span["startTimeUnixNano"]) for span in starts), f"{starts}")
        log = [json.loads(line) for line in server.output().splitlines() if line.startswith("{")]
        check([line["trace_id"] for line in log if line.get("path") == "/seen"] == [TRACE], f"the trace id is in the log: {log}")
    everything = collector.file.read_text()
    check("secret" not in everything, "no secret is exported")


def case_one(folder):
    collector = Collector(folder)
    try:
        requests(collector, Server(folder, variables(collector.port)), 1)
    finally:
        collector.end()


def case_several(folder):
    collector = Collector(folder)
    try:
        requests(collector, Server(folder, variables(collector.port), "--workers", "2"), 2)
    finally:
        collector.end()


def case_standalone(folder):
    collector = Collector(folder)
    try:
        requests(collector, Server(folder, variables(collector.port), in_r=True), 0)
    finally:
        collector.end()


def case_otel(folder):
    """The spans of R packages nest below those of Rookery, which package otel then makes."""
    code = 'cat(all(vapply(c("otel", "otelsdk"), requireNamespace, NA, quietly = TRUE)))'
    found = subprocess.run(["Rscript", "--vanilla", "-e", code], capture_output=True, text=True, check=True)
    if found.stdout != "TRUE":
        return "the R packages otel and otelsdk are not installed"
    for count in ("1", "2"):
        here = folder / count
        here.mkdir()
        collector = Collector(here)
        try:
            environment = variables(collector.port, OTEL_TRACES_EXPORTER="otlp")
            server = Server(here, environment, "--workers", count)
            headers = {"traceparent": f"00-{TRACE}-{PARENT}-01"}
            seen = server.get("/seen", headers=headers)[1]
            for path, wanted in (("/fail", 500), ("/promise", 200)):
                check(server.get(path)[0] == wanted, path)
            check(server.get("/unsampled", headers={"traceparent": f"00-{TRACE}-{PARENT}-00"})[0] == 200, "/unsampled")
            server.websocket("a")
            server.end()
            spans = collector.spans()
            span = server_span(spans, "/seen")
            call = below(spans, span, "rookery.call")
            check(call["resource"]["telemetry.sdk.language"] != "rust", f"package otel makes the span: {call}")
            below(spans, call, "inside")
            check(seen.split(" ")[0] == f"00-{TRACE}-{call['spanId']}-01", f"the app gets its context: {seen}")
            failed = below(spans, server_span(spans, "/fail"), "rookery.call")
            check(failed["status"]["code"] == 2, f"{failed}")
            below(spans, below(spans, server_span(spans, "/promise"), "rookery.call"), "inside")
            # otelsdk 0.2 has no sampler, so the app's own span is recorded also within an unsampled request.
            calls = [span for span in spans if span["name"] == "rookery.call"]
            check(len(calls) == 3, f"an unsampled request has no span: {calls}")
            handshake = server_span(spans, "/ws")
            below(spans, below(spans, handshake, "rookery.on_ws_open"), "opened")
            message = one(spans, "a message", name="rookery.on_message")
            check([link["spanId"] for link in message["links"]] == [handshake["spanId"]], f"{message}")
            below(spans, below(spans, message, "rookery.callbacks"), "heard")
        finally:
            collector.end()
    return None


def case_away(folder):
    """Nothing waits for a collector that is away, and the end of the program does not either."""
    server = Server(folder, variables(free_port(), OTEL_BSP_MAX_QUEUE_SIZE="20", OTEL_BSP_MAX_EXPORT_BATCH_SIZE="10"), "--workers", "2")
    for _ in range(100):
        check(server.get("/x")[0] == 200, "/x")
    check(server.metric("dropped") > 0, "spans are dropped and counted")
    since = time.monotonic()
    server.end()
    took = time.monotonic() - since
    check(took < 30, f"the end took {took:.1f} s")
    lines = [line for line in server.output().splitlines() if "traces cannot be exported" in line]
    check(1 <= len(lines) <= 3, f"it is said once by each process: {lines}")


def build():
    COLLECTOR.parent.mkdir(parents=True, exist_ok=True)
    command = ["go", "build", "-trimpath", "-ldflags=-s -w", "-o", str(COLLECTOR), "."]
    subprocess.run(command, cwd=HERE / "collector", check=True)


def main(names):
    if names == ["build"]:
        return build()
    cases = {name[5:]: case for name, case in globals().items() if name.startswith("case_")}
    if not COLLECTOR.exists():
        print(f"otel: skipped: there is no collector at {COLLECTOR}; `tests/otel/run.py build` makes one with Go")
        return None
    failures = 0
    for name in names or cases:
        folder = Path(tempfile.mkdtemp(prefix="rookery-otel-"))
        try:
            skipped = cases[name](folder)
            print(f"otel: {name}: {'skipped: ' + skipped if skipped else 'passed'}", flush=True)
        except Failed as failed:
            failures += 1
            print(f"otel: {name}: FAILED: {failed}", flush=True)
            log = folder / "server.log"
            print(log.read_text(errors="replace")[-3000:] if log.exists() else "", flush=True)
        shutil.rmtree(folder, ignore_errors=True)
    sys.exit(failures > 0)


if __name__ == "__main__":
    main(sys.argv[1:])
