"""examples/kubernetes/Dockerfile, as far as it can be judged without a container engine."""

import json
import re
import shlex
import tomllib
from pathlib import Path

from tests.support.examples import KUBERNETES
from tests.support.tools import run_tool


ROOT = Path(__file__).parents[2]
DOCKERFILE = KUBERNETES / "Dockerfile"


def instructions() -> list[tuple[str, str]]:
    """Read the instructions, with continued lines joined."""
    text = DOCKERFILE.read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    joined = "\n".join(lines).replace("\\\n", " ").splitlines()
    split = [line.partition(" ") for line in joined if line.strip()]
    return [(name, re.sub(r" +", " ", rest)) for name, _, rest in split]


def test_linter_has_no_findings() -> None:
    """Hadolint has nothing to complain about."""
    done = run_tool("hadolint", "--no-color", DOCKERFILE)

    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_every_copied_path_exists_and_is_in_the_context() -> None:
    """What COPY takes from the repository is there, and .dockerignore lets it through."""
    ignored = (KUBERNETES / "Dockerfile.dockerignore").read_text(encoding="utf-8").splitlines()
    admitted = {line.removeprefix("!") for line in ignored if line.startswith("!")}
    copied = {
        word
        for name, rest in instructions()
        if name == "COPY" and not rest.startswith("--from")
        for word in shlex.split(rest)[:-1]
    }

    assert copied == admitted
    assert all((ROOT / path).exists() for path in copied)


def test_context_is_enough_to_build_the_wheel() -> None:
    """The packages, the read-me and the licence that pyproject.toml names are copied."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    copied = " ".join(rest for name, rest in instructions() if name == "COPY").split()
    packages = project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    wanted = {Path(package).parts[0] for package in packages}
    wanted |= {project["project"]["readme"], *project["project"]["license-files"]}

    assert wanted <= set(copied)


def test_final_stage_holds_the_environment_alone() -> None:
    """The last stage copies one directory, installs nothing, and starts memqos."""
    last = max(index for index, (name, _) in enumerate(instructions()) if name == "FROM")
    final = instructions()[last:]
    bases = [rest.split()[0] for name, rest in instructions() if name == "FROM"]

    assert bases == ["python:3.11-slim"] * 2
    assert [rest for name, rest in final if name == "COPY"] == [
        "--from=build /opt/memqos /opt/memqos"
    ]
    assert not any("install" in rest for name, rest in final if name == "RUN")
    assert [json.loads(rest) for name, rest in final if name == "ENTRYPOINT"] == [["memqos"]]
