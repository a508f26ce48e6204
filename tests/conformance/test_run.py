"""A run fails when its driver does, however, and where an earlier run left an index that would pass; and it says what to do."""

import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from judge import EXPECTED

HERE = Path(__file__).resolve().parent
# The driver's script by what is wrong with it; PASSING is an index that the judge takes.
BROKEN = {
    "no connection": "exit 2",
    "out of time": 'cp "$PASSING" "$AB_OUT/index.json"; exit 3',
    "killed": "kill -KILL $$",
    "silent": "exit 0",
    "failed early": "exit 1",
    "empty index": ': > "$AB_OUT/index.json"',
    "not as expected": 'sed s/OK/FAILED/ "$PASSING" > "$AB_OUT/index.json"; exit 1',
}


def passing() -> dict:
    """As many cases as a short run has, all as expected."""
    expected = json.loads(EXPECTED.read_text(encoding="utf-8"))
    informational = expected["informational"]
    others = [f"c{number}" for number in range(expected["cases"]["short"] - len(informational))]
    found = dict.fromkeys(informational, {"behavior": "INFORMATIONAL", "behaviorClose": "OK"})
    return {"rookery": found | dict.fromkeys(others, {"behavior": "OK", "behaviorClose": "OK"})}


class BrokenDriver(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        (self.folder / "passing.json").write_text(json.dumps(passing()), encoding="utf-8")

    def run_with(self, role: str, script: str) -> subprocess.CompletedProcess:
        index = self.folder / f"{role}-short" / "index.json"
        index.parent.mkdir(exist_ok=True)
        index.write_bytes((self.folder / "passing.json").read_bytes())
        driver = self.folder / "driver"
        driver.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
        driver.chmod(0o755)
        environment = dict(
            os.environ,
            CONFORMANCE_OUT=str(self.folder),
            CONFORMANCE_DRIVER=str(driver),
            PASSING=str(self.folder / "passing.json"),
        )
        line = [sys.executable, str(HERE / "run.py"), role, "short"]
        return subprocess.run(line, env=environment, capture_output=True, text=True, timeout=600, check=False)

    def test_a_whole_driver_passes(self):
        for role in ("server", "client"):
            done = self.run_with(role, 'cp "$PASSING" "$AB_OUT/index.json"')
            self.assertEqual(done.returncode, 0, done.stderr)

    def test_a_broken_driver_fails(self):
        for role in ("server", "client"):
            for what, script in BROKEN.items():
                with self.subTest(role=role, driver=what):
                    done = self.run_with(role, script)
                    self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
                    self.assertNotIn("Traceback", done.stderr)

    def test_what_is_missing_is_named_with_its_remedy(self):
        for remedy, changes in (
            ("python3-venv", {"PYTHON": "false"}),
            ("python3-venv", {"PYTHON": "/nowhere/python3"}),
            ("set AUTOBAHN_HOME", {"AUTOBAHN_HOME": str(HERE)}),
        ):
            with self.subTest(**changes):
                environment = {name: text for name, text in os.environ.items() if name != "CONFORMANCE_DRIVER"}
                environment.update({"AUTOBAHN_HOME": str(self.folder / "home"), **changes})
                line = [sys.executable, str(HERE / "run.py"), "server", "short"]
                done = subprocess.run(line, env=environment, capture_output=True, text=True, timeout=60, check=False)
                self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
                self.assertIn(remedy, done.stderr)
                self.assertNotIn("Traceback", done.stderr)


if __name__ == "__main__":
    unittest.main()
