"""What the case modules expect of their protocol object, over the library's protocol of either role."""

import time
import traceback

import autobahn.websocket.protocol as protocol
from twisted.internet import reactor

from . import python2
from .cases import case_id
from .python2 import to_bytes, to_text

protocol.Utf8Validator = python2.Utf8Validator
protocol.createXorMasker = python2.XorMasker

# Lines of a case's log of frames.
WIRE_LIMIT = 60


class Fuzz:
    """A mix-in before the library's class. Names in camel case are the library's or the cases'."""

    def fuzz_init(self, session):
        self.session = session
        self.Case = self.run_case = self.agent = None
        self.connectionWasOpen = False
        self.createWirelog = True
        self.wire = []
        self.rxFrameStats, self.txFrameStats = {}, {}
        self.began = None
        self.error = None

    def fuzz_start(self, kind):
        self.Case = kind
        self.run_case = kind(self)

    # What the cases call.

    def enableWirelog(self, enable):
        self.createWirelog = enable

    def continueLater(self, delay, function, tag=None):
        self._later(delay, f"continue {tag}", function)

    def killAfter(self, delay):
        self._later(delay, "kill", self.failConnection)

    def closeAfter(self, delay):
        self._later(delay, "close", self.sendClose)

    def _later(self, delay, tag, function):
        def fire():
            if self.state != protocol.WebSocketProtocol.STATE_CLOSED:
                self._note(f"timer {tag}")
                self._guard(function)

        reactor.callLater(delay, fire)

    def _guard(self, function, *arguments):
        """An exception in a case's code ends the case as FAILED, with its text."""
        try:
            function(*arguments)
        except Exception as error:
            self._raised(error)
            self.transport.abortConnection()

    def _raised(self, error):
        self.error = self.error or f"the case raised {type(error).__name__}: {error}"
        if self.session.verbose:
            traceback.print_exc()

    # Byte strings at the wire.

    def sendFrame(self, opcode, payload=b"", fin=True, rsv=0, mask=None, payload_len=None, chopsize=None, sync=False):
        payload = to_bytes(payload)
        if payload_len is not None:
            payload = (payload * (payload_len // len(payload) + 1))[:payload_len]
        return super().sendFrame(opcode, payload=payload, fin=fin, rsv=rsv, mask=mask, chopsize=chopsize, sync=sync)

    def sendMessage(self, payload, isBinary=False, fragmentSize=None, sync=False, doNotCompress=False):
        return super().sendMessage(to_bytes(payload), isBinary, fragmentSize, sync, doNotCompress)

    def sendMessageFrameData(self, payload, sync=False):
        return super().sendMessageFrameData(to_bytes(payload), sync)

    def sendCloseFrame(self, code=None, reasonUtf8=None, isReply=False):
        return super().sendCloseFrame(code, None if reasonUtf8 is None else to_bytes(reasonUtf8), isReply)

    # What the library calls.

    def onOpen(self):
        self.connectionWasOpen = True
        if self.run_case:
            self.began = time.perf_counter()
            self._guard(self.run_case.onOpen)
        else:
            self.command()

    def onMessage(self, payload, isBinary):
        if self.run_case:
            # Sections 12 and 13 handle real bytes.
            raw = hasattr(self.run_case, "TESTDATA")
            self._guard(self.run_case.onMessage, payload if raw else to_text(payload), isBinary)

    def onPong(self, payload):
        if self.run_case:
            self._guard(self.run_case.onPong, to_text(payload))

    def onCloseFrame(self, code, reasonRaw):
        try:
            return super().onCloseFrame(code, reasonRaw)
        except UnicodeDecodeError:  # the peer's reason is not UTF-8, which the library has already counted
            self.transport.abortConnection()
            return True

    def onClose(self, wasClean, code, reason):
        if self.run_case:
            self._guard(self.run_case.onClose, wasClean, code, reason)

    def logRxOctets(self, data):
        pass

    def logTxOctets(self, data, sync):
        pass

    def logRxFrame(self, header, payload):
        self._frame("RX", self.rxFrameStats, header, b"".join(payload or []))

    def logTxFrame(self, header, payload, repeatLength, chopsize, sync):
        self._frame("TX", self.txFrameStats, header, payload)

    def _frame(self, direction, counts, header, payload):
        counts[header.opcode] = counts.get(header.opcode, 0) + 1
        bits = f"op={header.opcode} fin={header.fin} rsv={header.rsv} len={header.length}"
        self._note(f"{direction} {bits} {payload[:40].hex()}")

    def _note(self, text):
        if self.createWirelog and len(self.wire) < WIRE_LIMIT:
            at = 0.0 if self.began is None else time.perf_counter() - self.began
            self.wire.append(f"{at:8.3f} {text}")

    def finish(self):
        """The connection is gone: what the case found goes to the session."""
        case = self.run_case
        if case is None:
            return
        took = None if self.began is None else round(1000 * (time.perf_counter() - self.began), 2)
        try:
            case.onConnectionLost(self.failedByMe)
        except Exception as error:
            self._raised(error)
        if self.error:
            case.behavior, case.result = "FAILED", self.error
        found = {name: getattr(case, name) for name in ("behavior", "behaviorClose", "result", "resultClose")}
        kept = (
            "remoteCloseCode", "localCloseCode", "closedByMe", "failedByMe", "droppedByMe", "wasClean",
            "wasNotCleanReason", "rxFrameStats", "txFrameStats", "wire",
        )  # fmt: skip
        found.update({name: getattr(self, name) for name in kept})
        found.update(duration=took, opened=self.connectionWasOpen)
        found.update(description=case.DESCRIPTION, expectation=case.EXPECTATION)
        self.session.add(self.agent or "unknown", case_id(self.Case), found)
