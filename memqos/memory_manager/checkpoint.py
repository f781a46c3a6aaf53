"""Reading a checkpoint as a kubelet of a given release does: formats v1, v2, v3.

Source: kubelet ``pkg/kubelet/cm/memorymanager/state``; v3 came with kubernetes/kubernetes#139626.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple, TypeVar, cast

from attrs import frozen

from memqos.errors import JSONSyntaxError
from memqos.gojson import NULL, Object, TypeErrors, Value, fold, parse
from memqos.memory_manager.checksum import STRUCT_NAME_V1, content_checksum, data_checksum
from memqos.memory_manager.state import (
    Block,
    CheckpointContent,
    ContainerAssignments,
    MachineState,
    MemoryTable,
    NUMANodeState,
    PodAssignments,
)


__all__ = [
    "ChecksumStatus",
    "Format",
    "LoadFailure",
    "LoadFailureKind",
    "LoadedCheckpoint",
    "load",
]


class Format(StrEnum):
    """The formats of the file. 1.36 with PodLevelResourceManagers writes v2; 1.37 writes v3."""

    V1 = "v1"
    V2 = "v2"
    V3 = "v3"


class ChecksumStatus(StrEnum):
    """What became of the checksum; 1.36 and later take `ZERO` and `ABSENT` unchecked."""

    VALID = "valid"
    INVALID = "invalid"
    ZERO = "zero"
    ABSENT = "absent"


class LoadFailureKind(StrEnum):
    """Why a kubelet cannot load a checkpoint."""

    JSON_SYNTAX = "json_syntax"
    JSON_TYPE = "json_type"
    CORRUPTED = "corrupted"
    V3_CORRUPTED = "v3_corrupted"
    V3_BAD_DATA = "v3_bad_data"
    V3_BAD_OUTER = "v3_bad_outer"


@frozen(kw_only=True)
class LoadedCheckpoint:
    """A checkpoint that kubelet accepts.

    Attributes:
        format: the format that was accepted, not always the one the file looks like.
        content: what it says; pod entries only where kubelet keeps them.
        checksum_status: never `INVALID` here.
        dropped_pod_entries: the file holds pod entries that this kubelet loses.
    """

    format: Format
    content: CheckpointContent
    checksum_status: ChecksumStatus
    dropped_pod_entries: bool = False


@frozen(kw_only=True)
class LoadFailure:
    """A checkpoint that kubelet refuses.

    Attributes:
        kind: which step failed.
        message: the cause in words, with the place where one is known.
        format: the format whose check failed; None when the text could not be decoded.
        checksum_status: `INVALID` when a checksum was compared, else None.
        policy_name: as decoded, None if it was not.
        hint: what else is known about the file, or None.
    """

    kind: LoadFailureKind
    message: str
    format: Format | None = None
    checksum_status: ChecksumStatus | None = None
    policy_name: str | None = None
    hint: str | None = None


_V1_FIELDS = ("policyname", "machinestate", "entries", "checksum")
_V2_FIELDS = (*_V1_FIELDS, "podentries")
_V3_FIELDS = (*_V1_FIELDS, "data", "datachecksum")
_V3_DATA_FIELDS = ("policyname", "machinestate", "entries", "podentries")


class _Decoded(NamedTuple):
    content: CheckpointContent
    checksum: int
    has_checksum: bool
    data: str
    data_checksum: int
    type_error: str | None


def load(data: bytes, *, kubelet_minor: int) -> LoadedCheckpoint | LoadFailure:
    """Load a checkpoint as kubelet 1.``kubelet_minor`` does.

    1.37 and later try v3, then v2, then v1; 1.36 v2, then v1; earlier v1 alone, and there a
    stored checksum of 0 is compared like any other.
    """
    try:
        document = parse(data)
    except JSONSyntaxError as error:
        return LoadFailure(kind=LoadFailureKind.JSON_SYNTAX, message=str(error))
    if kubelet_minor >= 37:
        decoded = _decode(document, _V3_FIELDS)
        if decoded.data or decoded.data_checksum:
            return _load_v3(decoded)
    if kubelet_minor >= 36:
        decoded = _decode(document, _V2_FIELDS)
        computed = content_checksum(decoded.content, pod_entries=True)
        if decoded.type_error is None and decoded.checksum == computed:
            return LoadedCheckpoint(
                format=Format.V2, content=decoded.content, checksum_status=ChecksumStatus.VALID
            )
    return _load_v1(document, zero_is_accepted=kubelet_minor >= 36)


def _load_v3(decoded: _Decoded) -> LoadedCheckpoint | LoadFailure:
    def fail(
        kind: LoadFailureKind, message: str, status: ChecksumStatus | None = None
    ) -> LoadFailure:
        return LoadFailure(kind=kind, message=message, format=Format.V3, checksum_status=status)

    if decoded.type_error is not None:
        return fail(LoadFailureKind.V3_BAD_OUTER, decoded.type_error)
    try:
        inner = parse(decoded.data)
    except JSONSyntaxError as error:
        return fail(LoadFailureKind.V3_BAD_DATA, f"$.data: {error.message}")
    content = _decode(inner, _V3_DATA_FIELDS)
    if content.type_error is not None:
        return fail(LoadFailureKind.V3_BAD_DATA, f"$.data: {content.type_error}")
    computed = data_checksum(decoded.data)
    if decoded.data_checksum != computed:
        return fail(
            LoadFailureKind.V3_CORRUPTED,
            f"dataChecksum is {decoded.data_checksum}, the data hashes to {computed}",
            ChecksumStatus.INVALID,
        )
    return LoadedCheckpoint(
        format=Format.V3, content=content.content, checksum_status=ChecksumStatus.VALID
    )


def _load_v1(document: Value, *, zero_is_accepted: bool) -> LoadedCheckpoint | LoadFailure:
    decoded = _decode(document, _V1_FIELDS)
    if decoded.type_error is not None:
        return LoadFailure(kind=LoadFailureKind.JSON_TYPE, message=decoded.type_error)
    has_pod_entries = _has_field(document, "podentries")
    computed = content_checksum(decoded.content, pod_entries=False)
    if decoded.checksum == computed:
        status = ChecksumStatus.VALID
    elif decoded.checksum == 0 and zero_is_accepted:
        status = ChecksumStatus.ZERO if decoded.has_checksum else ChecksumStatus.ABSENT
    else:
        v1_name = content_checksum(decoded.content, pod_entries=False, struct_name=STRUCT_NAME_V1)
        return LoadFailure(
            kind=LoadFailureKind.CORRUPTED,
            message=f"the checksum is {decoded.checksum}, the content hashes to {computed}",
            format=Format.V2 if has_pod_entries else Format.V1,
            checksum_status=ChecksumStatus.INVALID,
            policy_name=decoded.content.policy_name,
            hint="the checksum is that of a 1.36 kubelet which hashed the v1 form under another "
            "type name; other kubelets refuse it"
            if decoded.checksum == v1_name
            else None,
        )
    return LoadedCheckpoint(
        format=Format.V1,
        content=decoded.content,
        checksum_status=status,
        dropped_pod_entries=has_pod_entries,
    )


def _has_field(document: Value, folded: str) -> bool:
    return isinstance(document, Object) and any(
        fold(key) == folded and value is not NULL for key, value in document
    )


def _decode(document: Value, fields: tuple[str, ...]) -> _Decoded:
    """Decode the top level; absent maps are empty there, explicit nulls are nil."""
    names = {name: name for name in fields}
    errors = TypeErrors()
    policy_name, checksum, has_checksum, data, data_sum = "", 0, False, "", 0
    state: MachineState | None = {}
    entries: ContainerAssignments | None = {}
    pod_entries: PodAssignments | None = {}
    for field, value in errors.fields(document, names, "$"):
        match field:
            case "policyname":
                policy_name = errors.string(value, policy_name, "$.policyName")
            case "machinestate":
                state = _machine_state(errors, value, state)
            case "entries":
                entries = _entries(errors, value, entries)
            case "podentries":
                pod_entries = _pod_entries(errors, value, pod_entries)
            case "checksum":
                has_checksum = value is not NULL
                checksum = errors.integer(value, checksum, "$.checksum", signed=False)
            case "data":
                data = errors.string(value, data, "$.data")
            case _:
                data_sum = errors.integer(value, data_sum, "$.dataChecksum", signed=False)
    return _Decoded(
        content=CheckpointContent(
            policy_name=policy_name, machine_state=state, entries=entries, pod_entries=pod_entries
        ),
        checksum=checksum,
        has_checksum=has_checksum,
        data=data,
        data_checksum=data_sum,
        type_error=errors.first,
    )


def _machine_state(
    errors: TypeErrors, value: Value, current: MachineState | None
) -> MachineState | None:
    path = "$.machineState"
    if value is NULL:
        return None
    if not isinstance(value, Object):
        errors.add(value, "an object", path)
        return current
    # A repeated field decodes into the map that is there: new keys join the old ones.
    state = dict(current or {})
    for key, item in value:
        node_id = errors.int_key(key, path)
        node = None if item is NULL else _node(errors, item, f"{path}.{key}")
        if node_id is not None:
            state[node_id] = node
    return state


_NODE_FIELDS = {"numberofassignments": "count", "memorymap": "map", "cells": "cells"}
_TABLE_FIELDS = {
    "total": "total",
    "systemreserved": "system_reserved",
    "allocatable": "allocatable",
    "reserved": "reserved",
    "free": "free",
}
_BLOCK_FIELDS = {"numaaffinity": "affinity", "type": "type", "size": "size"}
_POD_FIELDS = {"memoryblocks": "blocks"}


def _node(errors: TypeErrors, value: Value, path: str) -> NUMANodeState:
    count, cells = 0, None
    tables: TableMap | None = None
    for field, item in errors.fields(value, _NODE_FIELDS, path):
        match field:
            case "count":
                count = errors.integer(item, count, f"{path}.numberOfAssignments", signed=True)
            case "map":
                tables = _memory_map(errors, item, tables, f"{path}.memoryMap")
            case _:
                cells = _integers(errors, item, cells, f"{path}.cells")
    return NUMANodeState(count, tables, cells)


TableMap = dict[str, MemoryTable | None]


def _memory_map(
    errors: TypeErrors, value: Value, current: TableMap | None, path: str
) -> TableMap | None:
    if value is NULL:
        return None
    tables = dict(current or {})
    if not isinstance(value, Object):
        errors.add(value, "an object", path)
        return tables
    for key, item in value:
        tables[key] = None if item is NULL else _table(errors, item, f"{path}.{key}")
    return tables


def _table(errors: TypeErrors, value: Value, path: str) -> MemoryTable:
    sizes: dict[str, int] = {}
    for field, item in errors.fields(value, _TABLE_FIELDS, path):
        sizes[field] = errors.integer(item, sizes.get(field, 0), f"{path}.{field}", signed=False)
    return MemoryTable(**sizes)


def _entries(
    errors: TypeErrors, value: Value, current: ContainerAssignments | None
) -> ContainerAssignments | None:
    path = "$.entries"
    if value is NULL:
        return None
    if not isinstance(value, Object):
        errors.add(value, "an object", path)
        return current
    entries = dict(current or {})
    for pod, item in value:
        if item is NULL:
            entries[pod] = None
        elif isinstance(item, Object):
            entries[pod] = {
                container: _blocks(errors, blocks, None, f"{path}.{pod}.{container}")
                for container, blocks in item
            }
        else:
            errors.add(item, "an object", f"{path}.{pod}")
    return entries


def _pod_entries(
    errors: TypeErrors, value: Value, current: PodAssignments | None
) -> PodAssignments | None:
    path = "$.podEntries"
    if value is NULL:
        return None
    if not isinstance(value, Object):
        errors.add(value, "an object", path)
        return current
    entries = dict(current or {})
    for pod, item in value:
        blocks: tuple[Block, ...] | None = None
        place = f"{path}.{pod}"
        for _, field_value in errors.fields(item, _POD_FIELDS, place):
            blocks = _blocks(errors, field_value, blocks, f"{place}.memoryBlocks")
        entries[pod] = blocks
    return entries


T = TypeVar("T")


def _elements(
    errors: TypeErrors, value: Value, current: tuple[T, ...] | None, empty: T, path: str
) -> list[tuple[Value, T]] | None:
    """Pair the items of an array with what each is decoded into.

    Go decodes a repeated array field over the elements that are there already.
    """
    if value is NULL:
        return None
    if type(value) is not list:
        errors.add(value, "an array", path)
        return [(NULL, old) for old in current] if current is not None else None
    items = cast("list[Value]", value)
    old = current or ()
    return [(item, old[index] if index < len(old) else empty) for index, item in enumerate(items)]


def _integers(
    errors: TypeErrors, value: Value, current: tuple[int, ...] | None, path: str
) -> tuple[int, ...] | None:
    elements = _elements(errors, value, current, 0, path)
    if elements is None:
        return None
    return tuple(
        errors.integer(item, old, f"{path}[{index}]", signed=True)
        for index, (item, old) in enumerate(elements)
    )


def _blocks(
    errors: TypeErrors, value: Value, current: tuple[Block, ...] | None, path: str
) -> tuple[Block, ...] | None:
    elements = _elements(errors, value, current, Block(), path)
    if elements is None:
        return None
    return tuple(
        _block(errors, item, old, f"{path}[{index}]") for index, (item, old) in enumerate(elements)
    )


def _block(errors: TypeErrors, value: Value, block: Block, path: str) -> Block:
    affinity, type_, size = block.numa_affinity, block.type, block.size
    for field, item in errors.fields(value, _BLOCK_FIELDS, path):
        match field:
            case "affinity":
                affinity = _integers(errors, item, affinity, f"{path}.numaAffinity")
            case "type":
                type_ = errors.string(item, type_, f"{path}.type")
            case _:
                size = errors.integer(item, size, f"{path}.size", signed=False)
    return Block(affinity, type_, size)
