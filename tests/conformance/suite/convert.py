"""Converts the case modules to Python 3: convert.py UNPACKED/autobahntestsuite TARGET/autobahntestsuite

They are read as Latin-1, so that the UTF-8 literals of section 6.2 become the octets that they were; suite/fuzz.py encodes
at the wire.
"""

import re
import shutil
import sys
import warnings
from pathlib import Path

warnings.simplefilter("ignore")
try:
    from lib2to3 import refactor
except ImportError:  # Python 3.13
    from fissix import refactor

FIXERS = (
    "print", "xrange", "has_key", "import", "except", "raise", "dict", "unicode", "long", "numliterals", "ne", "repr",
    "tuple_params", "basestring",
)  # fmt: skip

# (file name, expression, what takes its place, whether it has to be there)
SUBSTITUTIONS = (
    (r".*", r"(?m)^#.*coding[:=].*$", "", False),
    # The two library modules that the cases use with byte strings.
    (r".*", r"(?m)^import binascii$", "from suite.python2 import binascii", False),
    (r"case12_x_x", r"(?m)^import copy, os, pkg_resources, hashlib, binascii$",
     "import copy, os, hashlib\nfrom suite.python2 import binascii, pkg_resources", True),
    (r"case6_x_x", r"from autobahn\.websocket\.utf8validator import", "from suite.python2 import", True),
    # Pickles differ by the identity of what is in them.
    (r"case", r"pickle\.dumps\(obj1\) == pickle\.dumps\(obj2\)", "obj1 == obj2", True),
    # The order of resolution wants the old-style base class alone.
    (r"case\w+", r"\(object, Case, ?\)", "(Case,)", False),
    (r"case10_1_1", r"len\(self\.payload\) / ", "len(self.payload) // ", True),
    (r"__init__", r"(?m)^from \.?case9_9_1 import \*$", "", True),
)  # fmt: skip
# No list of cases has it, and its style of decorator is gone.
LEFT_OUT = "case9_9_1.py"


def convert(source: Path, target: Path) -> int:
    tool = refactor.RefactoringTool([f"{refactor.__package__}.fixes.fix_{name}" for name in FIXERS])
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(source / "testdata", target / "testdata")
    (target / "__init__.py").touch()
    (target / "case").mkdir()
    modules = [path for path in sorted((source / "case").glob("*.py")) if path.name != LEFT_OUT]
    for path in modules:
        text = path.read_bytes().decode("latin-1").replace("\r\n", "\n")
        text += "" if text.endswith("\n") else "\n"
        for name, expression, instead, needed in SUBSTITUTIONS:
            if re.fullmatch(name, path.stem):
                text, hits = re.subn(expression, lambda _, instead=instead: instead, text)
                if needed and not hits:
                    sys.exit(f"convert: {path.name} lacks the text that is replaced: {expression}")
        # The fixer of imports looks for files beside the name that it is given.
        text = str(tool.refactor_string(text, str(path)))
        compile(text, path.name, "exec")
        (target / "case" / path.name).write_text(text, encoding="utf-8")
    return len(modules)


if __name__ == "__main__":
    print(f"converted {convert(Path(sys.argv[1]), Path(sys.argv[2]))} case modules")
