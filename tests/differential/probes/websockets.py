"""WebSockets: handshakes, messages, frames, closings, callbacks."""

import struct

from probes.base import connection
from wire import close_frame, frame

KEY = "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="
UPGRADE = "Upgrade: websocket"

HANDSHAKES = {
    "usual": ["Connection: Upgrade", UPGRADE, "Sec-WebSocket-Version: 13", KEY], "firefox": ["Connection: keep-alive, Upgrade", UPGRADE, "Sec-WebSocket-Version: 13", KEY],
    "no-connection": [UPGRADE, "Sec-WebSocket-Version: 13", KEY], "connection-close": ["Connection: close", UPGRADE, "Sec-WebSocket-Version: 13", KEY], "no-version": ["Connection: Upgrade", UPGRADE, KEY],
    "version-8": ["Connection: Upgrade", UPGRADE, "Sec-WebSocket-Version: 8", KEY], "version-99": ["Connection: Upgrade", UPGRADE, "Sec-WebSocket-Version: 99", KEY], "no-key": ["Connection: Upgrade", UPGRADE, "Sec-WebSocket-Version: 13"],
    "short-key": ["Connection: Upgrade", UPGRADE, "Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: abc"], "empty-key": ["Connection: Upgrade", UPGRADE, "Sec-WebSocket-Version: 13", "Sec-WebSocket-Key:"], "case": ["connection: upgrade", "upgrade: WebSocket", "sec-websocket-version: 13", KEY.lower().replace(KEY.lower().split()[1], KEY.split()[1])],
    "protocol": ["Connection: Upgrade", UPGRADE, "Sec-WebSocket-Version: 13", KEY, "Sec-WebSocket-Protocol: chat, superchat"], "deflate": ["Connection: Upgrade", UPGRADE, "Sec-WebSocket-Version: 13", KEY, "Sec-WebSocket-Extensions: permessage-deflate"],
    "origin": ["Connection: Upgrade", UPGRADE, "Sec-WebSocket-Version: 13", KEY, "Origin: http://elsewhere"], "h2c-too": ["Connection: Upgrade", "Upgrade: h2c, websocket", "Sec-WebSocket-Version: 13", KEY], "cookie": ["Connection: Upgrade", UPGRADE, "Sec-WebSocket-Version: 13", KEY, "Cookie: a=1"],
}

MESSAGES = {
    "text": (1, b"hello"), "empty-text": (1, b""), "binary": (2, b"\0\1\2"), "empty-binary": (2, b""), "utf8": (1, "f\u00f6 \u20ac \U0001f600".encode()), "json": (1, b'{"a":1}'), "125": (1, b"a" * 125), "126": (1, b"b" * 126), "127": (1, b"c" * 127),
    "65535": (1, b"d" * 65535), "65536": (1, b"e" * 65536), "200000": (1, b"f" * 200_000), "binary-200000": (2, bytes(range(256)) * 800), "nul": (1, b"a\0b"), "newline": (1, b"a\r\nb"), "invalid-utf8": (1, b"\xff\xfe"), "surrogate": (1, b"\xed\xa0\x80"),
}

# What `onWSOpen` sends first, as R.
SENT = {
    "chr": "'text'", "empty": "''", "raw": "as.raw(1:3)", "raw0": "raw(0)", "number": "1.5", "1e5": "1e5", "integer": "5L", "logical": "TRUE", "na": "NA", "two": "c('a', 'b')", "list": "list('a', 'b')", "json": "structure('{}', class = 'json')", "factor": "factor('x')",
    "utf8": r"'f\u00f6'", "latin1": r"iconv('f\u00f6', 'UTF-8', 'latin1')", "chr0": "character(0)", "null": "NULL", "date": "as.Date('2020-01-01')", "large": "strrep('x', 300000)", "function": "function() 1", "named": "c(a = 'x')", "env": "new.env()", "bytes": r"'\xff'",
}

CLOSES = {
    "default": "", "1000": "1000L, 'bye'", "double": "1000", "4000": r"4000L, '\u00e9'", "3000": "3000L", "1001": "1001L", "1011": "1011L, 'oops'", "0": "0L", "1005": "1005L", "1006": "1006L", "70000": "70000", "minus": "-1", "na": "NA", "chr": "'1000'", "text": "'abc'", "long": "1000L, strrep('r', 123)",
    "too-long": "1000L, strrep('r', 200)", "two": "c(1000L, 1001L)", "2999": "2999L", "999": "999L", "5000": "5000L", "reason-number": "1000L, 5", "reason-na": "1000L, NA", "null": "NULL",
}

# What the client sends to close, raw.
CLIENT_CLOSES = {
    "no-payload": frame(8), "1000": close_frame(1000), "reason": close_frame(1000, b"bye"), "1001": close_frame(1001), "3000": close_frame(3000), "4999": close_frame(4999, b"x"), "one-byte": frame(8, b"\x03"), "0": close_frame(0), "999": close_frame(999), "1004": close_frame(1004), "1005": close_frame(1005), "1006": close_frame(1006), "1012": close_frame(1012),
    "1015": close_frame(1015), "2000": close_frame(2000), "5000": close_frame(5000), "bad-reason": close_frame(1000, b"\xff"), "long": close_frame(1000, b"r" * 123), "too-long": close_frame(1000, b"r" * 124),
}

FRAMES = {
    "unmasked": frame(1, b"abc", mask=False), "rsv1": frame(1, b"abc", rsv=4), "rsv2": frame(1, b"abc", rsv=2), "rsv3": frame(1, b"abc", rsv=1), "opcode-3": frame(3, b"abc"), "opcode-11": frame(11, b"abc"), "orphan": frame(0, b"abc"), "orphan-part": frame(0, b"abc", fin=False),
    "interleaved": frame(1, b"a", fin=False) + frame(1, b"b"), "fragmented-ping": frame(9, b"a", fin=False), "long-ping": frame(9, b"p" * 126), "long-length-small": bytes([0x81, 0xFE, 0, 3, 0, 0, 0, 0]) + b"abc", "length-huge": frame(1, b"abc", length=2**63),
}

GOOD = {
    "two": frame(1, b"a", fin=False) + frame(0, b"b"), "three": frame(1, b"a", fin=False) + frame(0, b"b", fin=False) + frame(0, b"c"), "binary": frame(2, b"\0", fin=False) + frame(0, b"\1"), "empty-parts": frame(1, b"", fin=False) + frame(0, b"", fin=False) + frame(0, b""), "ping-between": frame(1, b"a", fin=False) + frame(9, b"p") + frame(0, b"b"),
    "split-utf8": frame(1, b"\xc3", fin=False) + frame(0, b"\xa9"), "pong-between": frame(1, b"a", fin=False) + frame(10, b"p") + frame(0, b"b"), "large-parts": frame(2, b"x" * 70000, fin=False) + frame(0, b"y" * 70000), "many-parts": frame(1, b"a", fin=False) + frame(0, b"b", fin=False) * 100 + frame(0, b"c"),
}

# Callbacks, as the body of `onWSOpen`.
CALLBACKS = {
    "two-handlers": "{ ws$onMessage(function(b, m) { note('first'); ws$send('1') }); ws$onMessage(function(b, m) { note('second'); ws$send('2') }) }", "error": "ws$onMessage(function(b, m) stop('in message'))", "error-first-of-two": "{ ws$onMessage(function(b, m) stop('in message')); ws$onMessage(function(b, m) note('second')) }",
    "warning": "ws$onMessage(function(b, m) { warning('in message'); ws$send('after') })", "message": "ws$onMessage(function(b, m) { message('told'); ws$send('after') })", "condition": "ws$onMessage(function(b, m) stop(structure(class = c('custom', 'condition'), list(message = 'mine', call = NULL))))", "abort": "ws$onMessage(function(b, m) invokeRestart('abort'))",
    "no-handler": "NULL", "closes": "ws$onMessage(function(b, m) ws$close(4001L, 'enough'))", "closes-then-sends": "ws$onMessage(function(b, m) { ws$close(4001L, 'enough'); note(is.null(ws$send('late'))); note(is.null(ws$handle)) })", "sends-three": "ws$onMessage(function(b, m) for (i in 1:3) ws$send(as.character(i)))",
    "error-in-open": "stop('in open')", "closes-in-open": "ws$close()", "value": "{ note(describe(ws$onMessage(function(b, m) 1) |> is.null())) }", "not-a-function": "ws$onMessage('text')", "one-argument": "ws$onMessage(function(b) ws$send('one'))", "named-arguments": "ws$onMessage(function(binary, message) ws$send(paste(binary, message)))", "request": "{ req <- ws$request; ws$onMessage(function(b, m) ws$send(req$PATH_INFO)) }",
    "handle": "{ note(typeof(ws$handle)); note(class(ws)); ws$onMessage(function(b, m) ws$send('x')) }", "message-encoding": "ws$onMessage(function(b, m) { note(describe(validUTF8(m))); ws$send(as.character(nchar(m, 'bytes'))) })", "later": "ws$onMessage(function(b, m) later::later(function() ws$send('later'), 0.02))", "interrupt": "ws$onMessage(function(b, m) { interrupt(); ws$send('on') })",
    "own-field": "{ note(inherits(try(ws$mine <- 1, silent = TRUE), 'try-error')) }", "returns-error": "ws$onMessage(function(b, m) list(status = 500L))", "send-value": "ws$onMessage(function(b, m) note(describe(ws$send('v'))))", "close-value": "ws$onMessage(function(b, m) note(describe(ws$close())))", "two-closes": "ws$onMessage(function(b, m) { ws$close(4001L); ws$close(4002L) })",
}

ENDS = {
    "close": lambda wire: wire.send(close_frame(1000)), "shut": lambda wire: wire.shut(), "gone": lambda wire: wire.close(), "reset": lambda wire: wire.abort(),
    "stopped": lambda wire: wire.side.ask(f"{{ stopServer(servers[['{wire.address[1]}']]); '' }}"),
}

CLOSERS = {
    "one": "ws$onClose(function() note('closed'))", "two": "{ ws$onClose(function() note('first')); ws$onClose(function() note('second')) }", "argument": "ws$onClose(function(e) note('closed', missing(e)))", "error": "ws$onClose(function() stop('in close'))", "handle": "ws$onClose(function() note('closed', is.null(ws$handle)))",
    "sends": "ws$onClose(function() note('closed', is.null(ws$send('x'))))", "none": "NULL",
}


def probes():
    """Handshakes, what either side sends, broken frames, closings, callbacks."""
    def hello(wire):
        if wire.opened:
            wire.frame(1, b"hello")
            wire.frames()
            wire.send(close_frame(1000))
        wire.end()

    for kind, lines in HANDSHAKES.items():
        def script(wire, lines=lines):
            wire.upgrade("/probe", lines=lines)
            hello(wire)
        yield connection(f"handshake/{kind}", script, "echo()")
        yield connection(f"handshake/{kind}-no-onWSOpen", script, "logged()")

    def upgraded(talk):
        def script(wire):
            if wire.upgrade("/probe?q=1", ["X-Probe: 1"]):
                talk(wire)
            wire.end()
        return script

    # The request of a WebSocket, with and without onHeaders before.
    dumped = "onWSOpen = function(ws) { events <<- c(events, dump(ws$request)); ws$send('opened') }"
    one = upgraded(lambda wire: (wire.frames(), wire.send(close_frame(1000))))
    yield connection("ws-request/plain", one, f"logged({dumped})")
    yield connection("ws-request/after-onHeaders", one, f"logged(onHeaders = function(req) {{ req$MINE <- 'set'; NULL }}, {dumped})")
    for kind, answer in {"403": "list(status = 403L, headers = list(), body = 'no')", "error": "stop('in headers')", "null": "NULL", "changes": "{ req$PATH_INFO <- '/other'; NULL }",
                         "changes-all": "{ for (name in ls(req, all.names = TRUE)) assign(name, 'changed', envir = req); NULL }", "removes": "{ rm('PATH_INFO', 'HEADERS', 'HTTP_X_PROBE', envir = req); NULL }",
                         "adds": "{ req$HTTP_MINE <- 'set'; req$CONTENT_TYPE <- 'a/b'; NULL }"}.items():
        yield connection(f"ws-onHeaders/{kind}", one, f"logged(onHeaders = function(req) {{ {answer} }}, {dumped})")
    yield connection("ws-request/static-path", one, f"logged({dumped}, staticPaths = list(`/` = DIR))")

    def posted(wire):
        wire.send(b"POST /probe HTTP/1.1\r\nHost: probe.test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n" + KEY.encode() + b"\r\n\r\n")
        wire.opened = wire.answer() and wire.record["status"][-1] == "101"
        hello(wire)

    yield connection("handshake/post", posted, "echo()")
    for family in ("tcp6", "pipe"):
        yield connection(f"ws-request/{family}", one, f"logged({dumped})", family=family)

    for kind, (opcode, payload) in MESSAGES.items():
        yield connection(f"ws-message/{kind}", upgraded(lambda wire, o=opcode, p=payload: (wire.frame(o, p), wire.frames(), wire.send(close_frame(1000)))), "echo()")
    for kind, code in SENT.items():
        app = f"logged(onWSOpen = function(ws) {{ v <- tryCatch(ws$send({code}), error = identity); note(describe(if (inherits(v, 'error')) 'error' else v)) }})"
        yield connection(f"ws-send/{kind}", upgraded(lambda wire: (wire.frames(), wire.send(close_frame(1000)))), app)
    for kind, code in CLOSES.items():
        app = f"logged(onWSOpen = function(ws) {{ tryCatch(ws$close({code}), error = function(e) note('error', class(e)[[1]])); note(is.null(ws$handle)) }})"
        yield connection(f"ws-close/{kind}", upgraded(lambda wire: (wire.frames(), wire.send(close_frame(1000)))), app)
    for kind, data in CLIENT_CLOSES.items():
        yield connection(f"ws-client-close/{kind}", upgraded(lambda wire, d=data: (wire.side.barrier(), wire.send(d), wire.frames())), "echo()", event="onClose")
    for kind, data in FRAMES.items():
        yield connection(f"ws-frame/{kind}", upgraded(lambda wire, d=data: (wire.side.barrier(), wire.send(d), wire.frames())), "echo()")
    for kind, data in GOOD.items():
        answers = 2 if kind == "ping-between" else 1
        yield connection(f"ws-fragments/{kind}", upgraded(lambda wire, d=data, n=answers: (wire.send(d), wire.frames(n), wire.send(close_frame(1000)))), "echo()")
        yield connection(f"ws-fragments/{kind}-slowly", upgraded(lambda wire, d=data, n=answers: (wire.send(d, at=(1, 3, min(7, len(d) - 1))), wire.frames(n), wire.send(close_frame(1000)))), "echo()")
    for length in (0, 1, 125):
        yield connection(f"ws-ping/{length}", upgraded(lambda wire, n=length: (wire.frame(9, b"p" * n), wire.frames(), wire.side.barrier(), wire.send(close_frame(1000)))), "echo()")
    yield connection("ws-ping/pong-unasked", upgraded(lambda wire: (wire.frame(10, b"x"), wire.frame(1, b"a"), wire.frames(), wire.send(close_frame(1000)))), "echo()")
    yield connection("ws-message/five-at-once", upgraded(lambda wire: (wire.send(b"".join(frame(1, b"%d" % i) for i in range(5))), wire.frames(5), wire.send(close_frame(1000)))), "echo()")
    for kind, code in CALLBACKS.items():
        count = {"two-handlers": 2, "sends-three": 3}.get(kind, 1)
        app = f"logged(onWSOpen = function(ws) {{ {code} }})"
        yield connection(f"ws-callback/{kind}", upgraded(lambda wire, n=count: (wire.frame(1, b"hello"), wire.frames(n), wire.send(close_frame(1000)))), app)
    for end, how in ENDS.items():
        for kind, code in CLOSERS.items():
            def script(wire, how=how):
                if wire.upgrade():
                    wire.frames()
                    how(wire)
                    if wire.socket.fileno() >= 0:
                        wire.end()
            app = f"logged(onWSOpen = function(ws) {{ {code}; ws$send('open') }})"
            expected = {"one": "closed", "argument": "closed", "handle": "closed", "sends": "closed", "two": "second", "error": "service() ended", "none": None}[kind]
            if kind != "error":
                yield connection(f"ws-end/{end}-{kind}", script, app, event=expected, alone=end == "stopped")
            elif end in ("close", "gone"):
                yield connection(f"ws-end/{end}-{kind}", script, app)

    def at_once(wire):
        wire.upgrade(also=frame(1, b"early"))
        wire.frames()
        wire.send(close_frame(1000))
        wire.end()

    yield connection("ws-message/with-the-handshake", at_once, "echo()", alone=True)

    def after_close(wire):
        wire.upgrade()
        wire.frames()
        wire.frame(1, b"after")
        wire.send(close_frame(1000))
        wire.end()

    yield connection("ws-message/after-our-close", after_close, "logged(onWSOpen = function(ws) { ws$onMessage(function(b, m) note('message', m)); ws$close() })")

    def unanswered(wire):
        wire.upgrade()
        wire.frames()
        wire.end()

    yield connection("ws-close/unanswered", unanswered, "logged(onWSOpen = function(ws) ws$close())")
    yield connection("ws-message/length-0-of-8-bytes", upgraded(lambda wire: (wire.send(bytes([0x81, 0xFF]) + struct.pack(">Q", 3) + b"\0\0\0\0abc"), wire.frames(), wire.send(close_frame(1000)))), "echo()")
