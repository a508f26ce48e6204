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

    def test_changes_are_about_the_whole_of_both_sides(self):
        text = ENTRY + "changes.status = ['(\\d)00 -> \\1(01|02)']\n"
        for theirs, ours, is_covered in (("200", "201", True), ("300", "302", True), ("200", "301", False), ("200", "2010", False),
                                         ("200\n200", "201", False)):
            self.assertEqual(bool(self.covered(text, "line/x", {"status": (theirs, ours)})), is_covered, (theirs, ours))
        # Of an aspect that it does not name, an entry allows what it did.
        self.assertEqual(self.covered(text, "line/x", {"req": ("a", "b")}), {"req"})

    def test_a_turn_is_what_the_other_side_would_be(self):
        text = ENTRY.replace("status", "case") + "turn = 'title case'\n"
        for theirs, ours, is_covered in (("x-a\nWWW-Thing", "X-A\nWww-Thing", True), ("x-a", "x-a-", False), ("x-a\nx-b", "X-A", False),
                                         ("X_A", "X_a", True), ("X-A", "x-a", False)):
            self.assertEqual(bool(self.covered(text, "line/x", {"case": (theirs, ours)})), is_covered, (theirs, ours))

    def test_what_the_collector_says_is_no_difference(self):
        text = ENTRY.replace("status", "stderr") + "changes.stderr = [' -> ']\n"
        for theirs in ("Warning in f(x) : closing unused connection 4 ()\n", "Warning in g(x, y) :\n  closing unused connection 5 ()\n"):
            self.assertEqual(self.covered(text, "line/x", {"stderr": (theirs, "")}), {"stderr"})
        self.assertEqual(self.covered(text, "line/x", {"stderr": ("Warning in f(x) : another\n", "")}), set())

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
                           (ENTRY.replace(": status, app", ""), "no aspect"), (ENTRY + "turn = 'round'\n", "no turns"), (ENTRY + "changes.stats = ['a']\n", "no aspects"), (ENTRY.replace("reason", "because"), "needs")):
            with self.assertRaises(SystemExit) as caught:
                rules(text)
            self.assertIn(says, str(caught.exception))


class TestTheFile(unittest.TestCase):
    """What allowed.toml allows with its broadest entries, and what it does not: real differences, and foreign ones."""

    @classmethod
    def setUpClass(cls):
        cls.rules = allowed.Rules.read(os.path.join(os.path.dirname(os.path.abspath(__file__)), "allowed.toml"), "1.6.9")

    def check(self, probe, aspect, good, foreign):
        """Of the pairs (theirs, ours), the good ones are allowed and the foreign ones are not."""
        for pairs, expected in ((good, True), (foreign, False)):
            for theirs, ours in pairs:
                found = self.rules.match(probe, {aspect: (theirs, ours)})[aspect]
                self.assertEqual(bool(found), expected, (probe, aspect, theirs, ours, [entry.id for entry in found]))

    def test_stderr(self):
        panic = "thread 'rookery' panicked at crates/server/src/lib.rs:1:1:\n"
        told = "rookery: GET /probe (call): no\n"
        self.check("handler/any", "stderr", [("", told), ("Error: pipelined HTTP requests not supported.\n", "")],
                   [("", panic), ("", told + panic), ("", "Warning: stack imbalance in '.Call', 9 then 10\n"), ("", "rookery: something new\n"),
                    ("the app's own message\n", ""), ("the app's own message\n", told)])
        self.check("startServer/any", "stderr", [("createTcpServer: address already in use\n", "createTcpServer: address already in use: x\n")],
                   [("createTcpServer: address already in use\n", "createTcpServer: busy\n"), ("createTcpServer: address already in use\n", "")])

    def test_conditions(self):
        rcpp = "error Rcpp::not_compatible C++Error error condition"
        simple = "error simpleError error condition"
        self.check("encodeURI/any", "conditions", [(rcpp, simple)], [(rcpp, ""), (simple, ""), ("", simple), (simple, rcpp), ("", "warning simpleWarning")])
        self.check("encodeURI/any", "messages", [("error: Not compatible with STRSXP: [type=list].", "error: `value` must be a character vector.")],
                   [("error: Not compatible with STRSXP: [type=list].", "error: object 'value' not found"), ("error: the app's own", "error: other"),
                    ("", "warning: restarting interrupted promise evaluation"), ("error: Not compatible with STRSXP: [type=list].", "")])

    def test_names_of_headers(self):
        self.check("answer-headers/any", "case", [("x-a\nX-b", "X-A\nX-B"), ("WWW-Authenticate", "Www-Authenticate")],
                   [("x-a\nx-b", "X-A"), ("x-a", "X-A\nX-B"), ("X-A", "x-a"), ("X-A", "XA")])

    def test_reasons(self):
        self.check("status/any", "reason", [("418 Dunno", "418 I'm a teapot"), ("299 Dunno", "299 <none>")],
                   [("404 Not Found", "404 Missing"), ("200 OK", "200 <none>"), ("418 Dunno", "419 I'm a teapot"), ("418 Dunno", "418 ")])

    def test_answers(self):
        self.check("shape/any", "body", [("ERROR: $ operator is invalid for atomic vectors", "An exception occurred.")],
                   [("text", "An exception occurred."), ("ERROR: mine", ""), ("text", "")])
        self.check("shape/any", "status", [("none", "500")], [("200", "500"), ("404", "500")])
        self.check("static/any", "validators", [("", 'etag: "a-1"; accept-ranges: bytes')], [('etag: "a-1"', ""), ("", "vary: Cookie")])
        self.check("persistence/10", "version", [("HTTP/1.1", "HTTP/1.0")], [("HTTP/1.1", "HTTP/2"), ("HTTP/1.0", "HTTP/1.1")])
        self.check("ws-message/any", "rest", [("", "\\x88\\x02\\x03\\xe8")], [("", "\\x81\\x05hello"), ("", "\\x88\\x02\\x03\\xe8\\x88"), ("\\x81\\x00", "")])

    def test_marks_of_encodings(self):
        old = 'call\nchr "<c3>" (unknown), "b"'
        self.check("lines/any", "events", [(old, old.replace("unknown", "UTF-8"))],
                   [(old, 'call\nchr "<c3>" (UTF-8), "c"'), (old, "call"), (old, old.replace("unknown", "latin1"))])

    def test_what_reaches_the_app(self):
        self.check("input/any", "events", [('call\nlist(["message"] chr "x", ["call"] NULL)', 'call\nlist(["message"] chr "`n` must be one number.", ["call"] NULL)')],
                   [("call\nraw 61", "call\nraw 62"), ("call\nraw 61", "call"), ('call\nlist(["message"] chr "x")', 'call\nlist(["message"] chr "y")')])
        self.check("ws-close/any", "frames", [("close 2999 ", "close 1001 ")], [("text abc", "none"), ("close 1000 a", "close 1011 b")])

    def test_the_number_of_entries(self):
        # Few enough to be read as one table.
        self.assertLess(len(self.rules.entries), 65)


if __name__ == "__main__":
    unittest.main()
