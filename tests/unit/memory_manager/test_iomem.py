"""The kernel image's span."""

import pytest

from memqos.memory_manager.iomem import ImageStatus, Segment, find_image
from tests.support.boots import FOLDER, Boot, boots, configs
from tests.support.vectors import Case, named


@pytest.mark.parametrize("case", named("iomem"))
def test_vectors(case: Case) -> None:
    """Size, bound and status are those worked out for each text."""
    image = find_image(case["iomem"])

    assert image.size_bytes == case["image_bytes"]
    assert image.tolerance_bytes == case["bound_bytes"]
    assert str(image.status) == case["status"]


@pytest.mark.parametrize("boot", [b for c in configs() for b in boots(c)], ids=lambda b: b.name)
def test_captured_boots(boot: Boot) -> None:
    """On a real kernel the bound is the span of its lines plus 64 MiB."""
    image = find_image((boot.root / "proc/iomem").read_text())

    assert image.status is ImageStatus.OK
    assert image.tolerance_bytes == boot.bound
    assert not image.is_implausible


@pytest.mark.parametrize(
    ("config", "size"),
    # Spans seen on the running kernels.
    [
        ("2node-6.12-cloud", 46137344),
        ("2node-6.1-cloud", 41943040),
        ("2node-6.1-generic", 54525952),
        ("2node-large", 46137344),
        ("arm64-efi-6.12-cloud", 35913728),
    ],
)
def test_known_spans(config: str, size: int) -> None:
    """x86 has four lines and arm64 two; the span is the same at every boot of a kernel."""
    for boot in boots(config):
        assert find_image((boot.root / "proc/iomem").read_text()).size_bytes == size


def test_without_privilege_addresses_are_hidden() -> None:
    """What an unprivileged reader gets is no image of one byte."""
    text = (FOLDER / "2node-6.12-cloud/01/proc-iomem-as-nobody").read_text()

    image = find_image(text)

    assert (image.status, image.size_bytes, image.tolerance_bytes) == (
        ImageStatus.HIDDEN,
        None,
        None,
    )


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("0-fff : Kernel code", 4096),  # a start of 0 with another end is an address
        ("ffffffffffffffff-ffffffffffffffff : Kernel bss", 1),
        ("0000000000000000000001-2 : Kernel bss", 2),
        ("A0-aF : Kernel data\r\n", 16),
        ("1-2 : Kernel rodata", None),
        ("1-2 : kernel code", None),
        ("1-2 : Crash kernel", None),
        ("1-2 Kernel code", None),
        ("12 : Kernel code", None),
        ("-2 : Kernel code", None),
        ("1- : Kernel code", None),
        ("1_0-2_0 : Kernel code", None),
        ("+1-2 : Kernel code", None),
        ("\uff11-\uff12 : Kernel code", None),
        ("1-2-3 : Kernel code", None),
        ("1-2 : a : Kernel code", None),
    ],
)
def test_lines(text: str, size: int | None) -> None:
    """A line counts when its name is exact and both addresses are bare hexadecimal numbers."""
    assert find_image(text).size_bytes == size


def test_implausible_span() -> None:
    """A span above 1 GiB is kept, and marked."""
    low = "100000-1fffff : Kernel code\n"

    assert find_image(f"{low}40000000-400fffff : Kernel bss").is_implausible is False
    assert find_image(f"{low}40000000-40100000 : Kernel bss").is_implausible is True
    assert find_image("").is_implausible is False


def test_segments() -> None:
    """The entries that count are kept in file order, with inclusive addresses."""
    image = find_image("20-2f : Kernel data\n10-1f : Kernel code\n")

    assert image.segments == (Segment("Kernel data", 32, 47), Segment("Kernel code", 16, 31))
    assert [segment.size_bytes for segment in image.segments] == [16, 16]
