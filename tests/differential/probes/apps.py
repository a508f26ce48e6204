"""Apps of every form, `onHeaders`, several servers, and what handlers may do to the loop that runs them."""

from probes.base import connection, exchange, request
from wire import Wire

GET = request()
POST = request("POST /probe HTTP/1.1", ["Content-Length: 5"], b"12345")

FORMS = {
    "function": "function(req) { if (!is_ours(req)) note('call'); ok() }",
    "list": "list(call = function(req) ok())",
    "env": "local({ call <- function(req) ok(); environment() })",
    "r6": "R6::R6Class('A', public = list(call = function(req) ok('r6')))$new()",
    "refclass": "methods::setRefClass('C', methods = list(call = function(req) ok('ref')))$new()",
    "refclass-headers": "methods::setRefClass('D', methods = list(onHeaders = function(req) { note('onHeaders'); NULL }, call = function(req) ok('ref')))$new()",
    "nothing": "list()",
    "null": "NULL",
    "env-empty": "new.env()",
    "call-null": "list(call = NULL)",
    "headers-only": "list(onHeaders = function(req) if (is_ours(req)) NULL else ok('early'))",
    "added-later": "local({ app <- new.env(); app$call <- function(req) { app$call <- function(req) ok('second'); ok('first') }; app })",
    "active": "local({ app <- new.env(); makeActiveBinding('call', function() function(req) ok('active'), app); app })",
    "no-arguments": "list(call = function() ok())",
    "dots": "list(call = function(...) ok())",
}

# What onHeaders may return.
EARLY = {
    "null": "NULL", "list0": "list()", "response": "ok('early')", "403": "list(status = 403L, headers = list(), body = 'no')",
    "413": "list(status = 413L, headers = list('Content-Type' = 'text/plain'), body = 'large')",
    "no-status": "list(headers = list(), body = 'x')", "text": "'text'", "number": "1", "true": "TRUE", "error": "stop('in headers')",
    "promise": "promises::promise_resolve(ok('promised'))", "file": "list(status = 200L, headers = list(), body = c(file = file.path(DIR, 'text.txt')))",
    "empty-body": "list(status = 200L, headers = list(), body = '')", "warning": "{ warning('w'); NULL }",
    "sets": "{ req$MINE <- 'set'; req$PATH_INFO <- '/other'; NULL }", "deletes": "{ rm('PATH_INFO', envir = req); NULL }",
    "reads": "{ note(describe(req$rook.input$read())); note(class(req$rook.input)[[1]]); NULL }",
    "env": "list2env(ok('early'))", "holds": "{ holds(rlang::env_clone(req)); eapply(req, class, all.names = TRUE); NULL }",
    "sees-length": "{ note(describe(req$CONTENT_LENGTH)); NULL }",
}

WIRES = {
    "get": (GET, "GET"), "post": (POST, "POST"),
    "post-empty": (request("POST /probe HTTP/1.1", ["Content-Length: 0"]), "POST"),
    "post-chunked": (request("POST /probe HTTP/1.1", ["Transfer-Encoding: chunked"], b"3\r\nabc\r\n0\r\n\r\n"), "POST"),
    "head": (request("HEAD /probe HTTP/1.1"), "HEAD"),
    "expect": (request("POST /probe HTTP/1.1", ["Content-Length: 5", "Expect: 100-continue"], b"12345"), "POST"),
}

# What a handler does to the process; the server is `servers[[port]]` of the driver.
DEEDS = {
    "service": "service(1)",
    "service-na": "service(NA)",
    "interrupt": "interrupt()",
    "later": "later::later(function() note('later ran'))",
    "later-twice": "{ later::later(function() note('one')); later::later(function() note('two')) }",
    "run-now": "{ later::later(function() note('inner')); later::run_now() }",
    "warning": "warning('from call')",
    "message": "message('from call')",
    "print": "print('from call')",
    "cat-stderr": "cat('to stderr\\n', file = stderr())",
    "errors": "req$rook.errors$cat('to rook.errors\\n')",
    "rng": "{ set.seed(1); note(runif(1)) }",
    "setwd": "{ old <- setwd(tempdir()); setwd(old) }",
    "start-another": "{ s <- startServer('127.0.0.1', randomPort(), list()); note(s$isRunning()); s$stop() }",
    "gc": "gc()",
    "connections": "note(nrow(showConnections()) <= 2)",
    "system": "note(system('exit 3'))",
    "list-servers": "note(length(listServers()) > 0)",
    "sys-call": "note(is.environment(environment()))",
    "warn2": "{ old <- options(warn = 2); on.exit(options(old)); warning('made an error') }",
    "stop-condition": "stop(structure(class = c('custom', 'condition'), list(message = 'mine', call = NULL)))",
    "stop-custom-error": "stop(structure(class = c('custom', 'error', 'condition'), list(message = 'mine', call = NULL)))",
    "signal": "signalCondition(structure(class = c('custom', 'condition'), list(message = 'mine', call = NULL)))",
    "abort": "invokeRestart('abort')",
    "interrupted": "tools::pskill(Sys.getpid(), tools::SIGINT)",
    "return-in-call": "return(ok('returned'))",
    "missing-object": "no_such_object",
    "deep": "{ f <- function(n) if (n == 0) 0 else f(n - 1); f(1000) }",
    "too-deep": "{ f <- function() f(); f() }",
    "error-utf8": r"stop('b\u00f6')",
    "error-latin1": r"stop(iconv('b\u00f6', 'UTF-8', 'latin1'))",
    "error-empty": "stop()",
    "error-lines": r"stop('one\ntwo')",
    "error-call": "stop('with call', call. = TRUE)",
    "error-nested": "tryCatch(stop('inner'), error = function(e) stop('outer'))",
    "error-long": "stop(strrep('x', 5000))",
}


def probes():
    """Forms of apps, early answers, deeds of handlers, several servers."""
    for kind, app in FORMS.items():
        yield exchange(f"app/{kind}", GET, app)
        yield exchange(f"app/{kind}-post", POST, app)
    for kind, value in EARLY.items():
        for wire, (data, method) in WIRES.items():
            if wire in ("get", "post") or kind in ("null", "response", "413", "error"):
                answers = 2 if wire == "expect" and kind == "null" else 1
                yield exchange(f"onHeaders/{kind}-{wire}", data, f"dumping(onHeaders = function(req) {{ {value} }})", method, answers)
    for kind, deed in DEEDS.items():
        yield exchange(f"handler/{kind}", GET, f"logged(call = function(req) {{ {deed}; ok() }})")

    def twice(wire):
        for _ in range(2):
            wire.send(GET)
            wire.answer()
        wire.fate()

    for kind in ("service", "later", "error-call", "abort", "too-deep"):
        yield connection(f"handler/{kind}-then-again", twice, f"logged(call = function(req) {{ {DEEDS[kind]}; ok() }})")

    stopping = "logged(call = function(req) { %s; ok('stopped') })"
    mine = "stopServer(servers[[req$SERVER_PORT]])"

    def once(wire):
        wire.send(GET)
        wire.answer()
        wire.end()

    yield connection("stop/in-call", once, stopping % mine, alone=True)
    yield connection("stop/in-call-by-later", once, stopping % f"later::later(function() {mine}, 0.1)", alone=True)
    yield connection("stop/all-in-call", once, stopping % "stopAllServers()", alone=True)
    yield connection("stop/in-onHeaders", once, f"logged(onHeaders = function(req) {{ {mine}; NULL }})", alone=True)

    def stopped(wire):
        wire.send(GET)
        wire.answer()
        wire.side.ask(f"{{ stopServer(servers[['{wire.address[1]}']]); '' }}")
        wire.end()

    yield connection("stop/kept-connection", stopped, alone=True)

    def two(wire):
        other = Wire(wire.side, ("127.0.0.1", wire.side.serve("logged(call = function(req) ok('the other'))")))
        wire.send(GET)
        other.send(GET)
        wire.answer()
        other.answer()
        wire.record["body"] += other.record["body"]
        other.close()
        wire.fate()

    yield connection("servers/two-at-once", two)

    def crossed(wire):
        others = [Wire(wire.side, wire.address) for _ in range(8)]
        for index, other in enumerate(others):
            other.send(request(f"GET /{index} HTTP/1.1"))
            if index == 0:
                other.answer()
        for index, other in enumerate(others):
            if index > 0:
                other.answer()
            wire.record["body"] += other.record["body"]
            other.close()
        wire.send(GET)
        wire.answer()
        wire.fate()

    yield connection("servers/eight-connections", crossed, "logged(call = function(req) ok(req$PATH_INFO))")
