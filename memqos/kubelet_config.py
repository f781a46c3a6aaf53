"""KubeletConfiguration: the fields that decide about memory."""

from __future__ import annotations

import re
from collections.abc import Mapping
from struct import pack, unpack

from attrs import field, frozen

from memqos import fields
from memqos.errors import InputError, QuantityError
from memqos.quantity import Quantity, parse_quantity


__all__ = [
    "FIELDS",
    "KubeletConfig",
    "MemoryReservation",
    "eviction_threshold_bytes",
    "parse_kubelet_config",
    "parse_reservation",
]

#: the fields of a KubeletConfiguration that memqos reads
FIELDS = (
    "apiVersion",
    "kind",
    "memoryManagerPolicy",
    "memoryManagerPolicyOptions",
    "reservedMemory",
    "systemReserved",
    "kubeReserved",
    "evictionHard",
    "mergeDefaultEvictionSettings",
    "featureGates",
)

_MAX_INT32 = 2**31 - 1
_DEFAULT_EVICTION_HARD = "100Mi"
MEMORY_AVAILABLE = "memory.available"


@frozen
class MemoryReservation:
    """One item of ``reservedMemory``: resource name to quantity on one NUMA node."""

    numa_node: int
    limits: Mapping[str, Quantity]


@frozen(kw_only=True)
class KubeletConfig:
    """A KubeletConfiguration with kubelet's defaults filled in.

    Attributes:
        memory_manager_policy: ``None``, ``Static`` or ``BestEffort``; not checked here.
        memory_manager_policy_options: option name to value.
        reserved_memory: per NUMA node.
        system_reserved: resource name to quantity text.
        kube_reserved: the same.
        eviction_hard: signal to threshold text, None when the map is missing.
        merge_default_eviction_settings: signals missing in `eviction_hard` get their default.
        feature_gates: gate name to value, as far as configured.
    """

    memory_manager_policy: str = "None"
    memory_manager_policy_options: Mapping[str, str] = field(factory=dict)
    reserved_memory: tuple[MemoryReservation, ...] = ()
    system_reserved: Mapping[str, str] = field(factory=dict)
    kube_reserved: Mapping[str, str] = field(factory=dict)
    eviction_hard: Mapping[str, str] | None = None
    merge_default_eviction_settings: bool = False
    feature_gates: Mapping[str, bool] = field(factory=dict)

    def gate(self, name: str, *, alpha: bool) -> bool:
        """Whether a gate is on that is off by default; ``AllAlpha`` counts for an alpha gate."""
        return self.feature_gates.get(name, alpha and self.feature_gates.get("AllAlpha", False))

    @property
    def memory_available(self) -> str | None:
        """The hard eviction threshold in effect: a quantity, a percentage, or None."""
        if self.eviction_hard is None:
            return _DEFAULT_EVICTION_HARD
        default = _DEFAULT_EVICTION_HARD if self.merge_default_eviction_settings else None
        return self.eviction_hard.get(MEMORY_AVAILABLE, default)


def parse_kubelet_config(document: object) -> KubeletConfig:
    """Read a KubeletConfiguration from plain data.

    Raises:
        InputError: it is another kind of object, or a field has the wrong type; `path` says which.
    """
    if not isinstance(document, dict):
        raise InputError("expected a KubeletConfiguration object", path="$")
    config = fields.mapping(document, "$")
    kind = config.get("kind", "KubeletConfiguration")
    if kind != "KubeletConfiguration":
        raise InputError(f"expected KubeletConfiguration, found {kind!r}", path="$.kind")
    policy = config.get("memoryManagerPolicy")
    eviction = config.get("evictionHard")
    gates = fields.mapping(config.get("featureGates"), "$.featureGates")
    return KubeletConfig(
        memory_manager_policy=fields.string(policy, "$.memoryManagerPolicy") if policy else "None",
        memory_manager_policy_options=fields.string_map(
            config.get("memoryManagerPolicyOptions"), "$.memoryManagerPolicyOptions"
        ),
        reserved_memory=tuple(
            _reservation(item, f"$.reservedMemory[{index}]")
            for index, item in enumerate(
                fields.items(config.get("reservedMemory"), "$.reservedMemory")
            )
        ),
        system_reserved=fields.string_map(config.get("systemReserved"), "$.systemReserved"),
        kube_reserved=fields.string_map(config.get("kubeReserved"), "$.kubeReserved"),
        eviction_hard=None if eviction is None else fields.string_map(eviction, "$.evictionHard"),
        merge_default_eviction_settings=fields.boolean(
            config.get("mergeDefaultEvictionSettings") or False, "$.mergeDefaultEvictionSettings"
        ),
        feature_gates={
            name: fields.boolean(value, fields.member("$.featureGates", name))
            for name, value in gates.items()
        },
    )


def _reservation(value: object, path: str) -> MemoryReservation:
    item = fields.mapping(value, path)
    limits = fields.mapping(item.get("limits"), f"{path}.limits")
    return MemoryReservation(
        fields.integer(item.get("numaNode", 0), f"{path}.numaNode", low=0, high=_MAX_INT32),
        {
            name: fields.quantity(amount, fields.member(f"{path}.limits", name))
            for name, amount in limits.items()
        },
    )


def parse_reservation(text: str) -> tuple[MemoryReservation, ...]:
    """Read a ``--reserved-memory`` flag: ``0:memory=1Gi,hugepages-1Gi=2Gi``, ``;`` between nodes.

    Raises:
        InputError: not of that form.
    """
    reservations = []
    for part in text.split(";"):
        node, colon, limits = part.partition(":")
        if not colon or not re.fullmatch("[0-9]{1,10}", node) or int(node) > _MAX_INT32:
            raise InputError(f"{part!r} is not of the form NODE:RESOURCE=QUANTITY[,…]")
        amounts: dict[str, Quantity] = {}
        for limit in limits.split(","):
            name, equals, amount = limit.partition("=")
            if not equals or not name or name in amounts:
                raise InputError(f"{part!r} is not of the form NODE:RESOURCE=QUANTITY[,…]")
            amounts[name] = parse_quantity(amount)
        reservations.append(MemoryReservation(int(node), amounts))
    return tuple(reservations)


def eviction_threshold_bytes(threshold: str | None, capacity_bytes: int) -> int:
    """Turn a hard eviction threshold into bytes, as kubelet does.

    A percentage is single precision, applied to the capacity in double precision and cut; ``0%``
    and ``100%`` mean no threshold.

    Raises:
        InputError: neither a quantity nor a percentage between 0 and 100, or negative.
    """
    if threshold is None or threshold in ("0%", "100%"):
        return 0
    if not threshold.endswith("%"):
        quantity = parse_quantity(threshold)
        if quantity.nanos < 0:
            raise QuantityError(f"the eviction threshold {threshold} is negative")
        return quantity.value
    try:
        percent = _float32(float(threshold.rstrip("%")))
    except (ValueError, OverflowError):
        raise InputError(f"{threshold!r} is not a percentage") from None
    share = _float32(percent / 100)
    if not 0 <= share <= 1:
        raise InputError(f"the eviction threshold {threshold} is not between 0% and 100%")
    return int(float(capacity_bytes) * share)


def _float32(value: float) -> float:
    rounded: float = unpack("<f", pack("<f", value))[0]
    return rounded
