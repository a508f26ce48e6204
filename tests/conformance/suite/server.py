"""The fuzzing server on 127.0.0.1, for a client that echoes. Its paths are Autobahn's:

/getCaseCount                               the number of cases N as text
/runCase?case=1..N&agent=NAME               a case (or casetuple=5.1); the client echoes until the connection closes
/getCaseInfo?case=I, /getCaseStatus?case=I&agent=NAME     JSON
/updateReports                              nothing more: the reports are written when the client's program ends
"""

import json
import os
import signal
import sys

from autobahn.twisted.websocket import WebSocketServerFactory, WebSocketServerProtocol
from autobahn.websocket.http import HttpException
from twisted.internet import protocol, reactor

from .cases import ALL, description
from .fuzz import Fuzz
from .session import Session

COMMANDS = ("/getCaseInfo", "/getCaseStatus", "/getCaseCount", "/updateReports")


class ServerProtocol(Fuzz, WebSocketServerProtocol):
    def connectionMade(self):
        WebSocketServerProtocol.connectionMade(self)
        self.fuzz_init(self.factory.session)

    def onConnect(self, request):
        def one(name):
            values = request.params.get(name, [])
            if len(values) > 1:
                raise HttpException(400, f"more than one {name}")
            return values[0].strip() if values else None

        cases = self.session.planned
        self.path, self.agent, self.case = request.path, one("agent"), one("casetuple")
        number = one("case")
        if number is not None:
            known = number.isdigit() and 1 <= int(number) <= len(cases)
            self.case = cases[int(number) - 1] if known else number
        if self.case is not None and self.case not in cases:
            raise HttpException(400, "no such case")
        if self.path == "/runCase":
            if self.case is None or not self.agent:
                raise HttpException(400, "case and agent are needed")
            self.fuzz_start(ALL[self.case])
        elif self.path in ("/getCaseInfo", "/getCaseStatus") and self.case is None:
            raise HttpException(400, "case is needed")
        elif self.path not in COMMANDS:
            raise HttpException(404, "no such path")

    def command(self):
        def reply(answer):
            self.sendMessage(json.dumps(answer))
            self.sendClose()

        if self.path == "/getCaseCount":
            reply(len(self.session.planned))
        elif self.path == "/getCaseInfo":
            reply({"id": self.case, "description": description(self.case)})
        elif self.path == "/getCaseStatus":
            self.session.get(self.agent, self.case, lambda result: reply({"behavior": result["behavior"]}))
        else:
            self.sendClose()

    def connectionLost(self, reason=protocol.connectionDone):
        WebSocketServerProtocol.connectionLost(self, reason)
        self.finish()


class ServerFactory(WebSocketServerFactory):
    protocol = ServerProtocol
    noisy = False

    def __init__(self, session: Session):
        WebSocketServerFactory.__init__(self)
        self.setProtocolOptions(failByDrop=False, **session.options)
        self.logFrames = True
        self.session = session


class Child(protocol.ProcessProtocol):
    def __init__(self, session: Session):
        self.session = session

    def processEnded(self, reason):
        status = getattr(reason.value, "exitCode", None)
        note = f"the client's program ended with status {status}" if status else ""
        # What it sent last is still to be read.
        reactor.callLater(0.5, self.session.stop, 0, note)


def play(session: Session, command: list[str]) -> int:
    """A server on a free port, and `command` with its address in AB_URL; the run ends when that does."""
    factory = ServerFactory(session)
    url = f"ws://127.0.0.1:{reactor.listenTCP(0, factory, interface='127.0.0.1').getHost().port}"
    factory.setSessionParameters(url=url, server="autobahn-cases")
    print(f"fuzzing server on {url}, {len(session.planned)} cases", file=sys.stderr)
    # In a process group of its own, to end all of it.
    spawned = reactor.spawnProcess(
        Child(session), "setsid", ["setsid", *command], env=dict(os.environ, AB_URL=url), childFDs={0: 0, 1: 1, 2: 2}
    )

    def reap():
        try:
            os.killpg(spawned.pid, signal.SIGKILL)
        except (OSError, TypeError):  # it has ended already
            pass

    reactor.addSystemEventTrigger("before", "shutdown", reap)
    return session.run()
