"""What an audit finds: codes, severities, the record. Codes are public API."""

from __future__ import annotations

from enum import StrEnum

from attrs import frozen

from memqos.memory_qos.hazards import Severity


__all__ = ["Finding", "FindingCode", "Severity"]


class FindingCode(StrEnum):
    """What kind."""

    CGROUP_V1 = "cgroup-v1"
    CGROUP_HYBRID = "cgroup-hybrid"
    KERNEL_LIVELOCK = "kernel-livelock"
    RECURSIVEPROT_MISSING = "recursiveprot-missing"
    LOW_NOT_FLOOR = "low-not-floor"
    CGROUP_MISSING = "cgroup-missing"
    FILE_MISSING = "file-missing"
    VALUE_MISSING = "value-missing"
    VALUE_DIFFERS = "value-differs"
    UNEXPECTED = "unexpected"
    STALE_HIGH = "stale-high"
    STALE_PROTECTION_NEUTRAL = "stale-protection-neutral"
    STALE_PROTECTION_EFFECTIVE = "stale-protection-effective"
    INEFFECTIVE_ANCESTOR = "ineffective-ancestor"
    PROTECTION_OVERCOMMIT = "protection-overcommit"
    PROTECTION_EXCEEDS_ALLOCATABLE = "protection-exceeds-allocatable"
    PROTECTION_LEAK = "protection-leak"
    MIN_EQUALS_MAX = "min-equals-max"
    HIGH_NOT_BELOW_MAX = "high-not-below-max"
    HIGH_BELOW_PROTECTION = "high-below-protection"
    THROTTLED = "throttled"
    MAX_HIT = "max-hit"
    OOM = "oom"
    OOM_KILL = "oom-kill"
    LOW_BREACHED = "low-breached"
    COUNTER_RESET = "counter-reset"
    PRESSURE = "pressure"
    LIVELOCK_SUSPECTED = "livelock-suspected"


@frozen(kw_only=True)
class Finding:
    """One finding.

    Attributes:
        code: what kind.
        severity: how bad.
        message: a sentence with the evidence.
        path: the cgroup, None for the node.
        file: the file, None where it is not about one.
        expected: what should be there, None if unknown.
        actual: what is there, None if nothing is.
        ancestor: the cgroup that makes a protection void, None where it is not about that.
        remedy: what to do about it, None where there is nothing to do.
    """

    code: FindingCode
    severity: Severity
    message: str
    path: str | None = None
    file: str | None = None
    expected: str | None = None
    actual: str | None = None
    ancestor: str | None = None
    remedy: str | None = None
