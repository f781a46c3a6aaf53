"""Reading manifests from files, directories and standard input."""

import os
import sys
import tracemalloc
from pathlib import Path

import pytest

from memqos.adapters import manifest_files
from memqos.adapters.manifest_files import read_manifests
from memqos.errors import InputError, MachineError
from memqos.manifests import ManifestReader


POD = "kind: Pod\nmetadata: {{name: {}}}\nspec: {{containers: [{{name: c}}]}}\n"


def names(*sources: Path | str) -> list[str]:
    """Return the pods' names."""
    reader = ManifestReader()
    read_manifests(map(str, sources), reader)
    return [workload.pod.name for workload in reader.workloads()]


def test_sources(tmp_path: Path) -> None:
    """Sources are read in the order given; directories sorted, whatever their depth."""
    for name in ("b/z.yaml", "b/a/x.json", "a.yml", "b/readme.md", "b/.hidden.yaml"):
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(POD.format(file.stem.strip(".")))
    (tmp_path / "first.txt").write_text(POD.format("first"))

    assert names(tmp_path / "first.txt", tmp_path) == ["first", "a", "hidden", "z", "x"]


def test_what_is_no_file(tmp_path: Path) -> None:
    """Nothing blocks, and each error names the file."""
    os.mkfifo(tmp_path / "pipe.yaml")
    (tmp_path / "empty").mkdir()
    (tmp_path / "broken.yaml").symlink_to("nowhere")

    for name in ("/dev/zero", "/dev/full", tmp_path / "pipe.yaml", tmp_path, "", "a\0b"):
        with pytest.raises(MachineError):
            names(name)
    with pytest.raises(MachineError, match="no manifest in it"):
        names(tmp_path / "empty")
    with pytest.raises(MachineError, match=r"broken\.yaml: No such file"):
        names(tmp_path / "broken.yaml")


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_unreadable(tmp_path: Path) -> None:
    """A directory that may not be listed is an error, not an empty one."""
    (tmp_path / "secret").mkdir(mode=0)

    with pytest.raises(MachineError, match="secret"):
        names(tmp_path)


def test_closed_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without standard input there is nothing to read."""
    monkeypatch.setattr(sys, "stdin", None)

    with pytest.raises(MachineError, match="closed"):
        names("-")


def test_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stream that does not end is given up."""
    monkeypatch.setattr(manifest_files, "MAX_STREAM_BYTES", 200_000)
    (tmp_path / "large.yaml").write_text("# comment\n" * 30_000)

    with pytest.raises(MachineError, match=r"large\.yaml: larger than 200000 bytes"):
        names(tmp_path / "large.yaml")


class Stdin:
    """Documents that are made as they are read."""

    def __init__(self, count: int) -> None:
        self.buffer = self
        self.left = count

    def read1(self, _size: int) -> bytes:
        """Give one document at a time."""
        self.left -= 1
        text = b"---\nkind: ConfigMap\ndata: {a: '" + b"x" * 4000 + b"'}\n"
        return text if self.left >= 0 else b""


def test_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stream is not held: 16 MB of ConfigMaps need less than 2 MB."""
    monkeypatch.setattr(sys, "stdin", Stdin(1))
    assert names("-") == []  # what is imported on the way does not count
    monkeypatch.setattr(sys, "stdin", Stdin(4000))

    tracemalloc.start()
    assert names("-") == []
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert peak < 2_000_000


def test_place_of_an_error(tmp_path: Path) -> None:
    """An error has file, document, line and field."""
    file = tmp_path / "f.yaml"
    file.write_text(POD.format("a") + "---\n" + POD.format("[]"))

    with pytest.raises(InputError) as caught:
        names(file)

    error = caught.value
    assert (error.source, error.document, error.line, error.path) == (
        *(str(file), 2, 6, "$.metadata.name"),
    )
