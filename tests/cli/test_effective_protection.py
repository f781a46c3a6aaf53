"""``memqos effective-protection``: the vectors as trees of files, the tree, the picture."""

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from memqos.memory_qos.protection import CgroupMemory, effective_protection
from memqos_cli.output.protection_names import short_name, short_path, short_size
from memqos_cli.output.protection_plot import draw, plot_title, rows_of
from tests.support.cgroups import MIB, Tree, capture, captured, changed, scenario, write_tree
from tests.support.program import memqos


VECTORS = Path(__file__).parents[1] / "data" / "vectors" / "effective-protection.json"
CASES = json.loads(VECTORS.read_text(encoding="utf-8"))["cases"]


@pytest.mark.parametrize("case", [pytest.param(case, id=case["name"]) for case in CASES])
def test_vectors(case: Any, tmp_path: Path) -> None:
    """Every case as a tree of files below --cgroup-root: the same bytes, absolute paths."""
    given = case["input"]
    write_tree(
        tmp_path,
        {
            node["path"]: {
                "memory.current": node["usage"],
                "memory.min": node["min"],
                "memory.low": node["low"],
            }
            for node in given["nodes"]
        },
    )
    option = (
        "--memory-recursiveprot" if given["memoryRecursiveprot"] else "--no-memory-recursiveprot"
    )
    answer = memqos(
        "effective-protection",
        "--cgroup-root", tmp_path,
        "--reclaim-root", given["reclaimRoot"],
        "--page-size", str(given["pageSize"]),
        option,
        "-o", "json",
    )  # fmt: skip
    found = {item["path"]: item for item in answer.json["cgroups"]}

    assert (answer.code, answer.err) == (0, "")
    assert {
        path: {"emin": found[path]["effectiveMin"], "elow": found[path]["effectiveLow"]}
        for path in case["expect"]
    } == case["expect"]


# --- text ----------------------------------------------------------------------------------------


def rolled_back(name: str = "protect-full-6.1") -> Tree:
    """Return a tree whose ancestors were reset, as kubelet 1.37 does when the gate is off."""
    tree = captured(name, "t0-full-before")
    zero = {"memory.min": 0, "memory.low": 0}
    return changed(
        tree, {"/kubepods.slice": zero, "/kubepods.slice/kubepods-burstable.slice": zero}
    )


def test_where_protection_dies(tmp_path: Path) -> None:
    """Each void claim says so and names who is to blame; ids are short, lines are."""
    write_tree(tmp_path, rolled_back())
    answer = memqos("effective-protection", "--cgroup-root", tmp_path)
    lines = answer.out.splitlines()

    assert answer.code == 0
    assert max(map(len, lines)) <= 120
    by_name = {line.split()[0]: line for line in lines}
    assert "<= voids 2 claims" in by_name["kubepods.slice"]  # g1: pod and container
    assert "<= voids 2 claims" in by_name["-burstable.slice"]  # b1: pod and container
    assert by_name["-pod5f0c9a1e…0001.slice"].endswith("<- min void: kubepods.slice")
    assert by_name["-pod5f0c9a1e…0002.slice"].endswith("<- low void: -burstable.slice")
    assert "the mount's options are not known" in answer.err


def test_a_clean_tree_has_no_marks(tmp_path: Path) -> None:
    """What kubelet 1.37 writes holds."""
    answer = memqos(
        "effective-protection", "--cgroup-root", capture(tmp_path, "idle-systemd", "t0")
    )

    assert "<" not in answer.out


def test_only_one_pod(tmp_path: Path) -> None:
    """A pod is shown with its ancestors and computed with its siblings."""
    root = capture(tmp_path, "idle-systemd", "t0")
    pod = scenario("idle-systemd")["pods"]["b2"]
    every = memqos("effective-protection", "--cgroup-root", root, "-o", "json").json["cgroups"]
    uid = "5f0c9a1e-0003-4b6d-9c3a-0d2e6f7a0003"
    one = memqos("effective-protection", "--cgroup-root", root, "--pod", uid, "-o", "json").json
    paths = [item["path"] for item in one["cgroups"]]

    assert paths[:3] == ["/kubepods.slice", "/kubepods.slice/kubepods-burstable.slice", pod]
    assert len(paths) == 6  # sandbox and two containers
    assert [item for item in every if item["path"] in paths] == one["cgroups"]


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--reclaim-root", "/nowhere"], 3, "/nowhere: there is no such cgroup"),
        (["--pod", "a/b"], 3, "give its UID"),
        (["--pod", "a", "--pid", "1"], 2, "exclude each other"),
        (["--container", "a"], 2, "--container needs --pod"),
        (["--page-size", "1000"], 2, "no page size"),
        (["--plot", "x.png"], 2, "ends neither in"),
        (["--pods", "/nowhere"], 3, "/nowhere: No such file"),
    ],
)
def test_wrong(arguments: list[str], code: int, message: str, tmp_path: Path) -> None:
    """One line that says what is wrong."""
    write_tree(tmp_path, {"/a": {"memory.current": 1}})
    answer = memqos("effective-protection", "--cgroup-root", tmp_path, *arguments)

    assert (answer.code, answer.out) == (code, "")
    assert message in answer.err.splitlines()[-1]


@pytest.mark.parametrize(
    ("file", "text"),
    [("memory.min", "garbage\n"), ("memory.current", "-1\n"), ("memory.low", "1G\n")],
)
def test_malformed(file: str, text: str, tmp_path: Path) -> None:
    """A file that is no size is named."""
    write_tree(tmp_path, {"/a": {"memory.current": 1}, "/a/b": {file: text}})
    answer = memqos("effective-protection", "--cgroup-root", tmp_path)

    assert (answer.code, answer.err.count("\n")) == (3, 1)
    assert f"/a/b/{file}: expected bytes or max" in answer.err


def test_without_the_memory_controller(tmp_path: Path) -> None:
    """A cgroup without memory files is part of the tree, and has nothing."""
    write_tree(tmp_path, {"/a": {"memory.pressure": ""}, "/a/b": {"memory.current": 8192}})
    answer = memqos("effective-protection", "--cgroup-root", tmp_path, "-o", "json")

    assert [(item["usage"], item["effectiveMin"]) for item in answer.json["cgroups"]] == [
        (None, None),
        (8192, 0),
    ]


def test_names_cannot_steer_the_terminal(tmp_path: Path) -> None:
    """Control characters in a cgroup's name are escaped."""
    write_tree(tmp_path, {"/a\x1b[31m\nb c": {"memory.current": 4096}})
    answer = memqos("effective-protection", "--cgroup-root", tmp_path)

    assert "a\\x1b[31m\\nb c" in answer.out
    assert len(answer.out.splitlines()) == 2


@pytest.mark.parametrize(
    ("files", "kind"),
    [
        (["memory/cgroup.procs"], "a cgroup v1 hierarchy"),
        (["memory/cgroup.procs", "unified/cgroup.controllers"], "a cgroup v1 hybrid hierarchy"),
    ],
)
def test_cgroup_v1(files: list[str], kind: str, tmp_path: Path) -> None:
    """There is nothing to compute on cgroup v1."""
    for file in files:
        (tmp_path / file).parent.mkdir(exist_ok=True)
        (tmp_path / file).touch()
    answer = memqos("effective-protection", "--cgroup-root", tmp_path)

    assert answer.code == 3
    assert kind in answer.err


# --- names ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/kubepods.slice", "kubepods.slice"),
        ("/kubepods.slice/kubepods-burstable.slice", "-burstable.slice"),
        ("/k/pod5f0c9a1e-0002-4b6d-9c3a-0d2e6f7a0002", "pod5f0c9a1e…0002"),
        (f"/k/cri-containerd-{'0201' * 16}.scope", "cri-containerd-02010201…0201.scope"),
        ("/a/kubepods-x.slice", "kubepods-x.slice"),
        (f"/a/{'x' * 60}", f"{'x' * 35}…{'x' * 8}"),
    ],
)
def test_short_names(path: str, name: str) -> None:
    """Ids are cut in the middle, what systemd repeats of the parent is left out."""
    assert short_name(path) == name


def test_short_path() -> None:
    """Every level of a path is cut by itself."""
    assert short_path(f"/k/pod{'0a' * 16}/{'01' * 32}") == "/k/pod0a0a0a0a…0a0a/01010101…0101"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (1023, "1023"),
        (128 * MIB, "128Mi"),
        (255012864, "243.2Mi"),
        (3 * 2**40, "3Ti"),
        (2**60, "1024Pi"),
        (None, "?"),
        (2**63 - 1, "max"),
        ((2**63 - 1) // 4096 * 4096, "max"),
        ((2**63 - 1) // 65536 * 65536, "max"),
    ],
)
def test_short_sizes(value: int | None, text: str) -> None:
    """The largest unit, one decimal; whole pages of the largest value are max, too."""
    assert short_size(value) == text


# --- the picture ---------------------------------------------------------------------------------


def node(pods: int) -> list[CgroupMemory]:
    """Return kubepods without protection, and pods of 1, 2, … MiB that claim it all."""
    inner = [
        CgroupMemory(f"/k/p{size:04}", size * MIB, size * MIB, 0) for size in range(1, pods + 1)
    ]
    return [CgroupMemory("/k", sum(item.usage or 0 for item in inner), 0, 0), *inner]


def test_the_rest_is_summed() -> None:
    """The largest are drawn by themselves, and of the rest it is said what is lost."""
    found = effective_protection(node(100), recursive=True, page_size=4096)
    rows = rows_of(found, most=10)

    assert [row.label for row in rows] == [
        "k",
        *(f"p{size:04}" for size in range(100, 91, -1)),
        "91 more",
    ]
    assert rows[-1].usage == 91 * 92 // 2 * MIB
    assert rows[-1].claims == (91 * 92 // 2 * MIB, 0)
    assert rows[-1].lost == "91 with void protection"
    assert rows[0].lost == "voids 100 claims"
    assert rows[1].lost == "min void: k"


@pytest.mark.parametrize("ending", ["svg", "html"])
def test_plot(ending: str, tmp_path: Path) -> None:
    """The option draws next to the answer; names, sizes and what is lost are text."""
    write_tree(tmp_path / "tree", rolled_back())
    file = tmp_path / f"tree.{ending}"
    answer = memqos("effective-protection", "--cgroup-root", tmp_path / "tree", "--plot", file)
    text = file.read_text("utf-8")

    assert answer.code == 0
    assert answer.out.startswith("CGROUP")
    for words in (
        "Memory protection of 11 cgroups",
        "min void: kubepods.slice",
        "4 claims are void",
    ):
        assert words in text


@pytest.mark.parametrize("count", [0, 1, 40, 300])
def test_any_size(count: int, tmp_path: Path) -> None:
    """From an empty tree to hundreds of cgroups the picture stays one of limited height."""
    found = effective_protection(node(count)[: count or 0], recursive=True, page_size=4096)
    draw(found, str(tmp_path / "x.svg"))
    height = ET.parse(tmp_path / "x.svg").getroot().get("height", "")  # noqa: S314

    assert float(height.removesuffix("pt")) < 72 * 16


def test_titles() -> None:
    """One is singular."""
    found = effective_protection(node(1)[:1], recursive=True, page_size=4096)

    assert plot_title(found) == "Memory protection of 1 cgroup"


def test_huge_values(tmp_path: Path) -> None:
    """A memory.min of max neither breaks the scale nor the sums."""
    huge = 2**63 - 1
    cgroups = [CgroupMemory(f"/{name}", MIB, huge, huge) for name in "abc"]
    found = effective_protection(cgroups, recursive=True, page_size=4096)

    draw(found, str(tmp_path / "x.svg"))
    assert rows_of(found, most=1)[-1].claims == (huge, huge)
