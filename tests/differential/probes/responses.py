"""What `call` returns, and what becomes of it on the wire."""

from probes.base import answering, connection, exchange, request
from wire import Wire

STATUSES = [*range(200, 207), 208, 218, 226, 299, *range(300, 309), *range(400, 419), 421, 422, 423, 425, 426, 428, 429, 431, 451, 499, *range(500, 512), 599, 600, 700, 999]
ODD_STATUSES = ["200.9", "'200'", "NA", "NULL", "NA_integer_", "c(200L, 404L)", "TRUE", "99L", "0L", "-1L", "1000L", "100L", "101L", "102L", "103L", "199L",
                "integer(0)", "list(200L)", "factor('200')", "Inf", "1e10", "as.raw(1)"]

BODIES = {
    "chr": "'text'", "empty": "''", "two": "c('abc', 'def')", "na": "NA_character_", "na-logical": "NA", "chr0": "character(0)", "raw": "charToRaw('raw')", "raw0": "raw(0)",
    "null": "NULL", "number": "123", "double": "1.5", "integer": "65L", "integers": "c(65L, 66L)", "logical": "TRUE", "list": "list()", "list-chr": "list('a')", "utf8": r"'f\u00f6'",
    "latin1": r"iconv('f\u00f6', 'UTF-8', 'latin1')", "bytes": r"'\xff'", "file": "c(file = file.path(DIR, 'text.txt'))", "file-list": "list(file = file.path(DIR, 'text.txt'))",
    "file-not-owned": "list(file = file.path(DIR, 'text.txt'), owned = FALSE)", "file-owned-chr": "c(file = file.path(DIR, 'text.txt'), owned = 'FALSE')",
    "file-missing": "c(file = '/no/such/file')", "file-folder": "c(file = DIR)", "file-empty": "c(file = file.path(DIR, 'empty.txt'))",
    "file-large": "c(file = file.path(DIR, 'large.bin'))", "file-tilde": "c(file = '~/no-such')", "file-relative": "{ writeLines('rel', 'relative.txt'); c(file = 'relative.txt') }",
    "file-two": "list(file = rep(file.path(DIR, 'text.txt'), 2))", "file-number": "list(file = 1)", "file-null": "list(file = NULL)", "file-name-utf8": r"c(file = file.path(DIR, 'f\u00f6l.txt'))",
    "function": "function() 1", "env": "new.env()", "symbol": "quote(x)", "complex": "1i", "factor": "factor('a')", "json": "structure('{}', class = 'json')",
    "named-chr": "c(a = 'named')", "matrix": "matrix('m')", "date": "as.Date('2020-01-01')", "large": "strrep('x', 1e6)", "large-raw": "raw(1e6)", "html": "htmltools::HTML('<p>')",
    "lines": r"'a\nb\r\nc'", "nul": "as.raw(c(97, 0, 98))", "64k": "strrep('y', 65536)", "connection": "stdin()", "env-file": "list2env(list(file = file.path(DIR, 'text.txt')))",
}

HEADERS = {
    "null": "NULL", "list0": "list()", "chr0": "character(0)", "chr": "c('X-A' = '1')", "list": "list('X-A' = '1')", "lower": "list('x-a' = '1', 'content-type' = 'text/html')",
    "order": "list(Zebra = 'z', apple = 'a', Mango = 'm', 'X-b' = 'b')", "twice": "list('Set-Cookie' = 'a=1', 'Set-Cookie' = 'b=2')",
    "twice-cases": "list('X-A' = '1', 'x-a' = '2')", "number": "list('X-A' = 1.5)", "integer": "list('X-A' = 100000L)", "1e5": "list('X-A' = 1e5)", "2e5": "list('X-A' = 2e5)", "123456": "list('X-A' = 123456)",
    "third": "list('X-A' = 1/3)", "logical": "list('X-A' = TRUE)", "na": "list('X-A' = NA)", "na-chr": "list('X-A' = NA_character_)", "empty-value": "list('X-A' = '')",
    "two-values": "list('X-A' = c('1', '2'))", "null-value": "list('X-A' = NULL)", "list-value": "list('X-A' = list('1'))", "factor": "list('X-A' = factor('b', levels = c('a', 'b')))",
    "date": "list('X-A' = as.Date('2020-01-01'))", "time": "list('X-A' = as.POSIXct(0, tz = 'UTC'))", "unnamed": "list('a')", "unnamed-chr": "c('a')", "partly": "list('X-A' = '1', 'b')", "partly-first": "list('b', 'X-A' = '1')",
    "empty-name": "setNames(list('a'), '')", "env": "list2env(list(a = 'b'))", "true": "TRUE", "text": "'text'", "function": "list('X-A' = function() 1)", "raw": "list('X-A' = as.raw(1))",
    "cr": r"list('X-A' = 'a\rb')", "lf": r"list('X-A' = 'a\nb')", "crlf": r"list('X-A' = 'a\r\nX-B: b')", "crlf-end": r"list('X-A' = 'a\r\n')", "control": r"list('X-A' = 'a\001b')", "tab": r"list('X-A' = 'a\tb')",
    "name-space": "list('X A' = '1')", "name-colon": "list('X:A' = '1')", "name-crlf": r"setNames(list('1'), 'X\r\nA')", "name-utf8": r"setNames(list('1'), 'X-\u00e9')", "name-dot": "list(X.A = '1')", "name-under": "list(X_A = '1')",
    "utf8": r"list('X-A' = '\u00e9')", "latin1": r"list('X-A' = iconv('\u00e9', 'UTF-8', 'latin1'))", "spaces": "list('X-A' = '  a  ')", "long": "list('X-A' = strrep('v', 10000))", "many": "setNames(as.list(as.character(1:200)), paste0('X-', 1:200))",
    "content-length-right": "list('Content-Length' = '4')", "content-length-short": "list('Content-Length' = '3')", "content-length-long": "list('Content-Length' = '6')", "content-length-double": "list('Content-Length' = 4)",
    "content-length-text": "list('Content-Length' = 'abc')", "content-length-twice": "list('Content-Length' = '4', 'Content-Length' = '4')", "content-length-lower": "list('content-length' = '4')",
    "date-own": "list(Date = 'Tue, 14 Nov 2023 22:13:20 GMT')", "date-lower": "list(date = 'Tue, 14 Nov 2023 22:13:20 GMT')", "date-text": "list(Date = 'today')", "server": "list(Server = 'mine')",
    "connection-close": "list(Connection = 'close')", "connection-keep": "list(Connection = 'keep-alive')", "connection-upgrade": "list(Connection = 'Upgrade')", "chunked": "list('Transfer-Encoding' = 'chunked')",
    "identity": "list('Content-Encoding' = 'identity')", "gzip": "list('Content-Encoding' = 'gzip')", "vary": "list(Vary = 'Cookie')", "etag": "list(ETag = '\"x\"')", "location": "list(Location = '/there')", "trailer": "list(Trailer = 'X-T')",
    "upgrade": "list(Upgrade = 'h2c')", "keep-alive": "list('Keep-Alive' = 'timeout=5')", "type-none": "list('Content-Type' = '')", "www": "list('WWW-Authenticate' = 'Basic', 'WWW-Authenticate' = 'Digest')",
}

# What `call` returns instead of a good list.
SHAPES = {
    "null": "NULL", "list0": "list()", "text": "'abc'", "named-chr": "c(status = '200')", "number": "1", "true": "TRUE", "function": "function() 1", "env": "list2env(list(status = 200L, headers = list(), body = 'env'))",
    "no-status": "list(headers = list(), body = 'x')", "no-headers": "list(status = 200L, body = 'x')", "no-body": "list(status = 200L, headers = list())", "status-only": "list(status = 200L)",
    "extra": "list(status = 200L, headers = list(), body = 'x', more = 1)", "other-order": "list(body = 'x', headers = list(), status = 200L)", "unnamed": "list(200L, list(), 'x')", "partial-names": "list(stat = 200L, head = list(), bod = 'x')",
    "data-frame": "data.frame(status = 200L, body = 'x')", "classed": "structure(list(status = 200L, headers = list(), body = 'x'), class = 'response')", "nested": "list(list(status = 200L, headers = list(), body = 'x'))",
    "status-twice": "list(status = 200L, status = 404L, headers = list(), body = 'x')", "r6": "R6::R6Class('R', public = list(status = 200L, headers = list(), body = 'r6'))$new()", "body-file": "list(status = 200L, headers = list(), bodyFile = file.path(DIR, 'text.txt'), bodyFileOwned = FALSE)",
    "invisible": "invisible(ok())", "symbol": "quote(x)", "na": "NA", "raw": "raw(1)", "character0": "character(0)",
    "env-active": "{ e <- list2env(list(headers = list(), body = 'x')); makeActiveBinding('status', function() 202L, e); e }",
    "env-promise": "{ e <- list2env(list(headers = list(), body = 'x')); delayedAssign('status', 202L, assign.env = e); e }",
    "env-no-headers": "list2env(list(status = 200L, body = 'x'))", "env-no-body": "list2env(list(status = 200L, headers = list('X-A' = '1')))", "env-empty": "new.env()",
    "env-inherited": "new.env(parent = list2env(list(status = 200L, headers = list(), body = 'x')))", "env-locked": "{ e <- list2env(list(status = 200L, headers = list(), body = 'x')); lockEnvironment(e, TRUE); e }",
    "env-classed": "structure(list2env(list(status = 200L, headers = list(), body = 'x')), class = 'response')", "env-error": "{ e <- list2env(list(status = 200L, headers = list())); makeActiveBinding('body', function() stop('active'), e); e }",
    "env-file": "list2env(list(status = 200L, headers = list(), body = c(file = file.path(DIR, 'text.txt'))))", "env-large": "list2env(list(status = 200L, headers = list(), body = strrep('y', 1e6)))",
    "r6-active": "R6::R6Class('R', public = list(headers = list('X-A' = 'b')), active = list(status = function() 202L, body = function() strrep('x', 1e5)))$new()",
    "refclass": "methods::setRefClass('Answer', fields = list(status = 'integer', headers = 'list', body = 'character'))$new(status = 200L, headers = list('X-A' = '1'), body = 'ref')",
    "s4": "{ methods::setClass('Four', representation(status = 'integer')); methods::new('Four', status = 200L) }", "pairlist": "pairlist(status = 200L, headers = list(), body = 'x')",
    "dollar-method": "{ assign('$.odd', function(x, name) stop('no fields'), envir = globalenv()); structure(list(status = 200L), class = 'odd') }",
}

PROMISES = {
    "now": "promises::promise_resolve(ok('now'))", "later": "promises::promise(function(resolve, reject) later::later(function() resolve(ok('later')), 0.02))",
    "rejected": "promises::promise_reject('nope')", "rejected-error": "promises::promise_reject(simpleError('nope'))", "rejected-later": "promises::promise(function(resolve, reject) later::later(function() reject('late'), 0.02))",
    "null": "promises::promise_resolve(NULL)", "text": "promises::promise_resolve('abc')", "no-status": "promises::promise_resolve(list(body = 'x'))", "nested": "promises::promise_resolve(promises::promise_resolve(ok('nested')))",
    "then": "promises::then(promises::promise_resolve(1), function(x) ok('then'))", "then-error": "promises::then(promises::promise_resolve(1), function(x) stop('in then'))", "file": "promises::promise_resolve(list(status = 200L, headers = list(), body = c(file = file.path(DIR, 'text.txt'))))",
    "warning": "promises::then(promises::promise_resolve(1), function(x) { warning('in then'); ok() })", "condition": "promises::promise_reject(structure(class = c('custom', 'condition'), list(message = 'mine', call = NULL)))",
    "env": "promises::promise_resolve(list2env(list(status = 200L, headers = list('X-A' = '1'), body = 'env')))", "r6": "promises::promise_resolve(R6::R6Class('R', public = list(status = 200L, headers = list(), body = 'r6'))$new())",
    "future-like": "structure(list(), class = 'Future')", "finally": "promises::finally(promises::promise_resolve(ok()), function() note('finally'))", "rejected-utf8": r"promises::promise_reject('b\u00f6')", "rejected-null": "promises::promise_reject(NULL)", "rejected-number": "promises::promise_reject(1)",
}

ACCEPT = ["gzip", "GZIP", "gzip, deflate, br", "deflate", "br", "*", "gzip;q=0", "gzip;q=1.0", "x-gzip", "identity", "identity;q=1, gzip;q=0.5", ""]
COMPRESSED = {"one": "'x'", "empty": "''", "text": "strrep('some text ', 1000)", "raw": "as.raw(rep(0:255, 20))", "file": "c(file = file.path(DIR, 'text.txt'))", "large": "strrep('z', 1e6)", "null": "NULL"}


def plain(status="200L", headers="list('Content-Type' = 'text/plain')", body="'text'"):
    """The R expression of a response."""
    return f"list(status = {status}, headers = {headers}, body = {body})"


def probes():
    """Statuses, bodies, headers, shapes, promises, compression."""
    for status in STATUSES:
        yield answering(f"status/{status}", plain(f"{status}L"))
    for status in ODD_STATUSES:
        yield answering(f"odd-status/{status}", plain(status))
    for kind, body in BODIES.items():
        # What these do to a process may be seen by the probes that come after.
        yield answering(f"answer/{kind}", plain(body=body), alone=kind in ("file-null", "file-number", "file-two", "connection"))
    for kind in ("chr", "empty", "null", "raw0", "file", "large"):
        for status in ("204L", "304L", "404L", "500L"):
            yield answering(f"answer/{kind}-{status}", plain(status, body=BODIES[kind]))
        for line in ("HEAD /probe HTTP/1.1", "POST /probe HTTP/1.1", "GET /probe HTTP/1.0", "HEAD /probe HTTP/1.0"):
            yield answering(f"answer/{kind}-{line.split()[0]}-{line[-3:]}", plain(body=BODIES[kind]), line=line)
    yield answering("answer/owned", plain(body="{ f <- file.path(TMP, 'owned'); writeLines('mine', f); later::later(function() note(file.exists(f)), 0.1); list(file = f, owned = TRUE) }"))
    yield answering("answer/owned-missing", plain(body="list(file = file.path(TMP, 'none'), owned = TRUE)"))
    for kind, headers in HEADERS.items():
        yield answering(f"answer-headers/{kind}", plain(headers=headers))
    for kind in ("content-length-right", "content-length-long", "content-length-double", "content-length-lower"):
        yield answering(f"answer-headers/{kind}-HEAD", plain(headers=HEADERS[kind], body="''"), line="HEAD /probe HTTP/1.1")
    yield answering("answer-headers/content-length-1e5-HEAD", plain(headers="list('Content-Length' = 1e5)", body="''"), line="HEAD /probe HTTP/1.1")
    for kind, shape in SHAPES.items():
        yield answering(f"shape/{kind}", shape)
    for kind, promise in PROMISES.items():
        yield answering(f"promise/{kind}", promise)
        if kind in ("now", "later", "rejected"):
            yield answering(f"promise/{kind}-HEAD", promise, line="HEAD /probe HTTP/1.1")
            yield answering(f"promise/{kind}-close", promise, ["Connection: close"])
    for accept in ACCEPT:
        yield answering(f"gzip/accept-{accept}", plain(body="strrep('some text ', 1000)"), [f"Accept-Encoding: {accept}"])
    for kind, body in COMPRESSED.items():
        for line in ("GET /probe HTTP/1.1", "HEAD /probe HTTP/1.1", "GET /probe HTTP/1.0"):
            yield answering(f"gzip/{kind}-{line.split()[0]}-{line[-3:]}", plain(body=body), ["Accept-Encoding: gzip"], line)
    for kind in ("identity", "gzip", "content-length-right", "chunked", "vary"):
        yield answering(f"gzip/headers-{kind}", plain(headers=HEADERS[kind], body="'text'"), ["Accept-Encoding: gzip"])
    for type in ("image/png", "font/woff2", "application/zip", "text/html", "application/json", "text/event-stream"):
        yield answering(f"gzip/type-{type}", plain(headers=f"list('Content-Type' = '{type}')", body="strrep('some text ', 1000)"), ["Accept-Encoding: gzip"])
    for status in ("204L", "304L", "404L"):
        yield answering(f"gzip/status-{status}", plain(status), ["Accept-Encoding: gzip"])
    yield answering("gzip/error", "stop('no')", ["Accept-Encoding: gzip"])

    def gone(wire):
        wire.send(request())
        wire.close()

    yield connection("promise/client-gone", gone, "logged(call = function(req) promises::promise(function(resolve, reject) later::later(function() { note('resolving'); resolve(ok()) }, 0.1)))",
                     event="resolving")
    yield connection("answer/client-gone", gone, "logged(call = function(req) { Sys.sleep(0.05); ok() })", event="call")
    order = "logged(call = function(req) if (req$PATH_INFO == '/slow') promises::promise(function(resolve, reject) later::later(function() { note('slow'); resolve(ok('slow')) }, 0.2)) else ok('fast'))"

    def overtaken(wire):
        other = Wire(wire.side, wire.address)
        wire.send(request("GET /slow HTTP/1.1"))
        wire.side.barrier()
        other.send(request("GET /fast HTTP/1.1"))
        other.answer()
        wire.record["body"] += other.record["body"]
        other.close()
        wire.answer()
        wire.fate()

    yield connection("promise/overtaken", overtaken, order)
    yield exchange("answer/two-on-one-connection", request() + request("GET /second HTTP/1.1"), answers=2)
