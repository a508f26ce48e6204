"""The fuzzing client: one connection a case to a server that echoes."""

from autobahn.twisted.websocket import WebSocketClientFactory, WebSocketClientProtocol
from twisted.internet import protocol, reactor

from .cases import ALL
from .fuzz import Fuzz
from .session import Session

# Refused connections in a row, a quarter of a second apart, until the run ends.
REFUSALS = 20


class ClientProtocol(Fuzz, WebSocketClientProtocol):
    def __init__(self, factory, case):
        WebSocketClientProtocol.__init__(self)
        self.factory = factory
        self.fuzz_init(factory.session)
        self.fuzz_start(ALL[case])

    def onConnect(self, response):
        self.factory.agent = self.session.agent or response.headers.get("server", self.factory.url)

    def connectionLost(self, reason=protocol.connectionDone):
        WebSocketClientProtocol.connectionLost(self, reason)
        self.agent = self.factory.agent
        self.finish()
        reactor.callLater(0, self.factory.next)


class ClientFactory(WebSocketClientFactory):
    noisy = False

    def __init__(self, session: Session, url: str):
        WebSocketClientFactory.__init__(self)
        self.setSessionParameters(url=url, useragent="autobahn-cases")
        self.setProtocolOptions(failByDrop=False, **session.options)
        self.logFrames = True
        self.session = session
        self.agent = session.agent or url
        self.todo = list(session.planned)
        self.refused = 0
        self.current = None

    def next(self):
        if self.session.status is not None:
            return
        if not self.todo:
            self.session.stop(0)
            return
        self.current = self.todo.pop(0)
        reactor.connectTCP(self.host, self.port, self, timeout=10)

    def buildProtocol(self, addr):
        self.refused = 0
        return ClientProtocol(self, self.current)

    def clientConnectionFailed(self, connector, reason):
        self.refused += 1
        if self.refused > REFUSALS:
            text = f"cannot connect to {self.url} before case {self.current}: {reason.getErrorMessage()}"
            self.session.stop(2, text)
            return
        self.todo.insert(0, self.current)
        reactor.callLater(0.25, self.next)


def play(session: Session, url: str) -> int:
    reactor.callWhenRunning(ClientFactory(session, url).next)
    return session.run()
