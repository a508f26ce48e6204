"""Samples of a measured server, and how much of the machine other programs used while they were taken."""

import os

from ..machine import TICKS, proc_field, run
from ..server import Server


class OtherPrograms:
    """How much of the machine other programs used while samples were taken.

    A server with two threads gets twice the time of one with one thread on a core that it shares with a stranger, so on
    a machine that is not quiet even ratios are off.
    """

    total = others = 0.0

    def begin(self) -> None:
        self.before = self._used()

    def end(self, server_seconds: float) -> None:
        """`server_seconds`: what the measured server spent, which is no child that has ended."""
        total, busy, own = (after - before for after, before in zip(self._used(), self.before))
        self.total += total
        self.others += max(0.0, busy - own - server_seconds)

    def share(self) -> float:
        """Of all that was sampled since this was asked last."""
        share = self.others / self.total if self.total else 0.0
        self.total = self.others = 0.0
        return share

    @staticmethod
    def _used() -> tuple[float, float, float]:
        """Seconds of all cores since they started, those that they worked, and those of this program and its children."""
        fields = [int(ticks) / TICKS for ticks in proc_field("/proc/stat", "cpu ").split()[:8]]
        return sum(fields), sum(fields) - fields[3] - fields[4], sum(os.times()[:4])


other_programs = OtherPrograms()


def sample(
    line: list[str], limit_s: float, server: Server | None = None, environment: dict[str, str] | None = None
) -> tuple[str, float]:
    """What a program prints that is a sample, or loads a server for one, and the seconds that the server spent meanwhile."""
    other_programs.begin()
    before = server.cpu_seconds() if server else 0.0
    printed = run(line, limit_s, environment).stdout
    if server and not server.is_alive():
        raise RuntimeError("the server ended")
    spent = server.cpu_seconds() - before if server else 0.0
    other_programs.end(spent)
    return printed, spent
