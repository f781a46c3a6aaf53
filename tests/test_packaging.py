"""What the wheel holds, and what an installed memqos can and cannot import."""

import json
import subprocess
import sys
import zipfile
from importlib.metadata import PathDistribution
from pathlib import Path

import pytest

import memqos


ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the wheel once, with the hatchling at hand, so without a network."""
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-index"]
    command += ["--no-build-isolation", "--wheel-dir", str(folder), str(ROOT)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def names(wheel: Path) -> frozenset[str]:
    """List the files in the wheel."""
    with zipfile.ZipFile(wheel) as archive:
        return frozenset(archive.namelist())


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Unpack the wheel as pip does for a pure-Python project; dependencies come from outside."""
    folder = tmp_path_factory.mktemp("installed")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    return folder


@pytest.fixture(scope="module")
def metadata(installed: Path) -> PathDistribution:
    """Read the wheel's own metadata."""
    (folder,) = installed.glob("*.dist-info")
    return PathDistribution(folder)


def run_installed(installed: Path, program: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run a program with the unpacked wheel first on the path and nothing of the repository."""
    # The editable install would answer too, so its finder goes and the wheel takes its place.
    prelude = (
        "import sys\n"
        "sys.meta_path[:] = [finder for finder in sys.meta_path\n"
        "    if getattr(finder, '__module__', '') != 'editables.redirector']\n"
        f"sys.path.insert(0, {str(installed)!r})\n"
    )
    return subprocess.run(
        [sys.executable, "-P", "-c", prelude + program],
        capture_output=True,
        text=True,
        check=False,
        cwd=cwd,
        timeout=60,
    )


def test_wheel_has_two_top_level_packages(names: frozenset[str]) -> None:
    """Nothing but the library and the command line is installed: no tests, no `cli`."""
    dist_info = f"memqos-{memqos.__version__}.dist-info"

    assert {name.partition("/")[0] for name in names} == {"memqos", "memqos_cli", dist_info}


def test_wheel_is_typed(names: frozenset[str]) -> None:
    """Type checkers read the annotations of both packages."""
    assert {"memqos/py.typed", "memqos_cli/py.typed"} - names == set()


def test_wheel_holds_every_source_and_schema(names: frozenset[str]) -> None:
    """Each module and each JSON Schema of the repository is in the wheel, and no others are."""
    sources = {
        path.relative_to(base).as_posix()
        for base, package in ((ROOT, "memqos"), (ROOT / "cli", "memqos_cli"))
        for pattern in ("*.py", "*.json")
        for path in (base / package).rglob(pattern)
    }
    schemas = {name for name in sources if name.startswith("memqos/schemas/")}

    assert schemas != set()
    assert {name for name in names if name.endswith((".py", ".json"))} == sources


def test_wheel_names_its_command(metadata: PathDistribution, installed: Path) -> None:
    """The one entry point is `memqos`, and it resolves."""
    assert [(entry.group, entry.name, entry.value) for entry in metadata.entry_points] == [
        ("console_scripts", "memqos", "memqos_cli.__main__:main")
    ]
    done = run_installed(
        installed, "from memqos_cli.__main__ import main; print(callable(main))", cwd=installed
    )
    assert (done.stdout, done.stderr) == ("True\n", "")


def test_wheel_has_the_version_of_the_library(metadata: PathDistribution) -> None:
    """The version lives in `memqos/__init__.py` alone."""
    assert metadata.version == memqos.__version__


def test_wheel_carries_its_licence(metadata: PathDistribution) -> None:
    """The licence text travels with the code it covers."""
    assert metadata.metadata["License-Expression"] == "Apache-2.0"
    assert (metadata.read_text("licenses/LICENSE") or "").lstrip().startswith("Apache License")


def test_installed_packages_come_from_the_wheel(installed: Path) -> None:
    """Both packages import from the wheel, so the test below proves what it says."""
    program = (
        "import json, memqos, memqos_cli\n"
        "print(json.dumps([memqos.__file__, memqos_cli.__file__]))\n"
    )
    done = run_installed(installed, program, cwd=installed.parent)

    assert done.stderr == ""
    assert json.loads(done.stdout) == [
        str(installed / "memqos" / "__init__.py"),
        str(installed / "memqos_cli" / "__init__.py"),
    ]


@pytest.mark.parametrize("name", ["benchmarks", "cli", "examples", "tests"])
def test_folders_of_the_repository_are_not_importable(installed: Path, name: str) -> None:
    """Neither the wheel nor an editable install leaks the repository's folders."""
    wheel_install = run_installed(installed, f"import {name}", cwd=installed.parent)
    this_install = subprocess.run(
        [sys.executable, "-P", "-c", f"import {name}"],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )

    expected = f"ModuleNotFoundError: No module named '{name}'"
    assert wheel_install.stderr.splitlines()[-1:] == [expected]
    assert this_install.stderr.splitlines()[-1:] == [expected]


def test_module_runs_like_the_command() -> None:
    """`python -m memqos_cli` is the `memqos` command by another name."""
    done = subprocess.run(
        [sys.executable, "-P", "-m", "memqos_cli", "--version"],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )

    assert (done.returncode, done.stderr) == (0, "")
    assert memqos.__version__ in done.stdout
