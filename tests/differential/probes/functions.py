"""The exported functions: their arguments, what they return for values of every type, what they print."""

from probes.base import expression

EXPORTS = (
    "httpuv:::as.staticPath decodeURI decodeURIComponent encodeURI encodeURIComponent excludeStaticPath getRNGState interrupt "
    "ipFamily listServers randomPort rawToBase64 runServer service startDaemonizedServer "
    "startPipeServer startServer staticPath staticPathOptions stopAllServers stopDaemonizedServer stopServer WebSocket"
).split()

# What outside code was seen to reach for with `:::`.
INTERNALS = (
    ".globals AppWrapper rookCall InputStream NullInputStream nullInputStream ErrorStream stdErrStream Server WebServer "
    "PipeServer logLevel log_level unsafe_ports httpuv_version normalizeStaticPaths normalizeStaticPathOptions "
    "registerServer deregisterServer"
).split()

VALUES = {
    "null": "NULL", "na": "NA", "na-chr": "NA_character_", "true": "TRUE", "int": "5L", "dbl": "1.5", "1e5": "1e5",
    "chr": '"a b/c?d#e%20"', "empty": '""', "chr0": "character(0)", "two": 'c("a", "b c")',
    "named": 'c(x = "a b", y = "c")', "list": "list()", "list-chr": 'list("a", "b c")', "raw": "as.raw(1:3)",
    "raw0": "raw(0)", "factor": 'factor(c("x y", "z"))', "utf8": r'"\u00e9"',
    "latin1": r'iconv("\u00e9", "UTF-8", "latin1")', "bytes": r'"\xe9"', "function": "function(x) 1",
    "env": "new.env()", "date": 'as.Date("2020-01-01")', "matrix": 'matrix(c("a b", "c"), 1)', "symbol": "quote(x)",
    "complex": "1+2i",
}

UNARY = ("encodeURI encodeURIComponent decodeURI decodeURIComponent rawToBase64 ipFamily staticPath httpuv:::as.staticPath "
         "stopServer stopDaemonizedServer").split()

DECODED = ["%41", "%4", "%zz", "%41%", "%2f%2F", "%23%25", "a+b", "%C3%A9", "%c3%a9", "%E9", "%", "%%41", "%3B%2C%3F",
           "%3a%40%26%3D%2b%24", "abc%", "%20%7e", "%00"]
ENCODED = ["a#b", "a%20b", ";,/?:@&=+$", "-_.!~*'()", "\\u20ac", "\\n\\t", "<>\\\"{}|^`[]", "\\U1F600"]
ADDRESSES = ["127.0.0.1", "0.0.0.0", "::", "::1", "::1%lo", "127.0.0.1%1", "localhost", ":::1", "0.0.200", "256.1.1.1",
             "fe80::1%eth0", "::ffff:1.2.3.4", "[::1]", "1.2.3.4 ", "", "::/0", "01.2.3.4", "1:2:3:4:5:6:7:8"]

OPTIONS = ["indexhtml", "fallthrough", "html_charset", "headers", "validation", "exclude"]
OPTION_VALUES = {
    "null": "NULL", "true": "TRUE", "false": "FALSE", "na": "NA", "one": "1", "chr": '"x"', "chr0": "character(0)",
    "empty": '""', "two": 'c("a", "b")', "list": "list()", "named": 'list(`X-A` = "1", b = "2")',
    "named-chr": 'c(`X-A` = "1")', "unnamed": 'list("1")', "number": "list(a = 1)",
    "comparison": r"""'\"x-y\" == \"z\"'""", "double": r"""'\"x\" != \"z\"'""",
}

# Ids with what they evaluate; the first word is the subject.
EXPRESSIONS = {
    "exports/names": 'setdiff(sort(getNamespaceExports("httpuv"), method = "radix"), c("as.staticPath", "runStaticServer"))',
    "exports/daemonized-is-start": "identical(formals(startDaemonizedServer), formals(startServer))",
    "exports/stop-daemonized-is-stop": "identical(stopDaemonizedServer, stopServer)",
    "exports/unsafe-ports": "all(c(1, 7, 22, 6000, 6667, 6697) %in% httpuv:::unsafe_ports)",
    "exports/unsafe-ports-type": "typeof(httpuv:::unsafe_ports)",
    "exports/logLevel": "httpuv:::logLevel()",
    "exports/logLevel-set": '{ old <- httpuv:::logLevel("OFF"); list(old, httpuv:::logLevel(), httpuv:::logLevel(old)) }',
    "exports/logLevel-set-visible": 'httpuv:::logLevel("ERROR")',
    "exports/logLevel-bad": 'httpuv:::logLevel("LOUD")',
    "exports/globals": '{ interrupt(); s <- startServer("127.0.0.1", PORT, list()); s$stop(); all(c("paused", "servers") %in% ls(httpuv:::.globals)) }',
    "exports/depends-version": 'packageVersion("httpuv") >= "1.5.5"',
    "exports/methods": 'sort(grep("staticPath", unclass(methods("print")), value = TRUE))',
    "exports/demos": 'sort(basename(dir(system.file("demo", package = "httpuv"), pattern = "[.]R$")))',
    "randomPort/type": "is.integer(randomPort())",
    "randomPort/range": "{ p <- randomPort(20000, 20100); p >= 20000 && p <= 20100 }",
    "randomPort/seed": "{ set.seed(7); a <- randomPort(20000, 30000, n = 1); set.seed(7); identical(a, randomPort(20000, 30000, n = 1)) }",
    "randomPort/uses-the-seed": "{ set.seed(7); randomPort(20000L, 30000L); stats::runif(1) }",
    "randomPort/none": "randomPort(6000, 6000)",
    "randomPort/n-0": "randomPort(n = 0)",
    "randomPort/reversed": "randomPort(30000, 20000)",
    "randomPort/host-bad": 'randomPort(20000, 20010, host = "nowhere")',
    "randomPort/host-6": 'is.integer(randomPort(host = "::1"))',
    "randomPort/na": "randomPort(NA)",
    "randomPort/chr": 'randomPort("a")',
    "service/default": "service(1)",
    "service/na": "service(NA)",
    "service/negative": "{ later::later(function() cat('ran\\n')); service(-1) }",
    "service/double": "service(0.5)",
    "service/chr": 'service("a")',
    "service/null": "service(NULL)",
    "service/two": "service(c(1, 2))",
    "service/zero": "{ later::later(interrupt); service(0) }",
    "service/inf": "{ later::later(interrupt); service(Inf) }",
    "service/no-argument": "{ later::later(function() NULL); service() }",
    "service/one-callback": "{ for (i in 1:3) later::later(function() cat('ran\\n')); service(50); later::loop_empty() }",
    "service/na-one-callback": "{ for (i in 1:3) later::later(function() cat('ran\\n')); service(NA); later::loop_empty() }",
    "service/error": "{ later::later(function() stop('in later')); service(50) }",
    "service/idle": "{ service(1); list(later::loop_empty(), later::next_op_secs()) }",
    "service/idle-with-server":
        "{ s <- startServer('127.0.0.1', PORT, list()); on.exit(s$stop()); service(20); list(later::loop_empty(), later::next_op_secs()) }",
    "service/temp-loop": "later::with_temp_loop({ later::later(function() cat('ran\\n')); service(10) })",
    "interrupt/value": "interrupt()",
    "interrupt/after": "{ later::later(function() { interrupt(); cat('on\\n') }); service(0) }",
    "runServer/value": "{ later::later(interrupt); runServer('127.0.0.1', PORT, list()) }",
    "runServer/stops": "{ later::later(interrupt); n <- length(listServers()); runServer('127.0.0.1', PORT, list()); length(listServers()) - n }",
    "runServer/interval": "{ later::later(interrupt); runServer('127.0.0.1', PORT, list(), interruptIntervalMs = 10) }",
    "runServer/error": "runServer('nowhere', PORT, list())",
    "getRNGState/value": "getRNGState()",
    "getRNGState/effect": "{ set.seed(3); a <- runif(1); set.seed(3); getRNGState(); identical(a, runif(1)) }",
    "getRNGState/in-later": "{ x <- NULL; set.seed(3); seed <- .Random.seed; runif(5); later::later(function() { .Random.seed <<- seed; getRNGState(); x <<- runif(1) }); service(50); x }",
    "rawToBase64/f": 'rawToBase64(charToRaw("f"))',
    "rawToBase64/fo": 'rawToBase64(charToRaw("fo"))',
    "rawToBase64/foo": 'rawToBase64(charToRaw("foo"))',
    "rawToBase64/all": "rawToBase64(as.raw(0:255))",
    "rawToBase64/long": "nchar(rawToBase64(raw(100000)))",
    "ipFamily/two": 'ipFamily(c("::1", "127.0.0.1"))',
    "encodeURI/na-among": 'encodeURI(c("a b", NA))',
    "decodeURI/encoding": r'Encoding(decodeURI(c("a", "%C3%A9", "\u00e9")))',
    "decodeURIComponent/na-among": 'decodeURIComponent(c("a%20b", NA))',
    "encodeURI/ascii": "encodeURI(rawToChar(as.raw(1:127)))",
    "encodeURIComponent/ascii": "encodeURIComponent(rawToChar(as.raw(1:127)))",
    "decodeURI/all": "decodeURI(paste0('%', sprintf('%02X', 1:127), collapse = ''))",
    "decodeURI/all-lower": "decodeURI(paste0('%', sprintf('%02x', 1:127), collapse = ''))",
    "decodeURIComponent/all": "decodeURIComponent(paste0('%', sprintf('%02x', 1:127), collapse = ''))",
    "staticPath/folder": "staticPath(DIR)",
    "staticPath/file": "staticPath(file.path(DIR, 'text.txt'))",
    "staticPath/slash-after": "staticPath(paste0(DIR, '/'))$path == DIR",
    "staticPath/dots": "staticPath(file.path(DIR, 'sub', '..'))$path == DIR",
    "staticPath/root": "staticPath('/')",
    "staticPath/relative": "staticPath('.')$path == normalizePath('.')",
    "staticPath/home": "staticPath('~')$path == normalizePath('~')",
    "staticPath/missing": "staticPath('/no/such/folder')",
    "staticPath/no-argument": "staticPath()",
    "staticPath/all-options": "staticPath(DIR, FALSE, TRUE, 'latin1', list(a = 'b'), '\"x\" == \"y\"')",
    "staticPath/format": "c(format(staticPath(DIR)))",
    "staticPath/str": "utils::capture.output(str(staticPath(DIR)))",
    "excludeStaticPath/value": "excludeStaticPath()",
    "excludeStaticPath/format": "c(format(excludeStaticPath()))",
    "as.staticPath/again": "identical(httpuv:::as.staticPath(staticPath(DIR)), staticPath(DIR))",
    "as.staticPath/chr-folder": "httpuv:::as.staticPath(DIR)",
    "staticPathOptions/default": "staticPathOptions()",
    "staticPathOptions/format": "c(format(staticPathOptions()))",
    "staticPathOptions/all": "staticPathOptions(FALSE, TRUE, 'x', c(a = '1', b = '2'), '\"a\" == \"b\"', TRUE)",
    "staticPathOptions/order": "names(staticPathOptions(headers = list(a = 'b')))",
    "staticPathOptions/validation-of-two": "staticPathOptions(validation = c('\"a\" == \"b\"', '\"c\" == \"d\"'))",
    "staticPathOptions/validation-unquoted": "staticPathOptions(validation = 'a == b')",
    "staticPathOptions/header-vector": "staticPathOptions(headers = list(a = c('x', 'y')))",
    "normalizeStaticPaths/null": "httpuv:::normalizeStaticPaths(NULL)",
    "normalizeStaticPaths/list0": "httpuv:::normalizeStaticPaths(list())",
    "normalizeStaticPaths/chr0": "httpuv:::normalizeStaticPaths(character(0))",
    "normalizeStaticPaths/keys": "names(httpuv:::normalizeStaticPaths(setNames(rep(DIR, 6), c('a', '/b', 'c/', '/', 'd//', '/e/f/'))))",
    "normalizeStaticPaths/same-keys": "names(httpuv:::normalizeStaticPaths(list(a = DIR, `/a` = DIR)))",
    "normalizeStaticPaths/unnamed": "httpuv:::normalizeStaticPaths(list(DIR))",
    "normalizeStaticPaths/partly": "httpuv:::normalizeStaticPaths(list(a = DIR, DIR))",
    "normalizeStaticPaths/number": "httpuv:::normalizeStaticPaths(list(a = 1))",
    "normalizeStaticPaths/function": "httpuv:::normalizeStaticPaths(list(a = identity))",
    "normalizeStaticPaths/string": "httpuv:::normalizeStaticPaths('a')",
    "normalizeStaticPaths/one-number": "httpuv:::normalizeStaticPaths(1)",
    "NullInputStream/read": "httpuv:::nullInputStream$read()",
    "NullInputStream/read-lines": "httpuv:::nullInputStream$read_lines()",
    "NullInputStream/rewind": "httpuv:::nullInputStream$rewind()",
    "NullInputStream/close": "httpuv:::nullInputStream$close()",
    "ErrorStream/cat": "httpuv:::stdErrStream$cat('a', 1, 'b\\n')",
    "ErrorStream/cat-sep": "httpuv:::stdErrStream$cat('a', 'b', sep = '-', fill = TRUE)",
    "ErrorStream/flush": "httpuv:::stdErrStream$flush()",
    "ErrorStream/class": "class(httpuv:::stdErrStream)",
}

# Probes of what an older httpuv does not have, with the name that tells.
LATER = {
    "exports/site-folder": ('dir(system.file("example-static-site", package = "httpuv"))', "runStaticServer"),
    "runStaticServer/arguments": ("names(formals(runStaticServer))", "runStaticServer"),
    "runStaticServer/messages":
        ("{ s <- runStaticServer(DIR, port = PORT, background = TRUE, browse = FALSE); on.exit(s$stop()); class(s) }", "runStaticServer"),
    "runStaticServer/port-0": ("runStaticServer(DIR, port = 0, background = TRUE, browse = FALSE)", "runStaticServer"),
    "runStaticServer/port-chr": ("runStaticServer(DIR, port = 'a', background = TRUE, browse = FALSE)", "runStaticServer"),
    "runStaticServer/port-two": ("runStaticServer(DIR, port = c(1, 2), background = TRUE, browse = FALSE)", "runStaticServer"),
    "runStaticServer/used": ("{ s <- startServer('127.0.0.1', PORT, list()); on.exit(s$stop()); "
                             "runStaticServer(DIR, port = PORT, background = TRUE, browse = FALSE) }", "runStaticServer"),
    "runStaticServer/no-folder": ("runStaticServer('/no/such', port = PORT, background = TRUE, browse = FALSE)", "runStaticServer"),
    "is_port_available/free": ("httpuv:::is_port_available(PORT, '127.0.0.1')", ":::is_port_available"),
}


def probes():
    """Each function with each type of value, and what tables cannot say."""
    for name in EXPORTS:
        # What the defaults come to, not how they are written.
        yield expression(f"exports/arguments-{name.split(':')[-1]}", "class(WebSocket)" if name == "WebSocket" else
                         f"lapply(formals({name}), function(x) if (is.call(x)) eval(x) else x)", needs=name.split(":")[-1])
    for name in INTERNALS:
        # Functions by their arguments, generators by what they are.
        yield expression(f"internals/{name}", f"{{ x <- httpuv:::{name}; if (is.function(x)) names(formals(x)) else "
                         "if (is.environment(x)) class(x) else typeof(x) }")
    for function in UNARY:
        for kind, value in VALUES.items():
            yield expression(f"{function.split(':')[-1]}/of-{kind}", f"{function}({value})", needs=function.split(":")[-1])
    for text in DECODED:
        for function in ("decodeURI", "decodeURIComponent"):
            yield expression(f"{function}/text-{text}", f'{function}("{text}")')
    for text in ENCODED:
        for function in ("encodeURI", "encodeURIComponent"):
            yield expression(f"{function}/text-{text}", f'{function}("{text}")')
    for address in ADDRESSES:
        yield expression(f"ipFamily/address-{address}", f'ipFamily("{address}")')
    for option in OPTIONS:
        for kind, value in OPTION_VALUES.items():
            yield expression(f"staticPathOptions/{option}-{kind}", f"staticPathOptions({option} = {value})")
            if option != "exclude":
                yield expression(f"staticPath/{option}-{kind}", f"staticPath(DIR, {option} = {value})")
    for id, code in EXPRESSIONS.items():
        # Both sides would try the same ports at the same time.
        needs = "as.staticPath" if id.startswith("as.staticPath/") else None
        yield expression(id, code, apart=id.startswith("randomPort/"), needs=needs)
    for id, (code, name) in LATER.items():
        yield expression(id, code, needs=name)
