"""Kubernetes' own JSON Schemas, for the kinds that the examples use.

`tests/data/kubernetes/v1.37.json` is cut out of the strict schemas that the PyPI package
kubernetes-validate 1.37.0 (Apache-2.0) carries for Kubernetes 1.37: the kinds below, whatever they
refer to, and no descriptions. The package itself has 108 MB for 13 releases. Cut it anew with

    pip download --no-deps kubernetes-validate==1.37.0
    python tests/support/kubernetes.py kubernetes_validate-1.37.0-py3-none-any.whl
"""

import json
import re
import sys
import zipfile
from functools import cache
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator


FILE = Path(__file__).parents[1] / "data" / "kubernetes" / "v1.37.json"
KINDS = {
    "v1/Namespace": "namespace-v1.json",
    "v1/ServiceAccount": "serviceaccount-v1.json",
    "networking.k8s.io/v1/NetworkPolicy": "networkpolicy-networking-v1.json",
    "apps/v1/DaemonSet": "daemonset-apps-v1.json",
}

_FOLDER = "kubernetes_validate/kubernetes-json-schema/v1.37.0-local-strict/"
_REFERENCE = re.compile(r'"(?:/api/_definitions\.json)?#/\$defs/([^"]+)"')


@cache
def validator(kind: str) -> Draft202012Validator:
    """Return the validator of one kind, such as apps/v1/DaemonSet."""
    document = json.loads(FILE.read_text(encoding="utf-8"))
    schema = document["kinds"][kind] | {"$defs": document["$defs"]}
    Draft202012Validator.check_schema(schema)
    return Draft202012Validator(schema)


def _cut(wheel: str) -> str:
    with zipfile.ZipFile(wheel) as archive:
        definitions = json.loads(archive.read(f"{_FOLDER}_definitions.json"))["$defs"]
        kinds = {kind: json.loads(archive.read(_FOLDER + name)) for kind, name in KINDS.items()}
    kept: dict[str, Any] = {}
    todo = _REFERENCE.findall(json.dumps(kinds))
    while todo:
        name = todo.pop()
        if name not in kept:
            kept[name] = definitions[name]
            todo += _REFERENCE.findall(json.dumps(kept[name]))
    document = _without_descriptions({"kinds": kinds, "$defs": dict(sorted(kept.items()))})
    return _REFERENCE.sub(r'"#/$defs/\1"', json.dumps(document, indent=1)) + "\n"


def _without_descriptions(node: Any) -> Any:
    if isinstance(node, list):
        return [_without_descriptions(item) for item in node]
    if not isinstance(node, dict):
        return node
    dropped = {
        name
        for name, value in node.items()
        if name.startswith("x-kubernetes-")
        or name in ("$schema", "$id")
        or (name == "description" and isinstance(value, str))
    }
    return {
        name: _without_descriptions(value) for name, value in node.items() if name not in dropped
    }


if __name__ == "__main__":
    FILE.write_text(_cut(sys.argv[1]), encoding="utf-8")
