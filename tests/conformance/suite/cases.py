"""The cases by id, such as 9.1.2, in the order of the ids."""

import fnmatch

from autobahntestsuite.case import Cases


def case_id(kind: type) -> str:
    return kind.__name__.removeprefix("Case").replace("_", ".")


def id_key(case: str) -> tuple[int, ...]:
    return tuple(int(number) for number in case.split("."))


ALL = {case_id(kind): kind for kind in sorted(Cases, key=lambda kind: id_key(case_id(kind)))}


def select(patterns: str, exclude: str) -> list[str]:
    """Ids and patterns such as `1 5.1 9.*`; one that stands for no case is a ValueError. 6.4 takes all below it."""

    def expand(text: str) -> set[str]:
        found = set()
        for pattern in text.replace(",", " ").split():
            hits = {
                case for case in ALL if fnmatch.fnmatchcase(case, pattern) or fnmatch.fnmatchcase(case, f"{pattern}.*")
            }
            if not hits:
                raise ValueError(f"no such case: {pattern}")
            found |= hits
        return found

    chosen = expand(patterns) - expand(exclude)
    return [case for case in ALL if case in chosen]


def description(case: str) -> str:
    return " ".join(ALL[case].DESCRIPTION.split())
