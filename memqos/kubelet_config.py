"""KubeletConfiguration: the fields that decide about memory."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

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
    "reservation_bytes",
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
    "memoryThrottlingFactor",
    "memoryReservationPolicy",
    "cgroupsPerQOS",
    "cgroupDriver",
    "cgroupRoot",
    "enforceNodeAllocatable",
    "systemReservedCgroup",
    "kubeReservedCgroup",
    "singleProcessOOMKill",
    "memorySwap",
)

_MAX_INT32 = 2**31 - 1
_DEFAULT_EVICTION_HARD = "100Mi"
MEMORY_AVAILABLE = "memory.available"
_PERCENT = r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?"
_MAX_PERCENT = 1e9  # far outside, and still a float32


class MemoryReservation(NamedTuple):
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
        memory_throttling_factor: None where it is missing or null.
        memory_reservation_policy: as configured, empty where it is missing.
        cgroups_per_qos: False: kubelet manages no cgroups of pods.
        cgroup_driver: ``systemd``, ``cgroupfs`` or empty; the runtime can override it.
        cgroup_root: a cgroupfs path, whatever the driver.
        enforce_node_allocatable: the keys, ``pods`` by default.
        system_reserved_cgroup: path, empty for none.
        kube_reserved_cgroup: path, empty for none.
        single_process_oom_kill: None where it is missing.
        swap_behavior: of ``memorySwap``, empty where it is missing.
    """

    memory_manager_policy: str = "None"
    memory_manager_policy_options: Mapping[str, str] = field(factory=dict)
    reserved_memory: tuple[MemoryReservation, ...] = ()
    system_reserved: Mapping[str, str] = field(factory=dict)
    kube_reserved: Mapping[str, str] = field(factory=dict)
    eviction_hard: Mapping[str, str] | None = None
    merge_default_eviction_settings: bool = False
    feature_gates: Mapping[str, bool] = field(factory=dict)
    memory_throttling_factor: float | None = None
    memory_reservation_policy: str = ""
    cgroups_per_qos: bool = True
    cgroup_driver: str = ""
    cgroup_root: str = "/"
    enforce_node_allocatable: tuple[str, ...] = ("pods",)
    system_reserved_cgroup: str = ""
    kube_reserved_cgroup: str = ""
    single_process_oom_kill: bool | None = None
    swap_behavior: str = ""

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
    eviction = config.get("evictionHard")
    gates = fields.mapping(config.get("featureGates"), "$.featureGates")
    return KubeletConfig(
        memory_manager_policy=_text(config, "memoryManagerPolicy") or "None",
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
        merge_default_eviction_settings=_flag(config, "mergeDefaultEvictionSettings") is True,
        feature_gates={
            name: fields.boolean(value, fields.member("$.featureGates", name))
            for name, value in gates.items()
        },
        memory_throttling_factor=_number(config, "memoryThrottlingFactor"),
        memory_reservation_policy=_text(config, "memoryReservationPolicy"),
        cgroups_per_qos=_flag(config, "cgroupsPerQOS") is not False,
        cgroup_driver=_text(config, "cgroupDriver"),
        cgroup_root=_text(config, "cgroupRoot") or "/",
        enforce_node_allocatable=("pods",)
        if config.get("enforceNodeAllocatable") is None
        else fields.strings(config["enforceNodeAllocatable"], "$.enforceNodeAllocatable"),
        system_reserved_cgroup=_text(config, "systemReservedCgroup"),
        kube_reserved_cgroup=_text(config, "kubeReservedCgroup"),
        single_process_oom_kill=_flag(config, "singleProcessOOMKill"),
        swap_behavior=_text(
            fields.mapping(config.get("memorySwap"), "$.memorySwap"), "swapBehavior"
        ),
    )


def _text(config: Mapping[str, object], name: str) -> str:
    value = config.get(name)
    return "" if value is None else fields.string(value, f"$.{name}")


def _flag(config: Mapping[str, object], name: str) -> bool | None:
    value = config.get(name)
    return None if value is None else fields.boolean(value, f"$.{name}")


def _number(config: Mapping[str, object], name: str) -> float | None:
    value = config.get(name)
    return None if value is None else fields.number(value, f"$.{name}")


def _reservation(value: object, path: str) -> MemoryReservation:
    item = fields.mapping(value, path)
    limits = fields.mapping(item.get("limits"), f"{path}.limits")
    return MemoryReservation(
        fields.integer(item.get("numaNode") or 0, f"{path}.numaNode", low=0, high=_MAX_INT32),
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
    number = threshold.rstrip("%")
    if len(number) > 40 or not re.fullmatch(_PERCENT, number):
        raise InputError(f"{threshold!r} is not a percentage")
    percent = _float32(min(float(number), _MAX_PERCENT))
    share = _float32(percent / 100)
    if not 0 <= share <= 1:
        raise InputError(f"the eviction threshold {threshold} is not between 0% and 100%")
    return int(float(capacity_bytes) * share)


def reservation_bytes(amounts: Mapping[str, str]) -> int:
    """Return the memory of ``systemReserved`` or ``kubeReserved`` in bytes, 0 for none.

    Raises:
        InputError: not a quantity, or negative.
    """
    if "memory" not in amounts:
        return 0
    quantity = parse_quantity(amounts["memory"])
    if quantity.nanos < 0:
        raise QuantityError(f"{amounts['memory']} is negative")
    return quantity.value


def _float32(value: float) -> float:
    from struct import pack, unpack  # few configurations have a percentage

    rounded: float = unpack("<f", pack("<f", value))[0]
    return rounded
