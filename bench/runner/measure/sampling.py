"""Samples of a measured server, and the share of the machine that other programs used meanwhile."""

import os

from ..machine import TICKS, proc_field, run
from ..server import Server


class OtherPrograms:
    """The share of the machine that other programs used during the samples.

    A server with two threads gets twice the time of a server with one thread on a core that another
    program uses as well. On a machine with other load, even ratios are therefore wrong.
    """

    total = others = 0.0

    def begin(self) -> None:
        self.before = self._used()

    def end(self, server_seconds: float) -> None:
        """Ends a sample. `server_seconds` is the CPU time of the server, which is a child that has not
        ended.
        """
        total, busy, own = (after - before for after, before in zip(self._used(), self.before))
        self.total += total
        self.others += max(0.0, busy - own - server_seconds)

    def share(self) -> float:
        """Returns the share since the last call."""
        share = self.others / self.total if self.total else 0.0
        self.total = self.others = 0.0
        return share

    @staticmethod
    def _used() -> tuple[float, float, float]:
        """Returns the seconds of all cores since boot, the busy seconds, and the seconds of this
        program and its children.
        """
        fields = [int(ticks) / TICKS for ticks in proc_field("/proc/stat", "cpu ").split()[:8]]
        return sum(fields), sum(fields) - fields[3] - fields[4], sum(os.times()[:4])


other_programs = OtherPrograms()


def sample(
    line: list[str], limit_s: float, server: Server | None = None, environment: dict[str, str] | None = None
) -> tuple[str, float]:
    """Returns the output of a program that is a sample or loads a server for one, and the server's CPU
    time in seconds.
    """
    other_programs.begin()
    before = server.cpu_seconds() if server else 0.0
    printed = run(line, limit_s, environment).stdout
    if server and not server.is_alive():
        raise RuntimeError("the server ended")
    spent = server.cpu_seconds() - before if server else 0.0
    other_programs.end(spent)
    return printed, spent
