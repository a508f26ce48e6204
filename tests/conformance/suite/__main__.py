"""Plays Autobahn's cases.

  python -m suite client URL  [cases] [exclude]                  against a server that echoes
  python -m suite server      [cases] [exclude] -- COMMAND ...   against a client, which gets the address in AB_URL
  python -m suite list        [cases] [exclude]

cases, exclude: ids or patterns such as "1 5.1 9.*"; a prefix takes all below it.
Environment: AB_OUT (folder for index.json), AB_TIMEOUT (seconds in all, 3600), AB_VERBOSE=1 (each case, and the frames of
failed ones), AB_AGENT (a name), AB_OPTIONS (JSON, the tester's protocol options, e.g. '{"closeHandshakeTimeout": 5}').
Exit status: 0 nothing FAILED, 1 something FAILED or was not run, 2 wrong arguments or no connection, 3 the time was up.
"""

import sys

from twisted.python import log

from . import client, server
from .cases import ALL, description, select
from .session import Session


def main(arguments: list[str]) -> int:
    at = arguments.index("--") if "--" in arguments else len(arguments)
    (mode, *rest), command = arguments[:at] or [""], arguments[at + 1 :]
    url = rest.pop(0) if mode == "client" and rest else ""
    right = {"client": url.startswith("ws://"), "server": bool(command), "list": True}
    if not right.get(mode) or len(rest) > 2:
        print(__doc__, file=sys.stderr)
        return 2
    patterns, exclude = rest + ["*", ""][len(rest) :]
    try:
        cases = select(patterns, exclude)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    if mode == "list":
        for position, case in enumerate(cases, 1):
            print(f"{position:4} {case:8} {description(case)[:120]}")
        print(f"{len(cases)} of {len(ALL)} cases")
        return 0
    session = Session(cases)
    if session.verbose:
        log.startLogging(sys.stderr, setStdout=False)
    return client.play(session, url) if mode == "client" else server.play(session, command)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
