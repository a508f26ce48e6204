"""Packs the program into a wheel, which pip and uv install as the command `rookery`."""

import base64
import hashlib
from pathlib import Path

import archive
from common import ROOT, File, epoch, version, zip_file
from program import Target

# The name on PyPI. Whoever publishes the first release checks that it is free.
NAME = "rookery"
METADATA = """\
Metadata-Version: 2.4
Name: {name}
Version: {version}
Summary: The program rookery, which serves Shiny apps, plumber APIs and static sites
License-Expression: MIT
License-File: LICENSE
License-File: THIRD-PARTY-LICENSES.txt
Keywords: R,shiny,plumber,web server,websocket
Classifier: Environment :: Console
Classifier: Topic :: Internet :: WWW/HTTP :: HTTP Servers
Requires-Python: >=3.8
Description-Content-Type: text/markdown

{readme}"""
WHEEL = """\
Wheel-Version: 1.0
Generator: packaging/wheel.py
Root-Is-Purelib: false
Tag: py3-none-{platform}
"""


def make(target: Target, program: Path, out: Path, tree: Path = ROOT) -> Path:
    """Writes the wheel of the target's program into the folder `out`, and returns its path."""
    release = version(tree)
    info = f"{NAME}-{release}.dist-info"
    readme = archive.readme(tree).content.decode()
    files = {f"{NAME}-{release}.data/scripts/{target.program}": File(program, is_program=True)}
    files |= {f"{info}/licenses/{name}": file for name, file in archive.legal(target, tree).items()}
    files[f"{info}/METADATA"] = File(METADATA.format(name=NAME, version=release, readme=readme))
    files[f"{info}/WHEEL"] = File(WHEEL.format(platform=target.wheel))
    # The record is the last file, and has no line with its own checksum.
    record = f"{info}/RECORD"
    lines = [f"{path},sha256={checksum(file.content)},{len(file.content)}" for path, file in files.items()]
    files[record] = File("\n".join([*lines, f"{record},,", ""]))
    path = out / f"{NAME}-{release}-py3-none-{target.wheel}.whl"
    zip_file(path, files, epoch(tree))
    return path


def checksum(content: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
