"""One run of the suite: its options, what the cases found, and how it ends."""

import json
import os
import sys
import time
from collections import Counter
from pathlib import Path

from twisted.internet import reactor

from .cases import id_key

GOOD = ("OK", "INFORMATIONAL")
# Failed cases that the summary shows; index.json has all of them.
SHOWN = 40


class Session:
    def __init__(self, planned: list[str]):
        self.planned = planned
        self.folder = os.environ.get("AB_OUT", "")
        self.verbose = os.environ.get("AB_VERBOSE", "0") != "0"
        self.agent = os.environ.get("AB_AGENT")
        self.options = json.loads(os.environ.get("AB_OPTIONS", "{}"))
        self.limit_s = float(os.environ.get("AB_TIMEOUT", "3600"))
        # Agent, case, what was found.
        self.agents: dict[str, dict[str, dict]] = {}
        self.status: int | None = None
        self.note = ""
        self._began = time.monotonic()
        self._section = None
        self._waiting: dict[tuple[str, str], list] = {}

    def run(self) -> int:
        reactor.callLater(self.limit_s, self.stop, 3, f"the limit of {self.limit_s:g} s is reached (AB_TIMEOUT)")
        reactor.run()
        self._write()
        # Nobody said so: interrupted.
        status = 3 if self.status is None else self.status
        if status == 0 and (not self.agents or self._failed() or self._left_out()):
            status = 1
        self._summary()
        print(f"result: {'PASS' if status == 0 else f'FAIL (exit status {status})'}")
        return status

    def stop(self, status: int, note: str = "") -> None:
        """The first call decides."""
        if self.status is None:
            self.status, self.note = status, note
            if reactor.running:
                reactor.stop()

    def add(self, agent: str, case: str, result: dict) -> None:
        self.agents.setdefault(agent, {})[case] = result
        if self.verbose:
            found = f"{result['behavior']} / {result['behaviorClose']}"
            print(f"{case:8} {found:30} {result['duration']} ms  {result['result']}", file=sys.stderr)
        elif self._section != (agent, section(case)):
            self._section = (agent, section(case))
            print(f"{time.monotonic() - self._began:7.1f} s  {agent}: section {section(case)}", file=sys.stderr)
        for call in self._waiting.pop((agent, case), []):
            call(result)

    def get(self, agent: str, case: str, call) -> None:
        """Calls with what the case found, now or once it ends."""
        result = self.agents.get(agent, {}).get(case)
        if result is None:
            self._waiting.setdefault((agent, case), []).append(call)
        else:
            call(result)

    def _write(self) -> None:
        if self.folder:
            folder = Path(self.folder)
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "index.json").write_text(json.dumps(self.agents, indent=1, default=str), encoding="utf-8")

    def _failed(self) -> bool:
        results = [result for cases in self.agents.values() for result in cases.values()]
        return any("FAILED" in (result["behavior"], result["behaviorClose"]) for result in results)

    def _left_out(self) -> bool:
        return any(len(cases) < len(self.planned) for cases in self.agents.values())

    def _summary(self) -> None:
        for agent, cases in self.agents.items():
            cases = {case: cases[case] for case in sorted(cases, key=id_key)}
            print(f"agent: {agent}")
            print(f"cases: {len(cases)} run of {len(self.planned)} selected, {time.monotonic() - self._began:.1f} s")
            for what in ("behavior", "behaviorClose"):
                counts = Counter(result[what] for result in cases.values())
                print(f"{what}: " + ", ".join(f"{name}={count}" for name, count in sorted(counts.items())))
            print(f"\n{'section':8} {'cases':>5}  not OK  seconds")
            for name in dict.fromkeys(map(section, cases)):
                inside = [result for case, result in cases.items() if section(case) == name]
                bad = sum(1 for result in inside if result["behavior"] != "OK")
                took = sum(result["duration"] or 0 for result in inside) / 1000
                print(f"{name:8} {len(inside):5}  {bad:6}  {took:7.2f}")
            print()
            for what in ("behavior", "behaviorClose"):
                for found in sorted({result[what] for result in cases.values()} - {"OK"}):
                    print(f"{what} {found}: " + " ".join(case for case in cases if cases[case][what] == found))
            failed = [case for case in cases if "FAILED" in (cases[case]["behavior"], cases[case]["behaviorClose"])]
            for case in failed[: None if self.verbose else SHOWN]:
                result = cases[case]
                closed = f"close: {result['resultClose']} (remote code {result['remoteCloseCode']})"
                print(f"FAILED {case}: {result['result']} | {closed}")
                for line in result["wire"] if self.verbose else ():
                    print(f"      {line}")
        for note in (self.note, "not all selected cases were run" if self._left_out() else ""):
            if note:
                print(f"NOTE: {note}")
        sys.stdout.flush()


def section(case: str) -> str:
    parts = case.split(".")
    return parts[0] if parts[0] in ("2", "3", "5", "10") else ".".join(parts[:2])
