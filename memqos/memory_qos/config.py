"""Memory QoS' configuration: what is in effect, and what kubelet refuses.

Source: kubelet's config validation in 1.36, and pull request 140007 for 1.37.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from attrs import frozen

from memqos.errors import InputError
from memqos.fields import number_text
from memqos.kubelet_config import KubeletConfig, eviction_threshold_bytes, reservation_bytes


__all__ = ["ConfigError", "ConfigErrorCode", "MemoryQOSConfig", "Policy", "resolve_config"]

#: MemoryQoS is beta and on from here; memoryThrottlingFactor has no default any more.
FIRST_BETA_MINOR = 37
_ALPHA_FACTOR = 0.9
_GATE = "MemoryQoS"
_ENFORCE_KEYS = frozenset(
    {
        "pods",
        "system-reserved",
        "system-reserved-compressible",
        "kube-reserved",
        "kube-reserved-compressible",
        "none",
    }
)


class Policy(StrEnum):
    """``memoryReservationPolicy``."""

    NONE = "None"
    TIERED = "TieredReservation"


class ConfigErrorCode(StrEnum):
    """What kubelet refuses at its start."""

    FACTOR_RANGE = "factor-range"
    FACTOR_GATE_OFF = "factor-gate-off"
    POLICY_GATE_OFF = "policy-gate-off"
    POLICY_UNKNOWN = "policy-unknown"
    SYSTEM_RESERVED_CGROUP_MISSING = "system-reserved-cgroup-missing"
    KUBE_RESERVED_CGROUP_MISSING = "kube-reserved-cgroup-missing"
    ENFORCE_UNKNOWN = "enforce-unknown"
    ENFORCE_NONE_EXCLUSIVE = "enforce-none-exclusive"
    ENFORCE_DUPLICATE = "enforce-duplicate"
    ENFORCE_COMPRESSIBLE_CONFLICT = "enforce-compressible-conflict"
    ENFORCE_NEEDS_CGROUPS_PER_QOS = "enforce-needs-cgroups-per-qos"
    RESERVATION_INVALID = "reservation-invalid"
    EVICTION_INVALID = "eviction-invalid"


class ConfigError(NamedTuple):
    """One refusal; `field` is its JSON path."""

    code: ConfigErrorCode
    message: str
    field: str


@frozen(kw_only=True)
class MemoryQOSConfig:
    """Memory QoS as kubelet 1.``minor`` takes it from its configuration.

    Attributes:
        minor: NN of kubelet 1.NN.
        enabled: gate MemoryQoS.
        factor: ``memoryThrottlingFactor`` in effect, None for no memory.high.
        policy: ``memoryReservationPolicy`` in effect.
        kubelet: the whole configuration.
        system_reserved_bytes: memory of ``systemReserved``.
        kube_reserved_bytes: memory of ``kubeReserved``.
        errors: what kubelet refuses; it does not start with any.
    """

    minor: int
    enabled: bool
    factor: float | None
    policy: Policy
    kubelet: KubeletConfig
    system_reserved_bytes: int
    kube_reserved_bytes: int
    errors: tuple[ConfigError, ...]

    @property
    def tiered(self) -> bool:
        """Whether memory.min and memory.low protect requests."""
        return self.enabled and self.policy is Policy.TIERED

    @property
    def pod_level_resources(self) -> bool:
        """Gate PodLevelResources, beta and on since 1.34."""
        return self.kubelet.feature_gates.get("PodLevelResources", self.minor >= 34)

    @property
    def is_beta(self) -> bool:
        """Whether this kubelet has the 1.37 rules."""
        return self.minor >= FIRST_BETA_MINOR


def resolve_config(config: KubeletConfig, *, minor: int) -> MemoryQOSConfig:
    """Apply the defaults and checks of kubelet 1.``minor``."""
    beta = minor >= FIRST_BETA_MINOR
    gates = config.feature_gates
    enabled = gates.get(
        _GATE, gates.get("AllBeta", True) if beta else gates.get("AllAlpha", False)
    )
    factor = config.memory_throttling_factor
    if factor is None and not beta:
        factor = _ALPHA_FACTOR
    errors = [
        *_factor_errors(config, enabled=enabled, beta=beta),
        *_policy_errors(config, enabled=enabled),
        *_enforce_errors(config),
    ]
    reserved = []
    for name, amounts in (
        ("systemReserved", config.system_reserved),
        ("kubeReserved", config.kube_reserved),
    ):
        try:
            reserved.append(reservation_bytes(amounts))
        except InputError as error:
            reserved.append(0)
            errors.append(
                ConfigError(
                    ConfigErrorCode.RESERVATION_INVALID,
                    f"{name}: {error.message}",
                    f"$.{name}.memory",
                )
            )
    try:
        eviction_threshold_bytes(config.memory_available, 0)
    except InputError as error:
        errors.append(
            ConfigError(
                ConfigErrorCode.EVICTION_INVALID,
                f"evictionHard: {error.message}",
                "$.evictionHard['memory.available']",
            )
        )
    tiered = config.memory_reservation_policy == Policy.TIERED
    return MemoryQOSConfig(
        minor=minor,
        enabled=enabled,
        factor=factor,
        policy=Policy.TIERED if tiered else Policy.NONE,
        kubelet=config,
        system_reserved_bytes=reserved[0],
        kube_reserved_bytes=reserved[1],
        errors=tuple(errors),
    )


def _factor_errors(config: KubeletConfig, *, enabled: bool, beta: bool) -> list[ConfigError]:
    factor = config.memory_throttling_factor
    field = "$.memoryThrottlingFactor"
    found = []
    if factor is not None and not 0 < factor <= 1:
        found.append(
            ConfigError(
                ConfigErrorCode.FACTOR_RANGE,
                f"invalid configuration: memoryThrottlingFactor {number_text(factor)} must be "
                "greater than 0 and less than or equal to 1.0",
                field,
            )
        )
    elif beta and not enabled and factor is not None and factor != _ALPHA_FACTOR:
        # 0.9 is let through, so that files written for 1.36 still start. kubelet's own text for
        # this one could not be read.
        found.append(
            ConfigError(
                ConfigErrorCode.FACTOR_GATE_OFF,
                f"invalid configuration: memoryThrottlingFactor {number_text(factor)} requires "
                "MemoryQoS feature gate to be enabled",
                field,
            )
        )
    return found


def _policy_errors(config: KubeletConfig, *, enabled: bool) -> list[ConfigError]:
    policy = config.memory_reservation_policy or Policy.NONE
    field = "$.memoryReservationPolicy"
    if policy not in tuple(Policy):
        return [
            ConfigError(
                ConfigErrorCode.POLICY_UNKNOWN,
                f'invalid configuration: option "{policy}" specified for memoryReservationPolicy. '
                'Valid options are "None" or "TieredReservation"',
                field,
            )
        ]
    if policy == Policy.TIERED and not enabled:
        return [
            ConfigError(
                ConfigErrorCode.POLICY_GATE_OFF,
                f'invalid configuration: memoryReservationPolicy "{policy}" requires MemoryQoS '
                "feature gate to be enabled",
                field,
            )
        ]
    return []


def _enforce_errors(config: KubeletConfig) -> list[ConfigError]:
    keys = config.enforce_node_allocatable
    field = "$.enforceNodeAllocatable"
    found = []

    def refuse(code: ConfigErrorCode, message: str) -> None:
        found.append(ConfigError(code, f"invalid configuration: {message}", field))

    for key in sorted(set(keys) - _ENFORCE_KEYS):
        refuse(ConfigErrorCode.ENFORCE_UNKNOWN, f'option "{key}" for enforceNodeAllocatable')
    for key in sorted({key for key in keys if keys.count(key) > 1}):
        refuse(ConfigErrorCode.ENFORCE_DUPLICATE, f'enforceNodeAllocatable has "{key}" twice')
    if "none" in keys and len(set(keys)) > 1:
        refuse(
            ConfigErrorCode.ENFORCE_NONE_EXCLUSIVE,
            'enforceNodeAllocatable may not contain others beside "none"',
        )
    for name, cgroup, code in (
        (
            "system-reserved",
            config.system_reserved_cgroup,
            ConfigErrorCode.SYSTEM_RESERVED_CGROUP_MISSING,
        ),
        (
            "kube-reserved",
            config.kube_reserved_cgroup,
            ConfigErrorCode.KUBE_RESERVED_CGROUP_MISSING,
        ),
    ):
        both = {name, f"{name}-compressible"}
        if both & set(keys) and not cgroup:
            refuse(code, f'"{name}" in enforceNodeAllocatable needs its cgroup field')
        if both <= set(keys):
            refuse(
                ConfigErrorCode.ENFORCE_COMPRESSIBLE_CONFLICT,
                f'enforceNodeAllocatable has both "{name}" and "{name}-compressible"',
            )
    if not config.cgroups_per_qos and set(keys) - {"none"}:
        refuse(
            ConfigErrorCode.ENFORCE_NEEDS_CGROUPS_PER_QOS,
            "enforceNodeAllocatable needs cgroupsPerQOS",
        )
    return found
