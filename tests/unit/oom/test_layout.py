"""Which cgroups make up which class, in each way nodes are set up."""

import pytest

from memqos.errors import InputError
from memqos.oom.classes import OOMClass
from memqos.oom.guards import Guards, guarded_candidates
from memqos.oom.layout import LAYOUTS, children, detect_layout, expand, summed_children
from memqos.oom.preference import Preference
from memqos.oom.victim import find_candidates


TALOS = ["init", "system/a", "podruntime/kubelet", "kubepods/besteffort/pod1", "kubepods/pod2"]
CGROUPFS = ["init.scope", "system.slice/a.service", "kubepods/besteffort/pod1"]
SYSTEMD = ["init.scope", "system.slice/kubelet.service", "kubepods.slice/kubepods-pod2.slice"]


@pytest.mark.parametrize(
    ("directories", "expected"),
    [(TALOS, "talos"), (CGROUPFS, "cgroupfs"), (SYSTEMD, "systemd"), ([], "talos")],
)
def test_detect(directories: list[str], expected: str) -> None:
    """By what stands at the top."""
    assert detect_layout(directories).name == expected


def test_ambiguous() -> None:
    """Both drivers' trees stand after a switch: the wrong choice would kill the wrong pod."""
    with pytest.raises(InputError, match="--layout"):
        detect_layout(["kubepods", "kubepods.slice"])


def test_children() -> None:
    """Directories that only lead to others count too, in byte order."""
    assert children(["a/c", "a/b/x", "é", "z"]) == {
        "": ["a", "z", "é"],
        "a": ["b", "c"],
        "a/b": ["x"],
    }


def test_children_whose_names_are_no_text() -> None:
    """Bytes of a directory that are not UTF-8, and what JSON can hold, are in order too."""
    names = ["\udcff", "\ud800", "é", "a", "\udc80"]  # ff, eda080, c3a9, 61, 80
    assert children(names) == {"": ["a", "\udc80", "é", "\ud800", "\udcff"]}


def test_systemd_candidates() -> None:
    """Pods of the three classes, then the runtime, then the units; the runtime only once."""
    tree: dict[str, dict[str, str]] = {
        path: {}
        for path in (
            "init.scope",
            "kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod1.slice",
            "kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod2.slice",
            "kubepods.slice/kubepods-pod3.slice",
            "system.slice/containerd.service",
            "system.slice/ssh.service",
        )
    }
    found = find_candidates(tree, LAYOUTS["systemd"])
    assert [(item.path.rpartition("/")[2], item.oom_class.label) for item in found] == [
        ("kubepods-besteffort-pod1.slice", "Besteffort"),
        ("kubepods-burstable-pod2.slice", "Burstable"),
        ("kubepods-pod3.slice", "Guaranteed"),
        ("containerd.service", "Podruntime"),
        ("ssh.service", "System"),
    ]


def test_summed_children() -> None:
    """The pods of the two lower classes stand for the class."""
    below = {"kubepods/burstable": ["pod1", "pod2"], "kubepods": ["burstable"]}
    plain = list(expand(LAYOUTS["talos"].metrics, below))
    summed = list(expand(summed_children(LAYOUTS["talos"]).metrics, below))
    assert ("kubepods/burstable", OOMClass.BURSTABLE) in plain
    assert [path for path, oom_class in summed if oom_class is OOMClass.BURSTABLE] == [
        "kubepods/burstable/pod1",
        "kubepods/burstable/pod2",
    ]


def test_protected() -> None:
    """What is above victims is never one."""
    assert {"", "kubepods", "kubepods/besteffort", "system", "init"} <= LAYOUTS["talos"].protected


def test_guards() -> None:
    """Each holds back what it says, and none does so unasked."""
    folder = "kubepods/besteffort"
    tree = {
        f"{folder}/poda-b": {"memory.max": "max\n", "cgroup.events": "populated 1\n"},
        f"{folder}/podempty": {"memory.max": "1\n", "cgroup.events": "populated 0\nfrozen 0\n"},
        f"{folder}/podgone": {"memory.max": "garbage"},
        f"{folder}/podu_id": {"memory.max": "5\n"},
    }

    def names(guards: Guards) -> list[str]:
        found = guarded_candidates(tree, LAYOUTS["talos"], guards)
        return [candidate.path.rpartition("/pod")[2] for candidate in found]

    assert names(Guards()) == ["a-b", "empty", "gone", "u_id"]
    assert names(Guards(skip_unpopulated=True)) == ["a-b", "gone", "u_id"]
    assert names(Guards(skip_unknown_limit=True)) == ["a-b", "empty", "u_id"]
    never = Guards(protected=("u-id",))
    assert names(never) == names(Guards())  # so that it can be told why it is not chosen
    assert [
        (candidate.path.rpartition("/pod")[2], candidate.preference)
        for candidate in guarded_candidates(tree, LAYOUTS["talos"], never)
        if candidate.preference is not Preference.PLAIN
    ] == [("u_id", Preference.NEVER)]
