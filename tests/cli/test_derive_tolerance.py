"""memqos derive-tolerance."""

from pathlib import Path

import pytest
import yaml

from tests.support.boots import FOLDER, Boot, boots, configs
from tests.support.program import memqos
from tests.support.vectors import Case, named


COMMAND = "derive-tolerance"


@pytest.mark.parametrize("case", named("iomem"))
def test_vectors(case: Case) -> None:
    """Size, bound and status as worked out; exit status 1 where nothing can be derived."""
    answer = memqos(COMMAND, "--iomem", "-", "-o", "json", stdin=case["iomem"].encode())

    document = answer.json
    assert document["status"] == case["status"]
    assert document["kernelImageBytes"] == case["image_bytes"]
    assert document["toleranceBytes"] == case["bound_bytes"]
    assert answer.code == (0 if case["status"] == "ok" else 1)
    as_yaml = memqos(COMMAND, "--iomem", "-", "-o", "yaml", stdin=case["iomem"].encode())
    assert yaml.safe_load(as_yaml.out) == document
    text = memqos(COMMAND, "--iomem", "-", stdin=case["iomem"].encode())
    if case["status"] == "ok":
        assert f"the bound is {case['bound_bytes']} bytes" in text.out
    else:
        assert text.out.startswith("no bound: ")


@pytest.mark.parametrize("boot", [b for c in configs() for b in boots(c)], ids=lambda b: b.name)
def test_captured_boots(boot: Boot) -> None:
    """Under a root the bound of that boot's kernel is derived."""
    answer = memqos(COMMAND, "--root", boot.root, "-o", "json")

    assert (answer.code, answer.err) == (0, "")
    assert answer.json["toleranceBytes"] == boot.bound


def test_unprivileged() -> None:
    """Hidden addresses give no bound, and the advice to be root."""
    answer = memqos(
        COMMAND, "--iomem", FOLDER / "2node-6.12-cloud/01/proc-iomem-as-nobody", "-o", "json"
    )

    assert (answer.code, answer.json["status"]) == (1, "hidden")
    assert "as root" in answer.err


def test_implausible() -> None:
    """A span above 1 GiB is used as kubelet does, with a note."""
    text = b"1000-1fff : Kernel code\n80000000-80000fff : Kernel bss\n"

    answer = memqos(COMMAND, "--iomem", "-", "-o", "json", stdin=text)

    assert answer.json["kernelImageBytes"] == 0x80000000
    assert "no plausible kernel image" in answer.err


def test_bytes_that_are_no_text() -> None:
    """Bytes that are not UTF-8 make a line that does not count."""
    answer = memqos(COMMAND, "--iomem", "-", "-o", "json", stdin=b"\xff1-2 : Kernel code\n")

    assert answer.json["status"] == "absent"


def test_missing(tmp_path: Path) -> None:
    """Without the file there is no answer, and without the root neither."""
    for root in (tmp_path, tmp_path / "no"):
        answer = memqos(COMMAND, "--root", root)
        assert (answer.code, answer.out) == (3, "")
        assert str(root) in answer.err
        assert answer.err.count("\n") == 1
