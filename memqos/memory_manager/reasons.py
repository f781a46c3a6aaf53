"""Verdicts and reason codes; both are public API."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple


__all__ = ["Reason", "Refusal", "Verdict"]


class Verdict(StrEnum):
    """What kubelet decides at its start.

    `EXACT`: it starts, and the state compares equal or is initialised. `TOLERATED`: it starts and
    re-baselines the state. `REJECTED`: the state was read and the start refused. `ERROR`: it
    never got to the comparison.
    """

    EXACT = "exact"
    TOLERATED = "tolerated"
    REJECTED = "rejected"
    ERROR = "error"


class Reason(StrEnum):
    """Why."""

    EQUAL = "equal"
    INITIALIZED = "initialized"
    POLICY_NONE_NOT_VALIDATED = "policy_none_not_validated"

    DRIFT_WITHIN_BOUND = "drift_within_bound"

    MACHINE_STATE_EMPTY_WITH_ASSIGNMENTS = "machine_state_empty_with_assignments"
    ASSIGNMENT_NUMA_MISSING = "assignment_numa_missing"
    ASSIGNMENT_RESOURCE_MISSING = "assignment_resource_missing"
    ASSIGNMENT_DOES_NOT_FIT = "assignment_does_not_fit"
    NODE_SET_DIFFERS = "node_set_differs"
    ASSIGNMENT_COUNT_DIFFERS = "assignment_count_differs"
    CELLS_DIFFER = "cells_differ"
    RESOURCE_SET_DIFFERS = "resource_set_differs"
    TOTAL_DIFFERS = "total_differs"
    SYSTEM_RESERVED_DIFFERS = "system_reserved_differs"
    ALLOCATABLE_DIFFERS = "allocatable_differs"
    GROUP_FREE_DIFFERS = "group_free_differs"
    GROUP_RESERVED_DIFFERS = "group_reserved_differs"
    HUGEPAGES_DIFFER = "hugepages_differ"
    DRIFT_EXCEEDS_BOUND = "drift_exceeds_bound"

    CHECKPOINT_CORRUPT = "checkpoint_corrupt"
    CHECKPOINT_INVALID_JSON = "checkpoint_invalid_json"
    POLICY_MISMATCH = "policy_mismatch"
    UNKNOWN_POLICY = "unknown_policy"
    POLICY_UNAVAILABLE = "policy_unavailable"
    NO_SYSTEM_RESERVED_MEMORY = "no_system_reserved_memory"
    RESERVED_MEMORY_MISMATCH = "reserved_memory_mismatch"
    RESERVED_MEMORY_UNKNOWN_NODE = "reserved_memory_unknown_node"
    OPTION_UNKNOWN = "option_unknown"
    OPTION_REQUIRES_GATE = "option_requires_gate"
    OPTION_BAD_VALUE = "option_bad_value"
    OPTION_NEGATIVE = "option_negative"
    OPTION_UNSUPPORTED_FOR_POLICY = "option_unsupported_for_policy"
    KUBELET_WOULD_PANIC = "kubelet_would_panic"
    CONFIG_INVALID = "config_invalid"


class Refusal(NamedTuple):
    """kubelet refuses its own configuration: the reason, and its message."""

    reason: Reason
    message: str
