"""After an installation: every case loads, and what stands in for the library's validator and masker agrees with them."""

from autobahn.websocket.utf8validator import Utf8Validator as Reference

from .cases import ALL
from .python2 import Utf8Validator, XorMasker, to_bytes

CASES = 517


def main() -> None:
    assert len(ALL) == CASES, f"{len(ALL)} cases, not {CASES}"
    texts = {case: kind.PAYLOAD for case, kind in ALL.items() if isinstance(getattr(kind, "PAYLOAD", None), str)}
    for case, text in texts.items():
        octets = to_bytes(text)
        verdict = Reference().validate(octets)[:2]
        assert Utf8Validator().validate(octets)[:2] == verdict, case
        assert getattr(ALL[case], "isValid", all(verdict)) == all(verdict), case
    masker = XorMasker(b"\1\2\3\4")
    masked = masker.process(b"aaaaa") + masker.process(b"bb")
    assert masked == bytes(x ^ y for x, y in zip(b"aaaaabb", b"\1\2\3\4\1\2\3"))
    print(f"{len(ALL)} cases ready ({len(texts)} text payloads checked)")


if __name__ == "__main__":
    main()
