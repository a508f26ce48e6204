"""What a server does under signals, load and unread output: one function a row, run in each column of the matrix."""

import os
import signal
import time

from server import PATIENCE, Server, check, equal, run, until

ROWS = []
IN_R = "serve() in R"
ALL = (IN_R, "one worker", "two workers")
SUPERVISED = ("one worker", "two workers")


def behaviour(*modes):
    """Registers a row for the given columns."""
    def register(function):
        ROWS.append((function.__name__, modes or ALL, function))
        return function
    return register


def processes_of(mode):
    return 2 if mode == "two workers" else 1


@behaviour()
def serves_static_files_while_every_r_process_is_busy(mode):
    with Server(mode=mode) as server:
        if mode != IN_R:
            until("all workers are ready", lambda: server.told().count(" is ready") == processes_of(mode))
        release = server.hold(processes_of(mode))
        time.sleep(0.3)
        reply = server.get("/files/file.txt", timeout=10)
        equal((reply.status, reply.text), (200, "a static file\n"), "the file")
        equal([held.status for held in release()], [200] * processes_of(mode), "the requests that held R")


@behaviour()
def finishes_a_request_in_progress_on_term(mode):
    with Server(mode=mode) as server:
        wait = server.begin("/sleep?2")
        time.sleep(0.5)
        server.signal(signal.SIGTERM)
        equal(wait().status, 200, "the request in progress")
        equal(server.ended(), 0, "the exit status")


@behaviour()
def finishes_a_request_in_progress_on_term_to_the_process_group(mode):
    with Server(mode=mode) as server:
        wait = server.begin("/sleep?2")
        time.sleep(0.5)
        server.signal(signal.SIGTERM, everybody=True)
        equal(wait().status, 200, "the request in progress")
        equal(server.ended(), 0, "the exit status")


@behaviour()
def ends_at_once_on_a_second_term(mode):
    with Server(mode=mode) as server:
        server.begin("/sleep?50")
        time.sleep(0.5)
        server.signal(signal.SIGTERM)
        time.sleep(0.5)
        began = time.monotonic()
        server.signal(signal.SIGTERM)
        check(server.ended(30) != 0, "a forced end reports success")
        check(time.monotonic() - began < 25, "the second signal waited for the request")


@behaviour(*SUPERVISED)
def serves_the_edited_app_after_hup(mode):
    with Server(mode=mode) as server:
        path = server.app / "app.R"
        path.write_text(path.read_text().replace("first version", "second version"))
        server.signal(signal.SIGHUP)
        until("the new app serves", lambda: server.get("/version").text == "second version")


@behaviour(IN_R)
def ends_on_hup_without_a_supervisor(mode):
    with Server(mode=mode) as server:
        server.signal(signal.SIGHUP)
        check(server.ended() in (0, -signal.SIGHUP), "the exit status after HUP")


@behaviour(*SUPERVISED)
def reloads_on_hup_where_nohup_ignores_the_signal(mode):
    with Server(mode=mode, prefix=("nohup",)) as server:
        path = server.app / "app.R"
        path.write_text(path.read_text().replace("first version", "second version"))
        server.signal(signal.SIGHUP)
        until("the new app serves", lambda: server.get("/version").text == "second version")


@behaviour(*SUPERVISED)
def keeps_the_old_app_when_the_edited_one_is_broken(mode):
    with Server(mode=mode) as server:
        path = server.app / "app.R"
        path.write_text("stop('broken on purpose')")
        server.signal(signal.SIGHUP)
        until("the failure is reported", lambda: "broken on purpose" in server.told())
        equal(server.get("/version").text, "first version", "the app that serves")


@behaviour(*SUPERVISED)
def takes_changed_settings_after_hup_and_refuses_mistakes(mode):
    settings = "options:\n  error_detail: {}\n  workers: {}\n"
    workers = processes_of(mode)
    with Server(mode=mode, yml=settings.format("none", workers)) as server:
        path = server.app / "_server.yml"
        told = lambda: "this handler always fails" in server.get("/error").text
        check(not told(), "the error is shown before it is asked for")
        path.write_text("engine: rookery\napp: app.R\n" + settings.format("mesage", workers))
        server.signal(signal.SIGHUP)
        until("the mistake is reported", lambda: "the reload is refused" in server.told() and "line 4" in server.told())
        check(not told(), "a refused reload changes a setting")
        path.write_text("engine: rookery\napp: app.R\n" + settings.format("message", workers) + "  sticky: none\n")
        server.signal(signal.SIGHUP)
        until("the new workers show errors", told)
        check("until the server is restarted: `sticky`" in server.told(), "what needs a restart is not named")


@behaviour(*SUPERVISED)
def reopens_the_log_on_usr1(mode):
    with Server(mode=mode, log="{folder}/access.log") as server:
        log = server.folder / "access.log"
        server.get("/")
        until("the line is written", lambda: log.exists() and log.read_text().count("\n") >= 1)
        log.rename(server.folder / "access.log.1")
        server.signal(signal.SIGUSR1)
        until("the new file is written", lambda: server.get("/") and log.exists() and log.read_text())


@behaviour()
def survives_usr2(mode):
    with Server(mode=mode) as server:
        server.signal(signal.SIGUSR2)
        time.sleep(1)
        check(server.process.poll() is None, f"USR2 ended the server with {server.process.returncode}")
        until("it serves", lambda: server.get("/").status == 200)


@behaviour(*SUPERVISED)
def replaces_a_worker_that_is_killed(mode):
    with Server(mode=mode) as server:
        before = set(server.workers())
        os.kill(min(before), signal.SIGKILL)
        until("another has taken its place", lambda: (now := set(server.workers())) != before and len(now) == len(before))
        until("it serves", lambda: server.get("/").status == 200)


def _fill(server, route):
    """Requests what a worker writes, until the pipe that nobody reads has been full for a while."""
    for _ in range(6):
        server.begin(route, timeout=20)
        time.sleep(0.2)


def _with_unread(stream, mode, log):
    reader, writer = os.pipe()
    try:
        server = Server(mode=mode, log=log, **{stream: writer})
        os.close(writer)
        return server, reader
    except Exception:
        os.close(reader)
        raise


@behaviour()
def serves_and_ends_with_an_unread_stderr(mode):
    server, reader = _with_unread("stderr", mode, "none")
    with server:
        if mode == IN_R:
            # The only R process writes to the descriptor itself, so R may block in its own message().
            for _ in range(40):
                server.get("/error")
        else:
            _fill(server, "/noise")
            until("it serves", lambda: server.get("/", timeout=10).status == 200)
            os.kill(min(server.workers()), signal.SIGKILL)
            until("the worker is replaced", lambda: len(server.workers()) == processes_of(mode))
            until("it serves after a restart", lambda: server.get("/", timeout=10).status == 200)
        server.signal(signal.SIGTERM)
        equal(server.ended(30), 0, "the exit status")
    os.close(reader)


@behaviour()
def serves_and_ends_with_an_unread_stdout(mode):
    server, reader = _with_unread("stdout", mode, "stdout")
    with server:
        path = "/" + "a" * 2000
        for _ in range(100):
            server.get(path)
        until("it serves", lambda: server.get("/", timeout=10).status == 200)
        server.signal(signal.SIGTERM)
        equal(server.ended(30), 0, "the exit status")
    os.close(reader)


@behaviour(*SUPERVISED)
def serves_when_the_app_fills_an_unread_stdout(mode):
    server, reader = _with_unread("stdout", mode, "none")
    with server:
        _fill(server, "/output")
        until("it serves", lambda: server.get("/", timeout=10).status == 200)
        server.signal(signal.SIGTERM)
        equal(server.ended(30), 0, "the exit status")
    os.close(reader)


@behaviour()
def serves_on_one_processor(mode):
    with Server("--drain", "20s", mode=mode, prefix=("taskset", "-c", "0")) as server:
        equal(server.get("/").status, 200, "the request")


@behaviour("one worker")
def accepts_workers_auto_with_its_options_on_one_processor(mode):
    words = ("--workers", "auto", "--drain", "20s")
    with Server(*words, mode=mode, prefix=("taskset", "-c", "0")) as server:
        equal(server.get("/").status, 200, "the request")
        server.signal(signal.SIGTERM)
        equal(server.ended(), 0, "the exit status")


KINDS = {
    "page": ("GET", {"Accept": "text/html", "Sec-Fetch-Mode": "navigate"}),
    "page without fetch metadata": ("GET", {"Accept": "*/*"}),
    "call of an API": ("GET", {"Accept": "application/json"}),
    "POST": ("POST", {}),
}


@behaviour("two workers")
def sets_the_cookie_on_any_request_that_has_none(mode):
    with Server("--sticky", "cookie", mode=mode) as server:
        for kind, (method, headers) in KINDS.items():
            reply = server.request(method, "/", headers=headers)
            cookie = reply.header("Set-Cookie")
            check(cookie, f"{kind}: no cookie is set")
            pid = reply.text
            for _ in range(6):
                again = server.request(method, "/", headers=headers | {"Cookie": cookie.split(";")[0]})
                equal(again.text, pid, f"{kind}: the worker of a client that returns with its cookie")
                check(not again.header("Set-Cookie"), f"{kind}: the cookie is set again")


@behaviour(IN_R, "one worker")
def sets_no_cookie_where_there_is_one_r_process(mode):
    with Server(mode=mode) as server:
        for kind, (method, headers) in KINDS.items():
            check(not server.request(method, "/", headers=headers).header("Set-Cookie"), f"{kind}: a cookie is set")


@behaviour()
def shows_the_app_the_headers_that_a_client_names_in_connection(mode):
    with Server(mode=mode) as server:
        text = server.raw(
            "GET /seen HTTP/1.1\r\nHost: a\r\nConnection: close, x-forwarded-for, authorization\r\n"
            "X-Forwarded-For: 192.0.2.9\r\nAuthorization: Basic YTpi\r\n\r\n"
        )
        check("HTTP_X_FORWARDED_FOR=192.0.2.9" in text and "HTTP_AUTHORIZATION=Basic YTpi" in text, text)


@behaviour()
def refuses_an_unknown_key_of_server_yml(mode):
    workers = {IN_R: "", "one worker": "  workers: 1\n", "two workers": "  workers: 2\n"}[mode]
    for section, text in {
        "options": f"options:\n{workers}  tsl: dev\n",
        "limits": f"options:\n{workers}  limits:\n    max_body_siz: 1MB\n",
        "tls": f"options:\n{workers}  tls:\n    crt: a.pem\n",
        "top": f"option:\n{workers}  port: 1\n",
    }.items():
        status, said = run(mode=mode, yml=text)
        check(status not in (0, None) and "id you mean" in said, f"{section}: status {status}, said {said[-400:]!r}")
        check("Serving on" not in said, f"{section}: the app was served all the same")


@behaviour()
def a_client_that_leaves_ends_nothing(mode):
    with Server(mode=mode) as server:
        for _ in range(20):
            with server.connect() as client:
                client.sendall(b"GET /sleep?0.01 HTTP/1.1\r\nHost: a\r\n\r\n")
        equal(server.get("/").status, 200, "the next request")


@behaviour()
def ends_with_status_0_when_the_app_has_finished(mode):
    app = "list(call = function(req) { later::later(function() quit(status = 0), 0.5); list(status = 200L, headers = list(), body = 'x') })"
    with Server(mode=mode, files={"app.R": app}) as server:
        equal(server.get("/").text, "x", "the last reply")
        equal(server.ended(), 0, "the exit status")


@behaviour(*SUPERVISED)
def reports_a_failed_start_once_with_the_apps_own_message_first(mode):
    app = "read_model <- function() stop('the model is not there')\nread_model()\n"
    status, said = run("--start-retries", "1", mode=mode, files={"app.R": app})
    equal(status, 3, "the exit status")
    equal(said.count("Error in read_model()"), 2, f"how often the error is told in {said!r}")
    last = said.split("rookery: ")[-1]
    check(last.startswith("The app did not start: Error in read_model() (app.R:1): the model is not there"), said)
    check("cli_main" not in said and "serve_here" not in said, f"frames of rookery: {said}")


@behaviour("one worker")
def a_check_finds_the_mistakes_of_an_app_before_it_is_served(mode):
    def checked(*words, **files):
        status, said = run(mode=mode, files={"app.R": "", **files}, command=("check", *words))
        check("Serving on" not in said, f"the app was served: {said}")
        return status, said

    failing = "read_model <- function() stop('the model is not there')\nread_model()\n"
    equal(checked(**{"app.R": failing})[0], 0, "the exit status if the code is not run")
    status, said = checked("--load", **{"app.R": failing})
    check(status == 1 and "Error in read_model() (app.R:1): the model is not there" in said, said)
    status, said = checked(**{"app.R": "source('other.R')", "other.R": "x <- 1\ny <- 2 3\n"})
    check(status == 1 and "other.R:2:8: unexpected numeric constant" in said, said)
    status, said = checked(**{"app.R": "library(noSuchPackage)"})
    check(status == 1 and 'install.packages("noSuchPackage")' in said, said)


__all__ = ["ROWS", "PATIENCE"]
