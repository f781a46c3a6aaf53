"""Reading what a kubelet's start is decided on: a node, its kubelet's settings and checkpoint."""

from __future__ import annotations

import errno
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from attrs import evolve, frozen

from memqos.adapters.files import read_input
from memqos.adapters.host import Host
from memqos.adapters.node import (
    CHECKPOINT,
    CHECKPOINT_LIMIT,
    IOMEM,
    KUBELET_CONFIG,
    read_checkpoint,
    read_image,
    read_machine,
)
from memqos.errors import InputError, MachineError
from memqos.kubelet_config import KubeletConfig, parse_kubelet_config
from memqos.memory_manager.checkpoint import LoadedCheckpoint, LoadFailure, load
from memqos.memory_manager.iomem import KernelImage, find_image
from memqos.memory_manager.machine import Machine, parse_machine_info
from memqos.memory_manager.settings import (
    assume_settings,
    config_warnings,
    settings_from_config,
)
from memqos.memory_manager.validation import Settings


if TYPE_CHECKING:
    from memqos.adapters.documents import Document


__all__ = [
    "NodeInputs",
    "kubelet_document",
    "read_default_config",
    "read_kubelet_config",
    "read_kubelet_node",
]


@frozen(kw_only=True)
class NodeInputs:
    """Everything that a checkpoint command decides on.

    Attributes:
        settings: kubelet's configuration, or what is assumed of it.
        machine: the NUMA nodes.
        checkpoint: as the kubelet loads it, None when there is no file.
        checkpoint_path: as the user would type it.
        checkpoint_file: the file to replace, None when it came from standard input.
        checkpoint_data: its bytes, None when there is no file.
        image: the kernel image, None when it cannot be read.
        image_path: where it was read, as the user would type it.
        wants_image: whether the settings depend on the image.
        assumptions: what was assumed for want of an input.
        warnings: what looked odd.
    """

    settings: Settings
    machine: Machine
    checkpoint: LoadedCheckpoint | LoadFailure | None
    checkpoint_path: str
    checkpoint_file: str | None
    checkpoint_data: bytes | None
    image: KernelImage | None
    image_path: str
    wants_image: bool
    assumptions: tuple[str, ...]
    warnings: tuple[str, ...]


def read_kubelet_node(
    host: Host,
    *,
    kubelet_version: int,
    drift_tolerance: str | None = None,
    checkpoint: str | None = None,
    kubelet_config: str | None = None,
    machine_info: str | None = None,
    iomem: str | None = None,
    feature_gates: Mapping[str, bool] | None = None,
    flags: Mapping[str, Any] | None = None,
) -> NodeInputs:
    """Read every input, from the host or from the files given in its place.

    Args:
        host: where the default paths are.
        kubelet_version: NN of kubelet 1.NN.
        drift_tolerance: sets the option and its gate, for the question "what if".
        checkpoint: a file in place of kubelet's own; ``-`` is standard input, here and below.
        kubelet_config: a file in place of kubelet's own.
        machine_info: cAdvisor's MachineInfo in place of ``/sys``.
        iomem: a file in place of ``/proc/iomem``.
        feature_gates: override those of the configuration.
        flags: fields of `KubeletConfig` that override the configuration.

    Raises:
        MachineError: something cannot be read.
        InputError: something cannot be understood.
    """
    host.check()
    warnings: list[str] = []
    described = kubelet_config is not None or bool(flags)
    data, path, file = _read_checkpoint(host, checkpoint, directory_required=not described)
    loaded = None if data is None else load(data, kubelet_minor=kubelet_version)
    if data is None:
        warnings.append(f"{path}: no such file, so this is kubelet's first start with it")
    if isinstance(loaded, LoadedCheckpoint) and loaded.dropped_pod_entries:
        warnings.append(f"{path}: kubelet drops the podEntries of this file, it loads as v1")
    machine, machine_warnings = _read_machine(host, machine_info)
    warnings += machine_warnings
    image, image_warnings = _read_image(host, iomem)
    config = _read_config(host, kubelet_config)
    gates = feature_gates or {}
    assumptions: list[str] = []
    if config is None and not flags:
        settings = assume_settings(
            loaded,
            kubelet_minor=kubelet_version,
            drift_tolerance=drift_tolerance,
            feature_gates=gates,
        )
        assumptions.append(
            "no kubelet configuration found: policy and reservations are taken from the checkpoint"
            if isinstance(loaded, LoadedCheckpoint)
            else "no kubelet configuration found: policy Static and no reservations are assumed"
        )
    else:
        config = evolve(config or KubeletConfig(), **(flags or {}))
        config = evolve(config, feature_gates={**config.feature_gates, **gates})
        warnings += config_warnings(config, kubelet_minor=kubelet_version)
        settings = settings_from_config(
            config, machine, kubelet_minor=kubelet_version, drift_tolerance=drift_tolerance
        )
    # The bound of "auto" is in the verdict, or at least in the advice.
    wants_image = settings.policy_name == "Static"
    return NodeInputs(
        settings=settings,
        machine=machine,
        checkpoint=loaded,
        checkpoint_path=path,
        checkpoint_file=file,
        checkpoint_data=data,
        image=image,
        image_path=host.display(IOMEM) if iomem is None else iomem,
        wants_image=wants_image,
        assumptions=tuple(assumptions),
        warnings=tuple(warnings + (image_warnings if wants_image else [])),
    )


def _read_checkpoint(
    host: Host, name: str | None, *, directory_required: bool
) -> tuple[bytes | None, str, str | None]:
    """Return the bytes, the path as the user would type it, and the file to replace."""
    if name == "-":
        return read_input("-", limit=CHECKPOINT_LIMIT), "standard input", None
    if name is not None:
        return read_checkpoint(host, name), name, name
    data = read_checkpoint(host, directory_required=directory_required)
    return data, host.display(CHECKPOINT), host.place(CHECKPOINT)


def _read_machine(host: Host, machine_info: str | None) -> tuple[Machine, tuple[str, ...]]:
    if machine_info is None:
        return read_machine(host)
    from memqos.adapters.documents import read_documents

    documents = read_documents(read_input(machine_info), machine_info)
    try:
        return parse_machine_info(documents[0].data if documents else None), ()
    except InputError as error:
        raise error.locate(source=machine_info) from None


def _read_image(host: Host, iomem: str | None) -> tuple[KernelImage | None, list[str]]:
    if iomem is not None:
        return find_image(read_input(iomem).decode("utf-8", "replace")), []
    try:
        return read_image(host), []
    except MachineError as error:
        return None, [f"{error}; the kernel image's size is unknown"]


def _read_config(host: Host, name: str | None) -> KubeletConfig | None:
    return (
        read_default_config(host) if name is None else read_kubelet_config(read_input(name), name)
    )


def read_default_config(host: Host) -> KubeletConfig | None:
    """Read a host's own KubeletConfiguration, None where it has none.

    Raises:
        MachineError: it cannot be read.
        InputError: it cannot be understood.
    """
    try:
        data = host.read(KUBELET_CONFIG)
    except MachineError as error:
        if error.errno != errno.ENOENT or host.is_link(KUBELET_CONFIG):
            raise
        return None
    return read_kubelet_config(data, host.display(KUBELET_CONFIG))


def read_kubelet_config(data: bytes, source: str) -> KubeletConfig:
    """Read the KubeletConfiguration of a stream; an empty one is all defaults.

    Raises:
        InputError: it cannot be understood; `source`, `line` and `path` say where.
    """
    from memqos.adapters.documents import read_documents

    chosen = kubelet_document(read_documents(data, source))
    try:
        return parse_kubelet_config({} if chosen is None else chosen.data)
    except InputError as error:
        line = chosen.locate(error.path) if chosen and error.path else None
        raise error.locate(source=source, line=line) from None


def kubelet_document(documents: Sequence[Document]) -> Document | None:
    """Choose the KubeletConfiguration among the documents of a stream; None if there is none."""
    return next(
        (
            document
            for document in documents
            if isinstance(document.data, dict)
            and document.data.get("kind", "KubeletConfiguration") == "KubeletConfiguration"
        ),
        documents[0] if documents else None,
    )
