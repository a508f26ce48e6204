"""What the case modules take from Python 2. Their byte strings are `str` of code points 0 to 255 (Latin-1) here."""

import binascii as _binascii
import codecs
import importlib
from pathlib import Path


def to_bytes(text) -> bytes:
    return text.encode("latin-1") if isinstance(text, str) else bytes(text)


def to_text(octets) -> str:
    return octets if isinstance(octets, str) else bytes(octets).decode("latin-1")


class binascii:
    @staticmethod
    def b2a_hex(octets):
        return _binascii.b2a_hex(to_bytes(octets)).decode("ascii")

    hexlify = b2a_hex


class pkg_resources:
    @staticmethod
    def resource_filename(package, name):
        return str(Path(importlib.import_module(package).__file__).parent / name)


class Utf8Validator:
    """The library's validator at C speed; positions are not exact."""

    def __init__(self):
        self.reset()

    def reset(self):
        self._decoder = codecs.getincrementaldecoder("utf-8")("strict")
        self._total = 0

    def validate(self, octets):
        octets = to_bytes(octets)
        try:
            self._decoder.decode(octets)
        except UnicodeDecodeError:
            return False, False, 0, self._total
        self._total += len(octets)
        return True, not self._decoder.getstate()[0], len(octets), self._total


class XorMasker:
    """The library's masker, a whole buffer at a time."""

    def __init__(self, mask, length=None):
        self._mask = bytes(mask)
        self._at = 0

    def pointer(self):
        return self._at

    def reset(self):
        self._at = 0

    def process(self, data):
        size, turn = len(data), self._at & 3
        key = ((self._mask[turn:] + self._mask[:turn]) * ((size + 3) // 4))[:size]
        self._at += size
        return (int.from_bytes(data, "little") ^ int.from_bytes(key, "little")).to_bytes(size, "little")
