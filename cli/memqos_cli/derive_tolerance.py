"""``memqos derive-tolerance``."""

from __future__ import annotations

import click

from memqos.adapters.files import read_input
from memqos.adapters.host import Host
from memqos.adapters.node import IOMEM, read_image
from memqos.memory_manager.describe import mebibytes
from memqos.memory_manager.iomem import GRACE_BYTES, ImageStatus, KernelImage, find_image
from memqos_cli.exit_codes import NO, YES
from memqos_cli.options import debug_option, output_option, root_option
from memqos_cli.output import document
from memqos_cli.output.terminal import note, table, write


__all__ = ["command", "image_notes"]


@click.command()
@root_option
@click.option(
    "--iomem",
    type=click.Path(readable=False, allow_dash=True),
    metavar="FILE",
    help="Read this instead of ROOT/proc/iomem.",
)
@output_option()
@debug_option
def command(host: Host, iomem: str | None, output: str) -> None:
    """Derive the bound of memory-drift-tolerance "auto" from /proc/iomem.

    It is the span of the running kernel's image plus 64 MiB. Exits 1 when it cannot be derived,
    for then kubelet keeps the exact comparison. Needs root: others see no addresses.

    \b
    Example:
      memqos derive-tolerance
      memqos derive-tolerance --iomem - < iomem.txt
    """
    if iomem is None:
        host.check()
        image = read_image(host)
    else:
        image = find_image(read_input(iomem).decode("utf-8", "replace"))
    source = host.display(IOMEM) if iomem is None else iomem
    for text in image_notes(image, source):
        note(text)
    if output == "text":
        write(_text(image, source))
    else:
        write(document.render("DriftTolerance", _fields(image), output))
    click.get_current_context().exit(YES if image.status is ImageStatus.OK else NO)


def image_notes(image: KernelImage, source: str) -> list[str]:
    """Say what is odd about an image."""
    text = None
    if image.status is ImageStatus.HIDDEN:
        text = (
            "the kernel hides addresses from this reader; kubelet, as root, would see them: "
            "run memqos as root"
        )
    elif image.is_implausible:
        text = (
            f"a span of {image.size_bytes} bytes is no plausible kernel image; "
            "kubelet takes it all the same"
        )
    return [] if text is None else [f"{source}: {text}"]


def _fields(image: KernelImage) -> dict[str, object]:
    return {
        "status": image.status,
        "kernelImageBytes": image.size_bytes,
        "graceBytes": GRACE_BYTES,
        "toleranceBytes": image.tolerance_bytes,
        "segments": [
            {"name": segment.name, "start": segment.start, "end": segment.end}
            for segment in image.segments
        ],
    }


def _text(image: KernelImage, source: str) -> str:
    size, bound = image.size_bytes, image.tolerance_bytes
    if size is None or bound is None:
        why = {
            ImageStatus.HIDDEN: "addresses of the kernel image are hidden",
            ImageStatus.ABSENT: "there is no entry for the kernel image",
        }[image.status]
        head = f"no bound: {why} in {source}; kubelet would compare exactly\n"
    else:
        head = (
            f"the bound is {bound} bytes ({mebibytes(bound)}): the kernel image spans {size} "
            f"bytes ({mebibytes(size)}), plus {GRACE_BYTES} of grace\n"
        )
    if not image.segments:
        return head
    rows = [
        (segment.name, f"{segment.start:#x}", f"{segment.end:#x}", str(segment.size_bytes))
        for segment in image.segments
    ]
    return head + "\n" + table(("SEGMENT", "START", "END", "BYTES"), rows)
