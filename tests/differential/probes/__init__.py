"""All probes, by subject. Most are made by tables."""

from probes import apps, bodies, connections, functions, headers, objects, requests, responses, static, websockets

SUBJECTS = (functions, objects, apps, requests, headers, bodies, responses, static, connections, websockets)


def every():
    """All probes; each has an id of its own."""
    found = [probe for subject in SUBJECTS for probe in subject.probes()]
    ids = [probe.id for probe in found]
    twice = {id for id in ids if ids.count(id) > 1}
    assert not twice, f"probes with the same id: {sorted(twice)}"
    return found
