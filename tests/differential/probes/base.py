"""What a probe is, and the ways to make one."""

import re
import socket
from dataclasses import dataclass
from typing import Callable

from sides import r_string
from wire import Wire

# An app that answers "ok", and tells what the request holds.
DUMPING = "dumping()"


@dataclass
class Probe:
    """`run(side)` gives the aspects of what one side did, each as text."""

    id: str
    run: Callable
    # The name that it is about, when an older httpuv does not export it; `:::name` for one that is in its namespace.
    needs: str | None = None
    # Whether the sides do it one after the other.
    apart: bool = False
    # Whether it is run in a process of its own, because it depends on what the process has done, or may end it.
    alone: bool = False


def expression(id, code, **options):
    """Evaluates R code, in which PORT, PORT1 and so on are free ports: its value, whether it is visible, its conditions, what it prints and what is written."""

    def run(side):
        text = code
        for name in sorted(set(re.findall(r"\bPORT\d*\b", code))):
            text = re.sub(rf"\b{name}\b", str(side.port()), text)
        said = side.ask(f"measure({r_string(text)})")
        aspects = dict(part.split("\x1f", 1) for part in said.split("\x1e"))
        aspects["events"] = side.collect()
        return aspects

    return Probe(id, run, **options)


def connection(id, script, app=DUMPING, event=None, family="tcp", **options):
    """Starts a server of `app`, connects, and lets `script(wire)` talk; `event` is waited for at the end."""

    def run(side):
        if family == "pipe":
            wire = Wire(side, side.serve_pipe(app), socket.AF_UNIX)
        elif family == "tcp6":
            wire = Wire(side, ("::1", side.serve(app, "::1")), socket.AF_INET6)
        else:
            wire = Wire(side, ("127.0.0.1", side.serve(app)))
        try:
            script(wire)
        finally:
            wire.close()
        aspects = {name: "\n".join(lines) for name, lines in wire.record.items()}
        side.barrier()
        told = side.collect(event)
        if wire.port is not None:
            told = re.sub(rf"(?<!\d){wire.port}(?!\d)", "<client>", told)
        lines = told.splitlines()
        for prefix in ("req", "body"):
            aspects[prefix if prefix == "req" else "input"] = "\n".join(
                line for line in lines if line.startswith(prefix + " ") or line.startswith(prefix + ": "))
        aspects["events"] = "\n".join(line for line in lines if not line.startswith(("req ", "body: ")))
        return aspects

    return Probe(id, run, **options)


def request(line="GET /probe HTTP/1.1", headers=(), body=b"", host=True):
    """The bytes of a request."""
    lines = [line, *(["Host: probe.test"] if host else []), *headers]
    return b"\r\n".join(each if isinstance(each, bytes) else each.encode() for each in lines) + b"\r\n\r\n" + body


def exchange(id, data, app=DUMPING, method="GET", answers=1, at=(), **options):
    """Sends bytes, reads responses, and looks what became of the connection."""

    def script(wire):
        wire.send(data, at)
        for _ in range(answers):
            if not wire.answer(method):
                break
        wire.fate()

    return connection(id, script, app, **options)


def answering(id, response, headers=(), line="GET /probe HTTP/1.1", prelude="", **options):
    """One request to an app whose `call` is the R expression `response`."""
    app = f"logged(call = function(req) {{ {prelude}\n{response} }})"
    return exchange(id, request(line, headers), app, line.split()[0], **options)
