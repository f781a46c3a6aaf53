"""The audit's rules: the vectors, and what they leave out."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from memqos.cgroup import parse_pressure
from memqos.memory_qos.audit import AuditedCgroup, Environment, audit, cleared_by
from memqos.memory_qos.events import Reading, event_delta, event_findings
from memqos.memory_qos.findings import Finding, FindingCode, Severity


VECTORS = Path(__file__).parents[2] / "data" / "vectors" / "memoryqos-audit.json"
CASES = json.loads(VECTORS.read_text(encoding="utf-8"))["cases"]
MIB = 1 << 20

# What a finding of the vectors calls its figures, and where ours has them.
FIGURES = {
    "want": "expected",
    "got": "actual",
    "ancestor": "ancestor",
    "effective": "actual",
    "delta": "actual",
    "children": "expected",
    "parent": "actual",
    "kernel": "actual",
    "full_avg10": "actual",
}


def parents(given: Mapping[str, Any], roles: list[str]) -> dict[str, str]:
    """Return each role's parent, as far as the case has one."""
    found = {
        child: parent for parent, inner in given.get("children", {}).items() for child in inner
    }
    for role in roles:
        kind, _, name = role.partition(":")
        candidates = {
            "container": [f"pod:{name.rpartition('/')[0]}"],
            "pod": ["kubepods"] if name.startswith("g") else ["qos:burstable", "kubepods"],
            "qos": ["kubepods"],
        }.get(kind, [])
        above = next((item for item in candidates if item in roles), None)
        if above is not None:
            found.setdefault(role, above)
    return found


def findings(given: Mapping[str, Any]) -> Iterator[Finding]:
    """Audit a case; a cgroup's path is made of the roles above it."""
    env = given["env"]
    options = env.get("mountOptions")
    desired, actual = given.get("desired", {}), given.get("actual", {})
    roles = list(dict.fromkeys([*desired, *actual]))
    above = parents(given, roles)

    def path(role: str) -> str:
        start = path(above[role]) if role in above else ""
        return f"{start}/{role.replace('/', '|')}"

    yield from audit(
        [
            AuditedCgroup(
                path=path(role),
                role=role,
                desired=desired.get(role),
                actual=actual.get(role),
                usage=given.get("usage", {}).get(role),
                complete=role in given.get("children", {}),
            )
            for role in roles
        ],
        Environment(
            cgroup_version=env["cgroupVersion"],
            hybrid=env.get("hybrid", False),
            kernel=env.get("kernel"),
            page_size=env.get("pageSize", 4096),
            recursive=None if options is None else "memory_recursiveprot" in options,
        ),
    )
    for role in dict.fromkeys([*given.get("events", {}), *given.get("psi", {})]):
        samples = given.get("events", {}).get(role)
        text = given.get("psi", {}).get(role)
        pressure = None if text is None else parse_pressure(text)
        before, after = (
            Reading(item.get("id"), item.get("all"), item.get("local"))
            for item in ((samples["before"], samples["after"]) if samples else ({}, {}))
        )
        delta = event_delta(before, after._replace(pressure=pressure))
        yield from event_findings(f"/{role.replace('/', '|')}", delta)


def role_of(path: str | None) -> str | None:
    """Return the role that a path was made of."""
    return None if path is None else path.rpartition("/")[2].replace("|", "/")


@pytest.mark.parametrize("case", [pytest.param(case, id=case["name"]) for case in CASES])
def test_vectors(case: Any) -> None:
    """Every case: the same findings, and the same figures in them."""
    found = list(findings(case["input"]))
    wanted = case["expect"]["findings"]

    assert sorted(
        (str(item.code), str(item.severity), role_of(item.path) or "") for item in found
    ) == sorted((item["code"], item["severity"], item.get("role", "")) for item in wanted)
    for item in wanted:
        same = [
            other
            for other in found
            if (other.code, role_of(other.path)) == (item["code"], item.get("role"))
            and item.get("file") in (None, other.file)
        ]
        assert len(same) == 1, item
        for key, attribute in FIGURES.items():
            if key in item:
                value = getattr(same[0], attribute)
                value = role_of(value) if key == "ancestor" else value
                assert value == str(item[key]), key


# --- rules that the vectors leave out ------------------------------------------------------------


def cgroup(
    path: str, role: str = "", desired: Any = None, usage: int | None = None, **files: Any
) -> AuditedCgroup:
    """Make a cgroup; files are given as `min`, `low`, `high`, `max` and others."""
    actual = {f"memory.{name.replace('_', '.')}": str(value) for name, value in files.items()}
    return AuditedCgroup(path=path, role=role, desired=desired, actual=actual, usage=usage)


def told(*cgroups: AuditedCgroup, **environment: Any) -> list[tuple[str, str, str | None]]:
    """Audit, and return code, severity and path."""
    return [
        (str(item.code), str(item.severity), item.path)
        for item in audit(cgroups, Environment(**environment))
    ]


def gcache(
    pod_min: int, container_min: int, *, slack: int = 0
) -> list[tuple[str, str, str | None]]:
    """Audit a Guaranteed pod of 256 MiB whose container reads a file larger than that."""
    limit = 256 * MIB
    return told(
        cgroup("/k/p", "pod:g1", min=pod_min, max=limit + slack),
        cgroup("/k/p/s", min=0, max="max"),
        cgroup("/k/p/c", "container:g1/c", min=container_min, max=limit),
    )


def test_page_cache_is_killed_where_the_pod_is_full_of_min() -> None:
    """Seen on 6.1 and 6.12: OOM with min = max on both, and in none of the variants."""
    full = 256 * MIB

    assert gcache(full, full) == [
        ("min-equals-max", "warning", "/k/p"),
        ("min-equals-max", "warning", "/k/p/c"),
    ]
    assert gcache(full // 2, full // 2) == []
    assert gcache(0, 0) == []
    assert gcache(full, 0) == [("min-equals-max", "info", "/k/p")]
    assert gcache(full, full, slack=8 * MIB) == [("min-equals-max", "info", "/k/p/c")]


def test_two_containers_fill_a_pod() -> None:
    """What counts is the children's sum, even where no cgroup has min equal to max."""
    assert told(
        cgroup("/p", "pod:g", min=0, max=300),
        cgroup("/p/a", "container:g/a", min=100, max=200),
        cgroup("/p/b", "container:g/b", min=200, max="max"),
    ) == [("min-equals-max", "warning", "/p")]


def test_reserved_cgroups_reclaim_their_own_cache() -> None:
    """A reserved system.slice gets min = max: its children have none, so its limit reclaims."""
    assert told(
        cgroup("/system.slice", "system-reserved", min=100, max=100),
        cgroup("/system.slice/sshd.service", min=0, max="max"),
    ) == [("min-equals-max", "info", "/system.slice")]


@pytest.mark.parametrize(
    ("usage", "recursive", "expected"),
    [
        (MIB, False, [("recursiveprot-missing", "warning", None)]),
        (0, False, [("recursiveprot-missing", "info", None)]),
        (MIB, True, []),
        (MIB, None, []),
    ],
)
def test_cruns_inner_cgroup_relies_on_the_mount_option(
    usage: int, recursive: bool | None, expected: list[tuple[str, str, str | None]]
) -> None:
    """The `container` of crun below the scope has no values of its own."""
    assert (
        told(
            cgroup("/k", "kubepods", usage=MIB, min=MIB),
            cgroup("/k/p", "pod:g", usage=MIB, min=MIB),
            cgroup("/k/p/crio-1", "container:g/c", usage=MIB, min=MIB),
            cgroup("/k/p/crio-1/container", usage=usage, min=0),
            recursive=recursive,
        )
        == expected
    )


@pytest.mark.parametrize(
    ("mglru", "expected"), [(True, ["low-not-floor"]), (False, []), (None, [])]
)
def test_memory_low_is_no_floor_under_mglru(mglru: bool | None, expected: list[str]) -> None:
    """It is said where memory.low protects anything at all."""
    assert [code for code, _, _ in told(cgroup("/k", usage=MIB, low=MIB), mglru=mglru)] == expected
    assert told(cgroup("/k", usage=MIB, min=MIB), mglru=mglru) == []


def test_nested_cgroup_root() -> None:
    """Nobody writes values above a cgroupRoot, so all below is void, and that is named."""
    want = {"memory.min": str(MIB)}
    found = list(
        audit(
            [
                cgroup("/edge.slice", usage=MIB, min=0),
                cgroup("/edge.slice/k", "kubepods", want, usage=MIB, min=MIB),
            ],
            Environment(),
        )
    )

    assert [(item.code, item.path, item.ancestor) for item in found] == [
        ("ineffective-ancestor", "/edge.slice/k", "/edge.slice")
    ]


def test_top_level_memory_min_beyond_the_machine() -> None:
    """What is promised as hard protection cannot be more than there is."""
    found = told(cgroup("/a", min=3 * MIB), cgroup("/b", min=2 * MIB), capacity=4 * MIB)

    assert found == [("protection-exceeds-allocatable", "error", None)]


@pytest.mark.parametrize(("own", "expected"), [(90, []), (95, ["warning"]), (101, ["error"])])
def test_kubepods_beyond_allocatable(own: int, expected: list[str]) -> None:
    """From what kubectl shows on a warning, from the absolute allocatable on an error."""
    found = told(
        cgroup("/k", "kubepods", min=own),
        allocatable_absolute=100,
        allocatable_status=90,
        page_size=1,
    )

    assert [severity for _, severity, _ in found] == expected


@pytest.mark.parametrize("key", ["high", "oom_kill"])
def test_old_kernel_with_symptoms(key: str) -> None:
    """Throttling on a kernel before 5.9 makes its warning an error; an OOM kill does not."""
    counts = {key: 1}
    delta = event_delta(Reading(local={key: 0}), Reading(local=counts))
    found = list(
        audit(
            [cgroup("/a", high=MIB)],
            Environment(kernel="5.4.0"),
            event_findings("/a", delta),
        )
    )
    kernel = next(item for item in found if item.code is FindingCode.KERNEL_LIVELOCK)

    assert kernel.severity is (Severity.ERROR if key == "high" else Severity.WARNING)


def test_unjudged_files_are_left_alone() -> None:
    """Where nobody can tell what a file should be, it is not compared."""
    item = cgroup("/k", "kubepods", {}, max=MIB)

    assert told(item) == [("unexpected", "warning", "/k")]
    assert (
        told(
            AuditedCgroup(
                path="/k",
                role="kubepods",
                desired={},
                actual=item.actual,
                unjudged=("memory.max",),
            )
        )
        == []
    )


def test_oom_group_is_compared_where_it_is() -> None:
    """The memory.oom.group of containers is 1, unless singleProcessOOMKill is set."""
    want = {"memory.oom.group": "1"}

    assert told(cgroup("/c", "container:x/c", want, oom_group=0)) == [
        ("value-missing", "error", "/c")
    ]
    assert told(cgroup("/c", "container:x/c", want, oom_group=1)) == []
    assert told(cgroup("/c", "container:x/c", want)) == []


def test_everything_has_a_remedy_but_what_is_by_design() -> None:
    """What is at least a warning says what to do."""
    for case in CASES:
        for item in findings(case["input"]):
            assert item.remedy or item.severity is Severity.INFO, item


# --- what clears what a rollback leaves: the table of the specification -------------------------

OFF_37 = Environment(kubelet_minor=37, gate_on=False)
OFF_36 = Environment(kubelet_minor=36, gate_on=False)
NONE_37 = Environment(kubelet_minor=37, gate_on=True)


@pytest.mark.parametrize(
    ("environment", "role", "file", "expected"),
    [
        (OFF_37, "container:b/c", "memory.high", "restart, or resize"),
        (OFF_37, "container:b/c", "memory.low", "restart"),
        (NONE_37, "container:b/c", "memory.low", "restart, or resize"),
        (OFF_36, "container:b/c", "memory.high", "restart"),
        (OFF_37, "pod:b", "memory.low", "a new pod"),
        (OFF_37, "kubepods", "memory.min", "kubelet's start"),
        (NONE_37, "qos:burstable", "memory.low", "kubelet, within a minute"),
        (OFF_36, "qos:burstable", "memory.low", "nothing"),
        (OFF_37, "system-reserved", "memory.min", "nothing"),
        (OFF_37, "", "memory.min", "whoever"),
    ],
)
def test_what_clears_it(environment: Environment, role: str, file: str, expected: str) -> None:
    """Restart, resize, kubelet's start, or nothing."""
    assert cleared_by(role, file, environment).startswith(expected)


def test_a_restart_alone_does_not_mean_a_resize() -> None:
    """With the gate off a resize carries memory.high=max, but neither min nor low."""
    assert "resize" not in cleared_by("container:b/c", "memory.min", OFF_37)
    assert "resize" not in cleared_by("container:b/c", "memory.high", OFF_36)
