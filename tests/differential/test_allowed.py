"""What allowed.toml may say, and which differences it allows.

    python3 -m unittest discover -s tests/differential
"""

import os
import tempfile
import unittest

import allowed

ENTRY = """
[[difference]]
id = "one"
section = "Requests"
what = "a"
rookery = "b"
reason = "c"
probes = ["line/*: status, app"]
"""


def rules(text, version="1.6.9"):
    """The rules of a file with this text."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "allowed.toml")
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        return allowed.Rules.read(path, version)


class Test(unittest.TestCase):
    """The rules."""

    def covered(self, text, probe, differences):
        """The aspects that are allowed to differ."""
        return {aspect for aspect, entries in rules(text).match(probe, differences).items() if entries}

    def test_an_entry_is_about_its_probes_and_aspects(self):
        differences = {"status": ("200", "400"), "req": ("x", ""), "body": ("a", "b")}
        self.assertEqual(self.covered(ENTRY, "line/two-spaces", differences), {"status", "req"})
        self.assertEqual(self.covered(ENTRY, "header/one", differences), set())

    def test_an_expression_is_about_its_side(self):
        text = ENTRY + "theirs = '^200$'\nours = '^4'\n"
        self.assertEqual(self.covered(text, "line/x", {"status": ("200", "400")}), {"status"})
        self.assertEqual(self.covered(text, "line/x", {"status": ("404", "400")}), set())
        self.assertEqual(self.covered(text, "line/x", {"status": ("200", "500")}), set())

    def test_an_aspect_decides_for_the_others(self):
        text = ENTRY + "aspect = 'status'\nours = '^400$'\n"
        self.assertEqual(self.covered(text, "line/x", {"status": ("200", "400"), "req": ("x", "")}), {"status", "req"})
        self.assertEqual(self.covered(text, "line/x", {"req": ("x", "")}), set())

    def test_an_entry_that_nobody_shows_is_told(self):
        one = rules(ENTRY)
        self.assertEqual(one.idle(), ["one"])
        one.hit(one.entries)
        self.assertEqual(one.idle(), [])

    def test_versions_decide_what_has_to_be_shown(self):
        for lines, version, idle in (('since = "1.6.10"', "1.6.9", []), ('since = "1.6.10"', "1.6.10", ["one"]),
                                     ('until = "1.6.16"', "1.6.15", ["one"]), ('until = "1.6.16"', "1.6.16", [])):
            self.assertEqual(rules(ENTRY + lines, version).idle(), idle, (lines, version))

    def test_what_is_wrong_with_the_file_is_told(self):
        for text, says in ((ENTRY + ENTRY, "twice"), (ENTRY + "more = 1\n", "needs"), (ENTRY.replace("status", "stats"), "no aspects"),
                           (ENTRY.replace(": status, app", ""), "no aspect"), (ENTRY.replace("reason", "because"), "needs")):
            with self.assertRaises(SystemExit) as caught:
                rules(text)
            self.assertIn(says, str(caught.exception))


if __name__ == "__main__":
    unittest.main()
