"""What the pure library may not do, beyond what the import contracts in pyproject.toml can say."""

import ast
import json
import subprocess
import sys
import tomllib
from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest


ROOT = Path(__file__).parents[1]
LIBRARY = ROOT / "memqos"

# Only these talk to the machine.
IMPURE = ("memqos.adapters",)

# A checked expression of the OOM policy becomes a Python function; nothing of the user's text
# reaches its source, which tests/unit/oom/expression/test_codegen.py shows.
GENERATES_CODE = {"memqos.oom.expression.codegen": {"compile", "exec"}}

FORBIDDEN_NAMES = frozenset(
    {"__import__", "breakpoint", "compile", "eval", "exec", "input", "open", "print"}
)


def module_name(path: Path) -> str:
    """Return the dotted name of a source file below the repository root."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def pure_files() -> list[Path]:
    """List the source files of the library, without its adapters."""
    return [
        path
        for path in sorted(LIBRARY.rglob("*.py"))
        if not f"{module_name(path)}.".startswith(tuple(f"{name}." for name in IMPURE))
    ]


def violations(source: str, allowed: Collection[str] = ()) -> list[str]:
    """List what a pure module may not contain, as `line: what`."""
    found = []
    forbidden = FORBIDDEN_NAMES.difference(allowed)
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Call(func=ast.Name(id=name)) if name in forbidden:
                found.append(f"{node.lineno}: calls {name}")
            case ast.arguments():
                found += [
                    f"{default.lineno}: {default.id} as a default argument"
                    for default in [*node.defaults, *node.kw_defaults]
                    if isinstance(default, ast.Name) and default.id in forbidden
                ]
            case ast.Global():
                found.append(f"{node.lineno}: global {', '.join(node.names)}")
            case _:
                pass
    return found


@pytest.mark.parametrize("path", pure_files(), ids=module_name)
def test_pure_modules_neither_read_nor_print_nor_keep_state(path: Path) -> None:
    """No pure module opens, prints, asks, evaluates text, or changes a global name."""
    allowed = GENERATES_CODE.get(module_name(path), ())

    assert violations(path.read_text(encoding="utf-8"), allowed) == []


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("open('x')", ["1: calls open"]),
        ("def f():\n    print(1)", ["2: calls print"]),
        ("def f(opener=open): ...", ["1: open as a default argument"]),
        ("def f(*, ask=input): ...", ["1: input as a default argument"]),
        ("f = lambda run=eval: run", ["1: eval as a default argument"]),
        ("def f():\n    global x, y\n    x = y = 1", ["2: global x, y"]),
        ("text.open()\nopened = 1", []),
    ],
)
def test_violations_are_seen(source: str, expected: list[str]) -> None:
    """The check above finds each thing it forbids."""
    assert violations(source) == expected


# --- the import contracts name every module ----------------------------------------------------


def contracts() -> dict[str, dict[str, Any]]:
    """Return the contracts of pyproject.toml by id."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    return {contract["id"]: contract for contract in project["tool"]["importlinter"]["contracts"]}


def library_children() -> set[str]:
    """Return the modules and packages directly below memqos."""
    names = {path.stem for path in LIBRARY.glob("*.py")} | {
        path.parent.name for path in LIBRARY.glob("*/__init__.py")
    }
    return {f"memqos.{name}" for name in names - {"__init__"}}


def test_every_module_has_a_layer() -> None:
    """A new module of memqos cannot be left out of the layers."""
    layered = {
        name.strip("() ") for layer in contracts()["layers"]["layers"] for name in layer.split("|")
    }

    assert library_children() - layered == set()


def test_every_pure_module_is_named_pure() -> None:
    """A new module of memqos is pure unless it is an adapter."""
    assert set(contracts()["pure"]["source_modules"]) == library_children() - set(IMPURE)


def test_only_the_expression_module_may_import_celpy() -> None:
    """A new module of memqos is bound by the celpy contract."""
    assert set(contracts()["celpy"]["source_modules"]) == library_children() | {"memqos_cli"}


# --- nothing touches the machine while it runs -------------------------------------------------

# Imports every pure module, then watches public functions at work. Audit events do not show
# everything (os.stat and time.time raise none), so this is a net under the checks above.
AUDITED_RUN = """
import importlib
import json
import sys

names = json.load(sys.stdin)
modules = {name: importlib.import_module(name) for name in names}

events = []
watched = ("open", "os.", "socket.", "subprocess.", "shutil.", "tempfile.", "glob.", "ctypes.")


def hook(event, args):
    if active and event.startswith(watched):
        events.append(f"{event} {args!r}")


active = False
LOAD_VECTORS
sys.addaudithook(hook)
active = True
exec(compile(RUN, "run", "exec"))
active = False
json.dump(events, sys.stdout)
"""

# Calls by public name; each is fed what it would get from a node.
RUN = """
from memqos import duration, gojson, quantity
from memqos.errors import InputError

assert quantity.parse_quantity("1.5Gi").value == 3 * 2**29
assert str(quantity.bytes_quantity(64 * 2**20)) == "64Mi"
assert duration.parse_duration("1h30m") == 5400 * 10**9
gojson.parse(b'{"policyName":"Static","checksum":1}')
for refused, text in ((quantity.parse_quantity, "1K"), (duration.parse_duration, "1"),
                      (gojson.parse, "{")):
    try:
        refused(text)
    except InputError:
        pass
    else:
        raise AssertionError(text)

from tests.support import vectors as of
from memqos.memory_manager import (checkpoint, describe, encoding, iomem, metrics, options,
                                   settings, validation)
from memqos.kubelet_config import parse_kubelet_config

for case, data in CHECKSUMS:
    loaded = [checkpoint.load(data, kubelet_minor=minor) for minor in (31, 36, 38)]
    for result in loaded:
        if isinstance(result, checkpoint.LoadedCheckpoint):
            for encode in (encoding.encode_v1, encoding.encode_v2, encoding.encode_v3):
                encode(result.content)
    settings.assume_settings(loaded[-1], kubelet_minor=38)
for case in VALIDATE:
    parts = of.settings(case), of.machine(case), of.checkpoint(case), of.image(case)
    decision = validation.validate_start(*parts)
    advice = validation.advise(*parts)
    metrics.drift_metrics(decision)
    describe.message(decision), describe.where(decision), describe.warnings(decision)
    describe.next_step(decision, advice)
    encoding.machine_state_document(decision.state_after)
    settings.settings_from_config(
        parse_kubelet_config({"memoryManagerPolicy": "Static"}), parts[1], kubelet_minor=38
    )
for case in IOMEM:
    iomem.find_image(case["iomem"])
for case in QUANTITY:
    options.resolve_tolerance({options.DRIFT_TOLERANCE: case["text"]}, gate=True, image=None)
"""

# Runs before the watch begins: the vectors are files.
LOAD_VECTORS = f"""
sys.path.append({str(ROOT)!r})
from tests.support import vectors as of
CHECKSUMS = [(case, of.checksum_bytes(case)) for case in of.vectors("checksum")]
VALIDATE, IOMEM, QUANTITY = (of.vectors(name) for name in ("validate", "iomem", "quantity"))
"""


def run_audited(run: str) -> list[str]:
    """Run `run` in a fresh interpreter and return the audit events it raised."""
    program = AUDITED_RUN.replace("RUN", repr(run)).replace("LOAD_VECTORS", LOAD_VECTORS)
    done = subprocess.run(
        [sys.executable, "-P", "-c", program],
        input=json.dumps([module_name(path) for path in pure_files()]),
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    events: list[str] = json.loads(done.stdout)
    return events


def test_public_functions_raise_no_audit_event() -> None:
    """Decisions open no file, list no folder, start no process and reach no network."""
    assert run_audited(RUN) == []


@pytest.mark.parametrize(
    ("run", "event"),
    [
        ("open('/dev/null').close()", "open"),
        ("import os; os.listdir('/')", "os.listdir"),
        ("import socket; socket.socket().close()", "socket.__new__"),
    ],
)
def test_audited_run_sees_the_machine(run: str, event: str) -> None:
    """The check above notices what it is there for."""
    assert [line.split()[0] for line in run_audited(run) if line.split()[0] == event] == [event]


# --- what an import costs ----------------------------------------------------------------------


def loaded_by(program: str) -> set[str]:
    """Run a program in a fresh interpreter and return the top-level modules it loaded."""
    report = (
        "import atexit, json, sys\n"
        "atexit.register(lambda: json.dump(sorted(sys.modules), sys.stderr))\n"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", report + program],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return {name.partition(".")[0] for name in json.loads(done.stderr)}


def test_importing_the_library_is_light() -> None:
    """`import memqos` loads neither the command line nor a heavy dependency."""
    heavy = {"celpy", "click", "jsonschema", "memqos_cli", "yaml"}

    assert loaded_by("import memqos") & heavy == set()


def test_help_is_light() -> None:
    """A command's help loads nothing that only its run needs."""
    program = (
        "import sys\n"
        "sys.argv = ['memqos', 'validate-checkpoint', '--help']\n"
        "from memqos_cli.__main__ import main\n"
        "main()\n"
    )

    assert loaded_by(program) & {"celpy", "jsonschema", "yaml"} == set()
