"""HTTP load: one request checked by hand, then wrk."""

import http.client
import json
import shutil

from . import build
from .machine import GENERATOR_CORE, clean_environment, pinned, sample
from .peers import Server
from .scenarios import Scenario

# A sample with more failed requests than this share is no sample.
FAILURE_SHARE = 0.001


def check(server: Server, scenario: Scenario) -> None:
    """One request whose answer is looked at: a server that answers fast and wrongly is not fast."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)
    headers = {f"X-Header-{i:03d}": f"value-{i:03d}" for i in range(1, scenario.headers + 1)}
    headers.update(scenario.send)
    body = b"x" * scenario.body_bytes if scenario.body_bytes else None
    method = scenario.method or ("POST" if body else "GET")
    try:
        connection.request(
            method,
            scenario.path,
            body=iter([body]) if scenario.chunked else body,
            headers=headers,
            encode_chunked=scenario.chunked,
        )
        response = connection.getresponse()
        answer = response.read()
    except (OSError, http.client.HTTPException) as error:
        raise RuntimeError(f"no answer to the first request: {error!r}; {server.last_words()}") from error
    finally:
        connection.close()
    if response.status != scenario.status:
        raise RuntimeError(f"status {response.status} to the first request")
    if body is not None and scenario.answer_bytes is None and answer != str(scenario.body_bytes).encode():
        raise RuntimeError(f"the handler saw {answer[:40]!r} bytes, not {scenario.body_bytes}")
    if scenario.answer_bytes is not None and len(answer) != scenario.answer_bytes:
        raise RuntimeError(f"an answer of {len(answer)} bytes, not {scenario.answer_bytes}")


def run(server: Server, scenario: Scenario, seconds: float, placement: str) -> dict[str, float]:
    """One run of wrk with one thread, and what the server spent during it."""
    environment = clean_environment()
    environment["BENCH_HEADERS"] = str(scenario.headers)
    environment["BENCH_BODY_BYTES"] = str(scenario.body_bytes)
    environment["BENCH_METHOD"] = scenario.method
    environment["BENCH_CHUNKED"] = str(int(scenario.chunked))
    environment["BENCH_SEND"] = "\n".join(f"{name}: {value}" for name, value in scenario.send.items())
    # wrk counts in whole seconds only; the run is cut short by `timeout` in no other way than by its own clock.
    whole = max(1, round(seconds))
    script, url = str(build.BENCH / "load" / "wrk.lua"), f"http://127.0.0.1:{server.port}{scenario.path}"
    load = ["wrk", "-t1", f"-c{scenario.connections}", f"-d{whole}s", "--timeout", "10s", "-s", script, url]
    printed, spent = sample([*pinned(GENERATOR_CORE, placement), *load], whole + 40, server, environment)
    found = [text for text in printed.splitlines() if text.startswith("BENCH ")]
    if not found:
        raise RuntimeError(f"wrk printed no result: {printed.strip()[-200:]}")
    result = json.loads(found[0].removeprefix("BENCH "))
    requests = result["requests"]
    if scenario.status > 399:
        # wrk counts each of them as an error; here every other answer is one.
        result["status_errors"] = requests - result["status_errors"]
    failed = sum(result[name] for name in ("connect_errors", "read_errors", "write_errors", "status_errors", "timeouts"))
    if requests == 0:
        raise RuntimeError("no request was answered")
    if failed > max(1, requests * FAILURE_SHARE):
        raise RuntimeError(f"{failed} of {requests} requests failed")
    return {
        "requests_per_second": requests / result["seconds"],
        "p50_us": float(result["p50"]),
        "p99_us": float(result["p99"]),
        "p999_us": float(result["p999"]),
        "cpu_us_per_request": spent / requests * 1e6,
        "failed": float(failed),
    }


def is_here() -> bool:
    return shutil.which("wrk") is not None
