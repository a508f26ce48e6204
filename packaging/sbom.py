"""Writes the list of what a release contains (SBOM) as CycloneDX 1.5 in JSON."""

import json
import uuid
from datetime import UTC, datetime
from pathlib import Path

import licences
from common import ROOT, epoch, version

PACKAGES = ["rookery-cli", "rookery-r"]


def reference(crate: licences.Crate) -> str:
    return f"pkg:cargo/{crate.name}@{crate.version}"


def component(crate: licences.Crate) -> dict:
    entry = {
        "type": "library",
        "bom-ref": reference(crate),
        "name": crate.name,
        "version": crate.version,
        "purl": reference(crate),
        "licenses": [{"expression": crate.licence.replace(" / ", " OR ").replace("/", " OR ")}],
    }
    if crate.authors:
        entry["author"] = ", ".join(crate.authors)
    if crate.checksum:
        entry["hashes"] = [{"alg": "SHA-256", "content": crate.checksum}]
    if crate.is_changed_copy:
        entry["pedigree"] = {"notes": "A changed copy. third-party/README.md in the source of this release describes the change."}
    if crate.repository:
        entry["externalReferences"] = [{"type": "vcs", "url": crate.repository}]
    return entry


def edges(found: list[licences.Crate], tree: Path) -> list[dict]:
    """Returns which crate depends on which, as far as both are in the list."""
    metadata = licences.metadata(tree)
    names = {package["id"]: f"pkg:cargo/{package['name']}@{package['version']}" for package in metadata["packages"]}
    wanted = {reference(crate) for crate in found}
    result = []
    for node in metadata["resolve"]["nodes"]:
        if names[node["id"]] in wanted:
            used = {names[edge["pkg"]] for edge in node["deps"] if any(kind["kind"] is None for kind in edge["dep_kinds"])}
            result.append({"ref": names[node["id"]], "dependsOn": sorted(used & wanted)})
    return sorted(result, key=lambda entry: entry["ref"])


def document(tree: Path = ROOT) -> dict:
    """Returns the SBOM of the program and of the R package's library, for all systems of the program together."""
    found = licences.crates(PACKAGES, tree=tree)
    release = version(tree)
    body = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {
            "timestamp": datetime.fromtimestamp(epoch(tree), UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "component": {
                "type": "application",
                "bom-ref": "rookery",
                "name": "rookery",
                "version": release,
                "licenses": [{"license": {"id": "MIT"}}],
            },
        },
        "components": [component(crate) for crate in found],
        "dependencies": [
            {"ref": "rookery", "dependsOn": sorted(f"pkg:cargo/{name}@{release}" for name in PACKAGES)},
            *edges(found, tree),
        ],
    }
    # The number is the same for the same content, so that the file is reproducible.
    body["serialNumber"] = f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, json.dumps(body, sort_keys=True))}"
    return body


def write(out: Path, tree: Path = ROOT) -> Path:
    path = out / f"rookery-{version(tree)}.cdx.json"
    path.write_text(json.dumps(document(tree), indent=1) + "\n")
    return path
