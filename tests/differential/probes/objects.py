"""Servers and WebSockets as R objects: starting, methods, the registry, stopping."""

from probes.base import expression

# A server on a free port, stopped at the end. `s` is the server.
SERVER = "s <- startServer('127.0.0.1', PORT, list(staticPaths = list(`/a` = DIR))); on.exit(s$stop(), add = TRUE); "

HOSTS = {
    "0": '"0.0.0.0"', "6": '"::1"', "6-any": '"::"', "zone": '"::1%lo"', "zone-unknown": '"::1%nowhere"', "name": '"localhost"',
    "empty": '""', "null": "NULL", "na": "NA_character_", "two": 'c("127.0.0.1", "::1")', "number": "127",
    "other-machine": '"192.0.2.1"', "docs": '"::/0"', "zone-4": '"127.0.0.1%lo"', "space": '" 127.0.0.1"',
}
PORTS = {
    "double": "PORT + 0.7", "integer": "as.integer(PORT)", "negative": "-1", "large": "70000", "chr": 'as.character(PORT)', "two": "c(PORT, PORT1)",
    "null": "NULL", "inf": "Inf", "true": "TRUE", "list": "list(PORT)", "none": "integer(0)",
}
APPS = {
    "null": "NULL", "list": "list()", "env": "new.env()", "function": "function(req) NULL", "number": "1", "chr": '"a"',
    "no-functions": "list(call = 1)", "paths-bad": "list(staticPaths = list(DIR))", "paths-number": "list(staticPaths = list(a = 1))",
    "paths-missing": "list(staticPaths = list(a = '/no/such'))", "paths-root": "list(staticPaths = list(a = '/'))",
    "paths-chr": "list(staticPaths = c(a = DIR))", "paths-string": "list(staticPaths = 'a')",
    "paths-empty": "list(staticPaths = list())", "paths-null": "list(staticPaths = NULL)",
    "options-list": "list(staticPathOptions = list(indexhtml = TRUE))", "options-good": "list(staticPathOptions = staticPathOptions())",
    "r6": "R6::R6Class('A', public = list(call = function(req) NULL))$new()",
    "refclass": "methods::setRefClass('A', methods = list(call = function(req) NULL))$new()",
    "refclass-paths": "methods::setRefClass('B', fields = list(staticPaths = 'list'), methods = list(call = function(req) NULL))$new(staticPaths = list(a = DIR))",
    "symbol": "quote(x)", "promise": "promises::promise_resolve(1)",
}

CODE = {
    "server/class": SERVER + "class(s)",
    "server/members": SERVER + "setdiff(sort(names(s), method = 'radix'), '.__enclos_env__')",
    "server/private": SERVER + "all(c('appWrapper', 'handle', 'running', 'host', 'port') %in% names(s$.__enclos_env__$private))",
    "server/handle": SERVER + "typeof(s$.__enclos_env__$private$handle)",
    "server/methods-arguments": SERVER + "lapply(list(s$stop, s$isRunning, s$setStaticPath, s$removeStaticPath, s$setStaticPathOption), function(f) names(formals(f)))",
    "server/is-running": SERVER + "s$isRunning()",
    "server/host-and-port": SERVER + "list(s$getHost(), s$getPort())",
    "server/stop-value": SERVER + "s$stop()",
    "server/stop-twice": SERVER + "{ s$stop(); s$stop() }",
    "server/stopped": SERVER + "{ s$stop(); list(s$isRunning(), s$getHost(), s$getPort(), s$getStaticPaths(), s$getStaticPathOptions()) }",
    "server/stopped-set": SERVER + "{ s$stop(); s$setStaticPath(b = DIR) }",
    "server/stopped-remove": SERVER + "{ s$stop(); s$removeStaticPath('/a') }",
    "server/stopped-option": SERVER + "{ s$stop(); s$setStaticPathOption(indexhtml = FALSE) }",
    "server/stopServer": SERVER + "stopServer(s)",
    "server/stopServer-twice": SERVER + "{ stopServer(s); stopServer(s) }",
    "server/stopServer-no-argument": "stopServer()",
    "server/again": SERVER + "{ s$stop(); t <- startServer('127.0.0.1', PORT, list()); on.exit(t$stop(), add = TRUE); t$isRunning() }",
    "server/port-in-use": SERVER + "startServer('127.0.0.1', PORT, list())",
    "server/port-in-use-quiet": SERVER + "startServer('127.0.0.1', PORT, list(), quiet = TRUE)",
    "server/port-in-use-try": SERVER + "class(try(startServer('127.0.0.1', PORT, list(), quiet = TRUE), silent = TRUE))",
    "server/port-in-use-any": SERVER + "startServer('0.0.0.0', PORT, list())",
    "server/quiet-na": "startServer('nowhere', PORT, list(), quiet = NA)",
    "server/no-app": "startServer('127.0.0.1', PORT)",
    "server/no-port": "startServer('127.0.0.1', app = list())",
    "server/clone": SERVER + "s$clone",
    "server/paths": SERVER + "s$getStaticPaths()",
    "server/paths-sorted": SERVER + "{ s$setStaticPath(z = DIR, B = DIR, b = DIR); names(s$getStaticPaths()) }",
    "server/options": SERVER + "s$getStaticPathOptions()",
    "server/set-path": SERVER + "s$setStaticPath(b = DIR)",
    "server/set-path-list": SERVER + "names(s$setStaticPath(.list = c(x = DIR)))",
    "server/set-path-both": SERVER + "names(s$setStaticPath(y = DIR, .list = list(x = DIR)))",
    "server/set-path-again": SERVER + "s$setStaticPath(a = staticPath(DIR, indexhtml = FALSE))",
    "server/set-path-none": SERVER + "names(s$setStaticPath())",
    "server/set-path-unnamed": SERVER + "s$setStaticPath(DIR)",
    "server/set-path-missing": SERVER + "s$setStaticPath(b = '/no/such')",
    "server/set-path-number": SERVER + "s$setStaticPath(b = 1)",
    "server/set-path-exclude": SERVER + "s$setStaticPath(`a/b` = excludeStaticPath())",
    "server/remove-path": SERVER + "s$removeStaticPath('/a')",
    "server/remove-path-no-slash": SERVER + "names(s$removeStaticPath('a'))",
    "server/remove-path-slash-after": SERVER + "names(s$removeStaticPath('/a/'))",
    "server/remove-path-unknown": SERVER + "names(s$removeStaticPath('/zz'))",
    "server/remove-path-two": SERVER + "names(s$removeStaticPath(c('/a', '/b')))",
    "server/remove-path-none": SERVER + "names(s$removeStaticPath(character(0)))",
    "server/remove-path-null": SERVER + "names(s$removeStaticPath(NULL))",
    "server/remove-path-number": SERVER + "names(s$removeStaticPath(1))",
    "server/set-option": SERVER + "s$setStaticPathOption(indexhtml = FALSE)",
    "server/set-option-list": SERVER + "s$setStaticPathOption(.list = list(fallthrough = TRUE))",
    "server/set-option-twice": SERVER + "s$setStaticPathOption(fallthrough = TRUE, .list = list(fallthrough = FALSE))$fallthrough",
    "server/set-option-null": SERVER + "s$setStaticPathOption(fallthrough = NULL)$fallthrough",
    "server/set-option-unknown": SERVER + "s$setStaticPathOption(foo = 1)",
    "server/set-option-unnamed": SERVER + "s$setStaticPathOption(TRUE)",
    "server/set-option-headers": SERVER + "s$setStaticPathOption(headers = list(`X-A` = 'b'))$headers",
    "server/set-option-validation": SERVER + "s$setStaticPathOption(validation = '\"x\" == \"y\"')$validation",
    "server/set-option-validation-bad": SERVER + "s$setStaticPathOption(validation = 'x')",
    "server/set-option-headers-bad": SERVER + "s$setStaticPathOption(headers = list('b'))",
    "server/set-option-none": SERVER + "class(s$setStaticPathOption())",
    "server/collected": "{ startServer('127.0.0.1', PORT, list()); gc(); n <- length(listServers()); stopAllServers(); n > 0 }",
    "server/in-with-loop": "later::with_temp_loop({ s <- startServer('127.0.0.1', PORT, list()); on.exit(s$stop()); s$isRunning() })",
    "registry/lengths": "{ n <- length(listServers()); a <- startServer('127.0.0.1', PORT, list()); b <- startServer('127.0.0.1', PORT1, list()); "
                        "x <- length(listServers()) - n; a$stop(); y <- length(listServers()) - n; b$stop(); c(x, y, length(listServers()) - n) }",
    "registry/order": "{ a <- startServer('127.0.0.1', PORT, list()); b <- startServer('127.0.0.1', PORT1, list()); on.exit({ a$stop(); b$stop() }); "
                      "l <- listServers(); n <- length(l); c(identical(l[[n - 1]], a), identical(l[[n]], b)) }",
    "registry/type": "class(listServers())",
    "registry/missing": SERVER + "httpuv:::deregisterServer(structure(new.env(), class = 'Server'))",
    "daemonized/class": "{ s <- startDaemonizedServer('127.0.0.1', PORT, list()); on.exit(stopDaemonizedServer(s)); class(s) }",
    "daemonized/stop": "{ s <- startDaemonizedServer('127.0.0.1', PORT, list()); stopDaemonizedServer(s); s$isRunning() }",
    "subclass/initialize": "{ A <- R6::R6Class('A', inherit = httpuv:::WebServer, public = list(initialize = function(p) super$initialize('127.0.0.1', p, list()), "
                           "env = function() is.environment(private$appWrapper$.__enclos_env__$private$wsconns))); s <- A$new(PORT); on.exit(s$stop()); list(class(s), s$env()) }",
    "pipe/class": "{ s <- startPipeServer(tempfile(), NULL, list()); class(s) }",
    "pipe/name": "{ p <- tempfile(); s <- startPipeServer(p, NULL, list()); s$getName() == normalizePath(p) }",
    "pipe/mask-null": "startPipeServer(tempfile(), NULL, list())$getMask()",
    "pipe/mask": "{ p <- tempfile(); s <- startPipeServer(p, strtoi('117', 8), list()); list(s$getMask(), as.character(file.info(p)$mode)) }",
    "pipe/mask-077": "{ p <- tempfile(); s <- startPipeServer(p, strtoi('077', 8), list()); as.character(file.info(p)$mode) }",
    "pipe/umask-after": "{ before <- Sys.umask(NA); startPipeServer(tempfile(), 63L, list()); identical(before, Sys.umask(NA)) }",
    "pipe/socket": "{ p <- tempfile(); startPipeServer(p, NULL, list()); file.exists(p) }",
    "pipe/running": "startPipeServer(tempfile(), NULL, list())$isRunning()",
    "pipe/registry": "{ n <- length(listServers()); s <- startPipeServer(tempfile(), NULL, list()); m <- length(listServers()) - n; s$stop(); m }",
    "pipe/stop": "{ p <- tempfile(); s <- startPipeServer(p, NULL, list()); s$stop(); file.exists(p) }",
    "pipe/paths": "{ s <- startPipeServer(tempfile(), NULL, list(staticPaths = list(a = DIR))); names(s$getStaticPaths()) }",
    "pipe/in-use": "{ p <- file.path(TMP, 'in-use'); on.exit(unlink(p)); s <- startPipeServer(p, NULL, list()); tryCatch(startPipeServer(p, NULL, list()), finally = s$stop()) }",
    "pipe/a-file-is-there": "{ p <- file.path(TMP, 'a-file'); writeLines('x', p); on.exit(unlink(p)); startPipeServer(p, NULL, list()) }",
    "pipe/a-file-is-there-quiet": "{ p <- file.path(TMP, 'a-file'); writeLines('x', p); on.exit(unlink(p)); startPipeServer(p, NULL, list(), quiet = TRUE) }",
    "pipe/no-folder": "startPipeServer('/no/such/folder/pipe', NULL, list())",
    "pipe/name-number": "startPipeServer(1, NULL, list())",
    "pipe/name-null": "startPipeServer(NULL, NULL, list())",
    "pipe/mask-chr": "startPipeServer(tempfile(), 'a', list())",
    "websocket/class": "class(WebSocket$new(NULL, NULL))",
    "websocket/members": "setdiff(sort(names(WebSocket$new(NULL, NULL)), method = 'radix'), '.__enclos_env__')",
    "websocket/send-closed": "WebSocket$new(NULL, NULL)$send('a')",
    "websocket/close-closed": "WebSocket$new(NULL, NULL)$close()",
    "websocket/on-message": "{ w <- WebSocket$new(NULL, NULL); w$onMessage(function(b, m) 1); w$onMessage(identity); length(w$messageCallbacks) }",
    "websocket/on-close": "{ w <- WebSocket$new(NULL, NULL); w$onClose(function() 1); length(w$closeCallbacks) }",
    "websocket/clone": "class(WebSocket$new(NULL, NULL)$clone())",
    "websocket/methods-arguments": "{ w <- WebSocket$new(NULL, NULL); lapply(list(w$send, w$close, w$onMessage, w$onClose), function(f) lapply(formals(f), identity)) }",
    "rookCall/ok": "httpuv:::rookCall(function(req) list(status = 200L, headers = list(), body = 'a'), new.env(parent = emptyenv()))",
    "rookCall/error": "httpuv:::rookCall(function(req) stop('no'), new.env(parent = emptyenv()))",
    "rookCall/null": "httpuv:::rookCall(function(req) NULL, new.env(parent = emptyenv()))",
    "rookCall/not-a-function": "httpuv:::rookCall(NULL, new.env(parent = emptyenv()))",
    "rookCall/text": "httpuv:::rookCall(function(req) 'a', new.env(parent = emptyenv()))",
    "rookCall/with-body": "{ f <- file(open = 'w+b'); on.exit(close(f)); writeBin(charToRaw('abc'), f); "
                          "httpuv:::rookCall(function(req) list(status = 200L, headers = list(), body = rawToChar(req$rook.input$read())), new.env(parent = emptyenv()), f, 3) }",
}


def probes():
    """Hosts, ports, apps and methods."""
    for kind, host in HOSTS.items():
        yield expression(f"startServer/host-{kind}", f"{{ s <- startServer({host}, PORT, list()); on.exit(s$stop()); list(s$getHost(), s$getPort()) }}")
    for kind, port in PORTS.items():
        yield expression(f"startServer/port-{kind}",
                         f"{{ s <- startServer('127.0.0.1', {port}, list()); on.exit(s$stop()); s$getPort() }}", apart=True)
    yield expression("startServer/port-0", "{ s <- startServer('127.0.0.1', 0, list()); on.exit(s$stop()); s$getPort() > 0 }")
    yield expression("startServer/port-na", "{ s <- startServer('127.0.0.1', NA, list()); on.exit(s$stop()); is.na(s$getPort()) }")
    for kind, app in APPS.items():
        yield expression(f"startServer/app-{kind}",
                         f"{{ s <- startServer('127.0.0.1', PORT, {app}); on.exit(s$stop()); names(s$getStaticPaths()) }}")
    for id, code in CODE.items():
        yield expression(id, f"{{ {code} }}" if code.startswith("s <-") else code)
