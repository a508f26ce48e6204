"""Request bodies: sizes, chunkings, `Expect`, and the ways to read them."""

from probes.base import connection, exchange, request

SIZES = [0, 1, 2, 100, 1000, 16383, 16384, 65535, 65536, 65537, 100_000, 1_000_000, 3_000_000]
TYPES = ["application/x-www-form-urlencoded", "application/json", "multipart/form-data; boundary=x", "text/plain; charset=latin1", ""]
PATTERN = bytes(range(256)) * 4

CHUNKS = {
    "one": b"3\r\nabc\r\n0\r\n\r\n", "two": b"3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n", "none": b"0\r\n\r\n", "hex": b"A\r\n0123456789\r\n0\r\n\r\n",
    "hex-lower": b"a\r\n0123456789\r\n0\r\n\r\n", "zeros": b"0003\r\nabc\r\n000\r\n\r\n", "extension": b"3;x=y\r\nabc\r\n0;z\r\n\r\n",
    "extension-quoted": b'3;x="y;z"\r\nabc\r\n0\r\n\r\n', "trailer": b"3\r\nabc\r\n0\r\nX-Trailer: t\r\n\r\n",
    "trailers": b"3\r\nabc\r\n0\r\nX-A: 1\r\nX-B: 2\r\n\r\n", "bad-size": b"zz\r\nabc\r\n0\r\n\r\n", "negative": b"-3\r\nabc\r\n0\r\n\r\n",
    "empty-size": b"\r\nabc\r\n0\r\n\r\n", "no-crlf": b"3\r\nabcd\r\n0\r\n\r\n", "huge-size": b"FFFFFFFFFFFFFFFFF\r\nabc", "bare-lf": b"3\nabc\n0\n\n",
    "space-after-size": b"3 \r\nabc\r\n0\r\n\r\n", "many": b"".join(b"1\r\n%c\r\n" % (65 + i % 26) for i in range(500)) + b"0\r\n\r\n",
    "large": b"20000\r\n" + b"x" * 0x20000 + b"\r\n0\r\n\r\n",
}

# How `call` reads the body "l1\nl2\r\nl3".
READS = {
    "read": "input$read()", "read-4-4-4": "list(input$read(4), input$read(4), input$read(4), input$read(4))", "read-0": "input$read(0)",
    "read-twice": "list(input$read(), input$read())", "read-minus": "input$read(-5)", "read-large": "input$read(1e6)", "read-double": "input$read(2.9)",
    "read-na": "input$read(NA)", "read-null": "input$read(NULL)", "read-inf": "input$read(Inf)",
    "read-chr": "input$read('2')", "lines": "input$read_lines()", "lines-1": "list(input$read_lines(1), input$read_lines(1), input$read_lines())",
    "lines-0": "input$read_lines(0)", "lines-after-read": "{ input$read(2); input$read_lines() }", "read-after-line": "{ input$read_lines(1); input$read() }",
    "lines-inf": "input$read_lines(Inf)", "lines-chr": "input$read_lines('1')",
    "rewind": "{ input$read(3); input$rewind() }", "rewind-visible": "{ input$read(3); withVisible(input$rewind())$visible }", "rewind-at-end": "{ input$read(); input$rewind() }",
    "rewind-read": "{ input$read(1); input$rewind(); input$read() }", "rewind-twice": "{ input$rewind(); input$rewind() }", "class": "class(input)",
    "members": "sort(setdiff(names(input), c('.__enclos_env__', 'clone', 'initialize')))", "body-data": "readLines(req$.bodyData, warn = FALSE)",
    "body-data-class": "inherits(req$.bodyData, 'connection')", "body-data-raw": "readBin(req$.bodyData, 'raw', 100)", "body-data-seek": "seek(req$.bodyData)",
    "length": "req$CONTENT_LENGTH", "read-to-chr": "rawToChar(input$read())", "loop": "{ n <- 0; repeat { x <- input$read(3); if (length(x) == 0) break; n <- n + 1 }; n }",
    "arguments": "list(names(formals(input$read)), names(formals(input$read_lines)), names(formals(input$rewind)))",
}

# What a handler does with `req` as a whole.
WHOLES = {
    "eapply": "holds(eapply(req, function(x) describe(x)))", "eapply-all": "holds(eapply(req, describe, all.names = TRUE))", "eapply-unnamed": "note(sort(unlist(eapply(req, typeof, USE.NAMES = FALSE))))",
    "as-list": "holds(as.list(req))", "as-list-all": "holds(as.list(req, all.names = TRUE))", "mget": "holds(mget(ls(req, all.names = TRUE), envir = req))", "clone": "holds(rlang::env_clone(req))",
    "clone-names": "note(ls(rlang::env_clone(req), all.names = TRUE))", "clone-reads": "note(describe(rlang::env_clone(req)$rook.input$read()))", "get-list": "holds(rlang::env_get_list(req, ls(req, all.names = TRUE)))",
    "coalesce": "{ to <- new.env(); rlang::env_coalesce(to, req); holds(to) }", "list2env": "holds(list2env(as.list(req, all.names = TRUE), parent = emptyenv()))", "copy-reads": "note(describe(as.environment(as.list(req, all.names = TRUE))$rook.input$read()))",
    "copy-by-shiny": "{ copy <- as.environment(as.list(req, all.names = TRUE)); copy$PATH_INFO <- '/x'; note(req$PATH_INFO, copy$PATH_INFO) }", "get": "for (name in sort(ls(req), method = 'radix')) note(name, describe(get(name, envir = req)), describe(get0(name, req, inherits = FALSE)))",
    "with": "note(with(req, PATH_INFO), evalq(QUERY_STRING, req))", "exists": "note(exists('rook.input', envir = req, inherits = FALSE), exists('.bodyData', envir = req, inherits = FALSE), exists('nothing', envir = req))",
    "active": "note(vapply(sort(ls(req), method = 'radix'), bindingIsActive, NA, env = req))", "lsstr": "note(length(capture.output(print(ls.str(req)))) > 10)", "size": "note(object.size(req) > 0)", "serialize": "note(length(serialize(as.list(req), NULL)) > 0)",
    "clone-later": "{ kept <- rlang::env_clone(req); later::later(function() note(inherits(try(kept$rook.input$read(), silent = TRUE), 'try-error'), sort(ls(kept)), length(eapply(kept, class, all.names = TRUE)))) }",
    "identical": "note(identical(req, req), isTRUE(all.equal(as.list(req), as.list(req))))", "unbind": "{ rlang::env_unbind(req, c('rook.input', '.bodyData')); note(sort(ls(req, all.names = TRUE))) }",
    "bind": "{ rlang::env_bind(req, rook.input = 'mine'); delayedAssign('lazy', 'kept', assign.env = req); makeActiveBinding('active', function() 'moved', req); holds(req) }",
}


def probes():
    """Sizes and kinds of bodies, chunks, reading."""
    bodies = {"none": request(), "small": request("POST /probe HTTP/1.1", ["Content-Length: 5"], b"12345"),
              "chunked": request("POST /probe HTTP/1.1", ["Transfer-Encoding: chunked"], b"3\r\nabc\r\n0\r\n\r\n"),
              "large": request("POST /probe HTTP/1.1", ["Content-Length: 2000000"], b"y" * 2_000_000)}
    for kind, code in WHOLES.items():
        for size, data in bodies.items():
            method = "GET" if size == "none" else "POST"
            yield exchange(f"whole/{kind}-{size}", data, f"logged(call = function(req) {{ {code}; ok() }})", method)
        yield exchange(f"whole/{kind}-seen", bodies["small"], f"logged(call = function(req) {{ {code}; ok() }}, onHeaders = function(req) {{ eapply(req, class, all.names = TRUE); NULL }})", "POST")
    for size in SIZES:
        body = (PATTERN * (size // len(PATTERN) + 1))[:size]
        yield exchange(f"body/size-{size}", request("POST /probe HTTP/1.1", [f"Content-Length: {size}"], body), method="POST")
        if size in (100, 65536, 1_000_000):
            chunk = b"%x\r\n" % size + body + b"\r\n0\r\n\r\n"
            yield exchange(f"body/chunked-{size}", request("POST /probe HTTP/1.1", ["Transfer-Encoding: chunked"], chunk), method="POST")
    for type in TYPES:
        yield exchange(f"body/type-{type}", request("POST /probe HTTP/1.1", [f"Content-Type: {type}", "Content-Length: 3"], b"a=b"), method="POST")
    for method in ("GET", "HEAD", "PUT", "DELETE", "PATCH", "OPTIONS"):
        yield exchange(f"body/with-{method}", request(f"{method} /probe HTTP/1.1", ["Content-Length: 3"], b"abc"), method=method)
        yield exchange(f"body/without-{method}", request(f"{method} /probe HTTP/1.1", ["Content-Length: 0"]), method=method)
    yield exchange("body/no-length", request("POST /probe HTTP/1.1"), method="POST")
    yield exchange("body/nul", request("POST /probe HTTP/1.1", ["Content-Length: 3"], b"a\0b"), method="POST")
    for kind, chunks in CHUNKS.items():
        yield exchange(f"chunks/{kind}", request("POST /probe HTTP/1.1", ["Transfer-Encoding: chunked"], chunks), method="POST")
    split = request("POST /probe HTTP/1.1", ["Transfer-Encoding: chunked"], CHUNKS["two"])
    for back in range(1, len(CHUNKS["two"]), 3):
        yield exchange(f"chunks/split-{back}", split, method="POST", at=(len(split) - back,))
    for kind, code in READS.items():
        app = f"logged(call = function(req) {{ input <- req$rook.input; note(describe(tryCatch({code}, error = identity))); ok() }})"
        yield exchange(f"input/{kind}", request("POST /probe HTTP/1.1", ["Content-Length: 10"], b"l1\nl2\r\nl3\n"[:10]), app, "POST")
    for kind, text in {"cr": b"ab\rcd", "crs": b"a\r\r\nb", "blank": b"\n\na\n\n", "utf8": "f\u00f6\nb".encode(), "latin1": b"f\xf6\nb", "nul": b"a\0b\nc",
                       "last": b"a\nb", "end": b"a\nb\n"}.items():
        app = "logged(call = function(req) { note(describe(req$rook.input$read_lines())); ok() })"
        yield exchange(f"lines/{kind}", request("POST /probe HTTP/1.1", [f"Content-Length: {len(text)}"], text), app, "POST")

    def expecting(value, early):
        def script(wire):
            wire.send(request("POST /probe HTTP/1.1", ["Content-Length: 5", f"Expect: {value}"]))
            if value == "100-continue" and not early:
                wire.answer()
            elif early:
                wire.answer()
                wire.end()
                return
            wire.send(b"12345")
            wire.answer()
            wire.fate()
        return script

    for value in ("100-continue", "100-Continue", "foo"):
        yield connection(f"expect/{value}", expecting(value, False))
    yield connection("expect/refused", expecting("100-continue", True), "logged(onHeaders = function(req) list(status = 413L, headers = list(), body = 'no'))")

    def late(app_reads):
        def script(wire):
            wire.send(request("POST /probe HTTP/1.1", ["Content-Length: 100000"], b"x" * 1000))
            wire.answer()
            wire.send(b"x" * 99000)
            wire.end()
        return script

    yield connection("body/refused-while-it-comes", late(False), "logged(onHeaders = function(req) list(status = 413L, headers = list(), body = 'no'))")

    def cut(wire):
        wire.send(request("POST /probe HTTP/1.1", ["Content-Length: 10"], b"123"))
        wire.side.barrier()
        wire.close()

    yield connection("body/cut-off", cut)
    app = "logged(call = function(req) promises::promise(function(resolve, reject) later::later(function() resolve(ok(rawToChar(req$rook.input$read()))), 0.05)))"
    yield exchange("body/read-in-a-promise", request("POST /probe HTTP/1.1", ["Content-Length: 3"], b"abc"), app, "POST")
    app = "logged(call = function(req) { kept <<- req; ok() })"
    yield exchange("body/kept-request", request("POST /probe HTTP/1.1", ["Content-Length: 3"], b"abc"), app, "POST")
