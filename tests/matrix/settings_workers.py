"""The settings of workers."""

import signal
import tempfile
import time
from pathlib import Path

from cases import case, started
from server import PATIENCE, Failed, check, equal, free_port, until
from websocket import WebSocket


def with_workers(place, count=2, **settings):
    """Starts a server with workers, and waits until each of them serves."""
    files, rest = settings.pop("files", None), settings.pop("rest", {})
    server = started(place, {"workers": count} | settings, files=files, **rest)
    if rest.get("start", True):
        try:
            until("all workers are ready", lambda: server.told().count(" is ready") >= count)
        except Failed:
            server.close()
            raise
    return server


@case("workers")
def workers_is_the_number_of_r_processes(place):
    with with_workers(place, 3) as server:
        until("three workers run", lambda: len(server.workers()) == 3)


@case("spares")
def spares_are_started_beside_the_workers(place):
    with with_workers(place, spares=1) as server:
        until("a third R process waits", lambda: len(server.workers()) == 3)


@case("surge")
def surge_0_starts_no_worker_beside_another(place):
    with with_workers(place, surge=0, drain="2s") as server:
        before, most = set(server.workers()), 0
        server.signal(signal.SIGHUP)
        deadline = time.monotonic() + PATIENCE
        while not before.isdisjoint(now := set(server.workers())) or len(now) < 2:
            most = max(most, len(now))
            check(time.monotonic() < deadline, "the reload does not end")
            time.sleep(0.005)
        check(most <= 2, f"{most} R processes at a time")


@case("warmup")
def warmup_is_requested_before_a_worker_serves(place):
    with tempfile.TemporaryDirectory() as folder:
        mark = Path(folder) / "warm"
        app = (
            "list(call = function(req) {\n"
            f"  if (req$PATH_INFO == '/warm') file.create('{mark}')\n"
            "  list(status = 200L, headers = list(), body = 'x')\n})\n"
        )
        with with_workers(place, warmup=["/warm"], files={"app.R": app}):
            check(mark.exists(), "it serves without having asked for the path")


@case("max_sessions")
def max_sessions_refuses_further_websockets(place):
    with with_workers(place, max_sessions=1) as server:
        kept = [WebSocket(server) for _ in range(2)]
        equal([one.status for one in kept], [101, 101], "the first of each worker")
        equal(WebSocket(server).status, 503, "the third")


PROMISES = """
running <- 0
most <- 0
list(call = function(req) {
  if (req$PATH_INFO == "/most") return(list(status = 200L, headers = list(), body = as.character(most)))
  running <<- running + 1
  most <<- max(most, running)
  promises::promise(function(resolve, reject) {
    later::later(function() {
      running <<- running - 1
      resolve(list(status = 200L, headers = list(), body = "x"))
    }, 0.3)
  })
})
"""


@case("max_in_flight")
def max_in_flight_bounds_the_requests_of_a_worker(place):
    with with_workers(place, 1, max_in_flight=2, files={"app.R": PROMISES}) as server:
        waits = [server.begin("/") for _ in range(8)]
        equal([wait().status for wait in waits], [200] * 8, "the requests")
        check(int(server.get("/most").text) <= 3, f"{server.get('/most').text} at a time")


@case("queue_timeout")
def queue_timeout_refuses_a_request_that_waits_too_long(place):
    with with_workers(place, queue_timeout="500ms") as server:
        release = server.hold(2)
        time.sleep(0.3)
        began = time.monotonic()
        waits = [server.begin("/") for _ in range(6)]
        replies = [wait() for wait in waits]
        # The default is 10 s.
        check(time.monotonic() - began < 9, "they waited as long as by default")
        check(any(reply.status == 503 and reply.header("Retry-After") for reply in replies), "no request is refused")
        release()


@case("max_requests")
def max_requests_replaces_a_worker(place):
    with with_workers(place, max_requests=5) as server:
        before = set(server.workers())
        until("all are replaced", lambda: server.get("/").status == 200 and before.isdisjoint(server.workers()))


@case("max_age")
def max_age_replaces_a_worker(place):
    with with_workers(place, max_age="2s") as server:
        before = set(server.workers())
        until("all are replaced", lambda: before.isdisjoint(server.workers()))


@case("max_memory")
def max_memory_replaces_a_worker(place):
    with with_workers(place, 1, max_memory="120MB") as server:
        before = set(server.workers())
        server.get("/keep?100000000")
        until("it is replaced", lambda: before.isdisjoint(server.workers()), 180)


@case("request_timeout")
def request_timeout_is_a_504(place):
    with with_workers(place, request_timeout="700ms") as server:
        equal(server.get("/sleep?5").status, 504, "the overdue request")


@case("worker_timeout")
def kill_stuck_ends_a_worker_that_computes_for_too_long(place):
    app = "list(call = function(req) if (req$PATH_INFO == '/loop') repeat NULL else list(status = 200L, headers = list(), body = 'x'))"
    with with_workers(place, worker_timeout="1s", files={"app.R": app}) as server:
        equal(server.get("/loop").status, 504, "the request")
        until("it serves", lambda: server.get("/").status == 200)


@case("slow_log")
def slow_log_reports_a_task_that_takes_longer(place):
    with with_workers(place, 1, slow_log="1s") as server:
        server.get("/sleep?2")
        until("it is told", lambda: "with GET /sleep: it waits" in server.told() and "no longer busy" in server.told())


@case("start_timeout", "start_retries")
def start_timeout_ends_a_start_that_takes_too_long(place):
    settings = {"workers": 2, "start_timeout": "1s", "start_retries": 0}
    with started(place, settings, files={"app.R": "Sys.sleep(60)"}, start=False) as server:
        equal(server.ended(), 3, "the exit status")


@case("start_retries")
def start_retries_serves_an_app_that_starts_at_the_second_attempt(place):
    with tempfile.TemporaryDirectory() as folder:
        app = (
            f"mark <- '{folder}/tried'\n"
            "if (!file.exists(mark)) { file.create(mark); stop('the database is not up yet') }\n"
            "list(call = function(req) list(status = 200L, headers = list(), body = 'x'))\n"
        )
        settings = {"workers": 1, "start_retries": 3}
        with started(place, settings, files={"app.R": app}) as server:
            equal(server.get("/").status, 200, "the request")
        Path(folder, "tried").unlink()
        with started(place, settings | {"start_retries": 0}, files={"app.R": app}, start=False) as server:
            equal(server.ended(), 3, "the exit status without retries")


@case("restart")
def restart_never_ends_the_server_with_its_worker(place):
    app = "list(call = function(req) { later::later(function() quit(status = 7), 0.5); list(status = 200L, headers = list(), body = 'x') })"
    with with_workers(place, 1, restart="never", files={"app.R": app}) as server:
        server.get("/")
        equal(server.ended(), 7, "the exit status")


@case("sticky")
def sticky_cookie_sends_a_client_to_its_worker(place):
    with with_workers(place, sticky="cookie") as server:
        first = server.get("/")
        cookie = first.header("Set-Cookie").split(";")[0]
        for _ in range(8):
            equal(server.get("/", headers={"Cookie": cookie}).text, first.text, "the worker")


@case("reload")
def reload_serves_an_edited_file(place):
    with with_workers(place, 1, reload=True) as server:
        path = server.app / "app.R"
        path.write_text(path.read_text().replace("first version", "second version"))
        until("the new app serves", lambda: server.get("/version").text == "second version")


@case("drain")
def drain_bounds_the_wait_for_requests(place):
    with with_workers(place, drain="1s") as server:
        server.begin("/sleep?50")
        time.sleep(0.5)
        began = time.monotonic()
        server.signal(signal.SIGTERM)
        server.ended()
        check(time.monotonic() - began < 30, "it waited for the request")


@case("drain_sessions")
def drain_sessions_bounds_the_wait_for_websockets(place):
    with with_workers(place, drain_sessions="1s") as server:
        kept = [WebSocket(server) for _ in range(2)]
        server.signal(signal.SIGHUP)
        began = time.monotonic()
        equal({one.ending() for one in kept}, {1012}, "the close codes")
        check(time.monotonic() - began < 40, "they were waited for as long as requests")


@case("shutdown_delay", "admin")
def shutdown_delay_serves_on_while_the_probe_fails(place):
    admin = free_port()
    settings = {"shutdown_delay": "3s", "admin": f"127.0.0.1:{admin}"}
    with with_workers(place, **settings) as server:
        server.signal(signal.SIGTERM)
        until("the probe fails", lambda: server.get("/-/ready", port=admin).status == 503)
        equal(server.get("/").status, 200, "a request meanwhile")
        equal(server.ended(), 0, "the exit status")


@case("fail_fast")
def fail_fast_ends_a_server_whose_workers_keep_crashing(place):
    app = "later::later(function() tools::pskill(Sys.getpid(), tools::SIGKILL), 0.3)\nfunction(req) NULL"
    with with_workers(place, 1, fail_fast=True, files={"app.R": app}, rest={"start": False}) as server:
        equal(server.ended(180), 5, "the exit status")


@case("admin")
def admin_answers_for_one_r_process(place):
    admin = free_port()
    with started(place, {"admin": f"127.0.0.1:{admin}"}) as server:
        check("rookery_requests_total" in server.get("/metrics", port=admin).text, "there are no metrics")
