"""check-oom-config, select-victim, list-killable and replay-oom, as a user runs them."""

import errno
import gzip
import json
import math
import os
import tarfile
from collections.abc import Mapping
from itertools import product
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from memqos.oom.config import DEFAULT_TRIGGER
from tests.support.program import memqos


DATA = Path(__file__).parents[1] / "data"
STORM = DATA / "recordings" / "starve-classic.jsonl.gz"
TRIGGER = json.loads((DATA / "vectors" / "oom-trigger.json").read_text(encoding="utf-8"))


def config_file(folder: Path, **fields: Any) -> Path:
    """Write an OOMConfig in a machine configuration of several documents."""
    path = folder / "config.yaml"
    document = {"apiVersion": "v1alpha1", "kind": "OOMConfig", **fields}
    path.write_text(f"version: v1alpha1\nmachine: {{}}\n---\n{json.dumps(document)}\n")
    return path


@pytest.mark.parametrize(
    "arguments",
    [
        ("check-oom-config", "-", "--config-patch", "-"),
        ("check-oom-config", STORM, "--config-patch", "-", "--config-patch", "-"),
        ("select-victim", "--config", "-", "--preferences", "-"),
        ("list-killable", "-f", "-", "--config", "-"),
        ("replay-oom", "-", "--config", "-"),
        ("replay-oom", STORM, "--config", "-", "--compare", "-"),
    ],
)
def test_standard_input_is_read_once(arguments: tuple[str | Path, ...]) -> None:
    """A second - would read nothing and pass for an empty file."""
    answer = memqos(*arguments)
    assert (answer.code, answer.out) == (2, "")
    assert "only one input can be '-', standard input" in answer.err


class TestCheckOOMConfig:
    """Valid is 0, invalid is 1."""

    def test_valid(self, tmp_path: Path) -> None:
        """The configuration that is in effect, with the defaults."""
        answer = memqos(
            "check-oom-config", config_file(tmp_path, sampleInterval="1s"), "-o", "json"
        )
        assert answer.code == 0
        assert answer.json["valid"] is True
        assert answer.json["effective"]["triggerExpression"] == DEFAULT_TRIGGER
        assert answer.json["effective"]["sampleIntervalNanoseconds"] == 10**9
        assert answer.json["warnings"] == []

    def test_invalid(self, tmp_path: Path) -> None:
        """Every error, with the place within the expression."""
        path = config_file(
            tmp_path, triggerExpression="true &&\n 1", cgroupRankingExpression="disk"
        )
        answer = memqos("check-oom-config", path, "-o", "json")
        assert answer.code == 1
        assert answer.json["effective"] is None
        found = [(error["field"], error["line"]) for error in answer.json["errors"]]
        assert ("cgroupRankingExpression", 1) in found
        assert any(field == "triggerExpression" for field, _ in found)
        text = memqos("check-oom-config", path)
        assert text.code == 1
        assert f"{path}: cgroupRankingExpression:1:1: OOM cgroup scoring" in text.out

    def test_warnings(self, tmp_path: Path) -> None:
        """Valid and unwise is still 0."""
        answer = memqos("check-oom-config", config_file(tmp_path, triggerExpression="true"))
        assert answer.code == 0
        assert "warning trigger-constant triggerExpression" in answer.out

    def test_patch(self, tmp_path: Path) -> None:
        """A patch is laid over."""
        base = config_file(tmp_path, triggerExpression="false")
        patch = tmp_path / "patch.yaml"
        patch.write_text("apiVersion: v1alpha1\nkind: OOMConfig\nsampleInterval: 2s\n")
        answer = memqos("check-oom-config", base, "--config-patch", patch, "-o", "json")
        assert answer.json["effective"]["triggerExpression"] == "false"
        assert answer.json["effective"]["sampleIntervalNanoseconds"] == 2 * 10**9

    def test_swap(self, tmp_path: Path) -> None:
        """Variables of swap are unknown unless asked for; no swap is no pressure."""
        trigger = 'swap_free < MiB && time_since_trigger > duration("5s")'
        path = config_file(tmp_path, triggerExpression=trigger)
        refused = memqos("check-oom-config", path)
        assert refused.code == 1
        assert "undeclared reference to 'swap_free'" in refused.out
        answer = memqos("check-oom-config", path, "--swap-variables", "-o", "json")
        assert answer.code == 0
        (warning, *_) = answer.json["warnings"]
        assert (warning["code"], warning["message"].endswith("or without swap")) == (
            "true-on-zero",
            True,
        )

    @pytest.mark.parametrize("text", ["a: [", "\x00", "&a [*a"])
    def test_no_yaml(self, tmp_path: Path, text: str) -> None:
        """No answer is 3, in one line."""
        (tmp_path / "c").write_text(text)
        answer = memqos("check-oom-config", tmp_path / "c")
        assert (answer.code, answer.out) == (3, "")
        assert len(answer.err.splitlines()) == 1


def cgroup(folder: Path, **files: str) -> None:
    """Write a cgroup's files; _ stands for the dot."""
    folder.mkdir(parents=True)
    for name, text in files.items():
        (folder / name.replace("_", ".")).write_text(f"{text}\n")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Return a cgroup tree as Talos has it."""
    root = tmp_path / "cgroup"
    cgroup(root / "kubepods/besteffort/pod1", memory_current="100", memory_max="max")
    cgroup(root / "kubepods/burstable/pod2", memory_current="900", memory_max="max")
    cgroup(root / "kubepods/pod3", memory_current="950", memory_max="1000")
    cgroup(root / "podruntime/kubelet", memory_current="50", memory_max="max")
    cgroup(root / "system/apid", memory_current="50", memory_max="max")
    return root


class TestSelectVictim:
    """Exit 0 whenever it could answer."""

    def test_victim(self, tree: Path) -> None:
        """Every candidate is there with its score and reason, in the order of enumeration."""
        answer = memqos("select-victim", "--cgroup-root", tree, "-o", "json")
        assert answer.code == 0
        document = answer.json
        assert document["outcome"] == "victim"
        assert document["victim"] == {
            "path": "/sys/fs/cgroup/kubepods/besteffort/pod1",
            "class": "Besteffort",
            "score": 100.0,
        }
        assert [(c["class"], c["score"], c["reason"]) for c in document["candidates"]] == [
            ("Besteffort", 100.0, "eligible"),
            ("Burstable", 450.0, "a-less-important-class-goes-first"),
            ("Guaranteed", 0.0, "limited"),
            ("Podruntime", 0.0, "score-not-positive"),
            ("System", 0.0, "score-not-positive"),
        ]

    def test_no_strict(self, tree: Path) -> None:
        """The highest score, whatever its class."""
        answer = memqos("select-victim", "--cgroup-root", tree, "--no-strict")
        assert answer.code == 0
        assert answer.out.startswith("victim /sys/fs/cgroup/kubepods/burstable/pod2")

    def test_nobody(self, tree: Path) -> None:
        """That is an answer too."""
        answer = memqos("select-victim", "--cgroup-root", tree, "--ranking", "0.0", "-o", "json")
        assert answer.code == 0
        assert (answer.json["outcome"], answer.json["victim"]) == ("none", None)

    def test_infinity_is_json(self, tree: Path) -> None:
        """JSON has no number for it."""
        answer = memqos(
            "select-victim", "--cgroup-root", tree, "--ranking", "1.0 / 0.0", "-o", "json"
        )
        assert answer.json["victim"]["score"] == "Infinity"
        assert len(answer.json["tied"]) == 0  # other classes do not tie under strict order

    def test_preferences(self, tree: Path, tmp_path: Path) -> None:
        """The preferred pod goes first; who is never chosen is told with the reason."""
        uids = [f"5f0c9a1e-0000-4000-8000-00000000000{number}" for number in range(3)]
        pods = tree / "kubepods/besteffort"
        for uid in uids:
            cgroup(pods / f"pod{uid}", memory_current="7", memory_max="max")
        preferences = tmp_path / "pods"
        words = ("prefer", "avoid", "never")
        preferences.write_text(
            "".join(f"{uid} {word}\n" for uid, word in zip(uids, words, strict=True))
        )
        arguments = ("select-victim", "--cgroup-root", tree, "--preferences", preferences)
        document = memqos(*arguments, "-o", "json").json
        assert document["victim"]["path"] == f"/sys/fs/cgroup/kubepods/besteffort/pod{uids[0]}"
        assert [(c["preference"], c["reason"]) for c in document["candidates"][:5]] == [
            ("plain", "another-preference-goes-first"),
            ("prefer", "eligible"),
            ("avoid", "another-preference-goes-first"),
            ("never", "never"),
            ("plain", "another-preference-goes-first"),
        ]
        assert "preferences decide, then the least important" in " ".join(
            memqos(*arguments).out.split()
        )

    def test_xattrs(self, tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """What cgroups say of themselves counts on request, on a live tree."""

        def getxattr(path: str, name: str) -> bytes:
            if path.endswith("/pod2") and name == "trusted.oomd_prefer":
                return b"1"
            raise OSError(errno.ENODATA, "No data available")

        monkeypatch.setattr(os, "getxattr", getxattr)
        plain = memqos("select-victim", "--cgroup-root", tree, "-o", "json").json
        assert plain["victim"]["path"].endswith("/pod1")
        assert "preference" not in plain["candidates"][0]
        asked = memqos("select-victim", "--cgroup-root", tree, "--xattrs", "-o", "json").json
        assert asked["victim"]["path"].endswith("/pod2")
        archive = tmp_path / "node.tar"
        with tarfile.open(archive, "w") as tar:
            tar.add(tree, "sys/fs/cgroup")
        assert memqos("select-victim", "--root", archive).code == 0
        assert memqos("select-victim", "--root", archive, "--xattrs").code == 2

    def test_swap(self, tree: Path) -> None:
        """The file is read, ranked by and told on request only."""
        (tree / "kubepods/burstable/pod2/memory.swap.current").write_text("64\n")
        ranking = ("--ranking", "double(memory_swap_current.orValue(0u))")
        arguments = ("select-victim", "--cgroup-root", tree, "-o", "json")
        document = memqos(*arguments, *ranking, "--swap-variables").json
        assert document["victim"]["path"] == "/sys/fs/cgroup/kubepods/burstable/pod2"
        assert [c["memorySwapCurrent"] for c in document["candidates"]] == [None, 64] + [None] * 3
        assert memqos(*arguments, *ranking).code == 1
        assert "memorySwapCurrent" not in memqos(*arguments).json["candidates"][1]

    def test_layout_is_ambiguous(self, tree: Path) -> None:
        """Both trees stand: no answer, unless told."""
        (tree / "kubepods.slice").mkdir()
        answer = memqos("select-victim", "--cgroup-root", tree)
        assert answer.code == 3
        assert "--layout" in answer.err
        assert memqos("select-victim", "--cgroup-root", tree, "--layout", "talos").code == 0

    @pytest.mark.parametrize("output", ["text", "json", "yaml"])
    def test_names_that_are_no_text(self, tree: Path, output: str) -> None:
        """A cgroup's name is bytes; those that are not UTF-8 are shown in another way."""
        cgroup(tree / os.fsdecode(b"kubepods/besteffort/pod\xff"), memory_current="1000")
        answer = memqos("select-victim", "--cgroup-root", tree, "-o", output)
        shown = r"pod\udcff" if output == "text" else "pod?"
        assert (answer.code, shown in answer.out) == (0, True)

    def test_invalid_ranking(self, tree: Path) -> None:
        """The expression is no."""
        answer = memqos("select-victim", "--cgroup-root", tree, "--ranking", "1")
        assert answer.code == 1
        assert "expression output type is int, expected double" in answer.err

    def test_no_tree(self, tmp_path: Path) -> None:
        """No answer."""
        answer = memqos("select-victim", "--cgroup-root", tmp_path / "gone")
        assert answer.code == 3
        assert len(answer.err.splitlines()) == 1


POD = """\
apiVersion: v1
kind: Pod
metadata: {name: %s, namespace: %s}
spec:
  containers: [{name: main, resources: {%s}}]
"""


class TestListKillable:
    """Fit for CI."""

    @pytest.fixture
    def manifests(self, tmp_path: Path) -> Path:
        """Return two pods: one protected, one not."""
        path = tmp_path / "pods.yaml"
        safe = "limits: {memory: 1Gi, cpu: 1}"
        path.write_text(f"{POD % ('db', 'prod', safe)}---\n{POD % ('job', 'batch', '')}")
        return path

    def test_pods(self, manifests: Path) -> None:
        """In the order of the manifests."""
        answer = memqos("list-killable", "-f", manifests, "-o", "json")
        assert answer.code == 0
        found = [(pod["pod"], pod["class"], pod["eligible"]) for pod in answer.json["pods"]]
        assert found == [
            ("Pod/prod/db", "Guaranteed", False),
            ("Pod/batch/job", "Besteffort", True),
        ]
        assert answer.json["pods"][0]["memoryMax"] == 1024**3

    def test_text(self, manifests: Path) -> None:
        """Who goes first stands first."""
        lines = memqos("list-killable", "-f", manifests).out.splitlines()
        assert lines[1].startswith("Pod/batch/job")
        assert " never " in lines[2]

    @pytest.mark.parametrize(
        ("pattern", "code"), [("prod/*", 0), ("batch/job", 1), ("*/*", 1), ("batch/jo", 0)]
    )
    def test_fail_on(self, manifests: Path, pattern: str, code: int) -> None:
        """Those that must survive."""
        answer = memqos("list-killable", "-f", manifests, "--fail-on", pattern)
        assert answer.code == code
        assert ("Pod/batch/job must survive" in answer.err) is (code == 1)

    def test_failing_ranking(self, manifests: Path, tmp_path: Path) -> None:
        """Where the expression fails it cannot be told: neither never nor that it can be."""
        ranking = "double(memory_max.value())"  # of no limit there is no value
        config = config_file(tmp_path, cgroupRankingExpression=ranking)
        arguments = ("list-killable", "-f", manifests, "--config", config, "--fail-on", "batch/*")
        answer = memqos(*arguments)
        assert answer.code == 1
        (row,) = (line for line in answer.out.splitlines() if line.startswith("Pod/batch/job"))
        assert " unknown " in row
        assert "never" not in row
        assert "cannot be told: the ranking expression fails for it" in answer.err
        assert "can be killed" not in answer.err
        pod = memqos(*arguments, "-o", "json").json["pods"][1]
        assert (pod["eligible"], pod["order"]) == (None, None)

    def test_wrong_pattern(self, manifests: Path) -> None:
        """Wrong usage."""
        assert memqos("list-killable", "-f", manifests, "--fail-on", "prod").code == 2

    def test_swap(self, manifests: Path, tmp_path: Path) -> None:
        """A ranking by swap is judged at 1 GiB of it, as one by memory is."""
        ranking = "memory_max.hasValue() ? 0.0 : double(memory_swap_current.orValue(0u))"
        config = config_file(tmp_path, cgroupRankingExpression=ranking)
        arguments = ("list-killable", "-f", manifests, "--config", config)
        assert memqos(*arguments).code == 1
        pods = memqos(*arguments, "--swap-variables", "-o", "json").json["pods"]
        assert [pod["eligible"] for pod in pods] == [False, True]

    def test_invalid_config(self, manifests: Path, tmp_path: Path) -> None:
        """Nothing is judged with a broken expression."""
        config = config_file(tmp_path, cgroupRankingExpression="1")
        answer = memqos("list-killable", "-f", manifests, "--config", config)
        assert (answer.code, answer.out) == (1, "")


class TestReplayOOM:
    """A recording of a real kernel."""

    def test_storm(self) -> None:
        """One fire, its clauses and its victim."""
        answer = memqos("replay-oom", STORM, "-o", "json")
        assert answer.code == 0
        fired = [step for step in answer.json["steps"] if step["outcome"] == "fire"]
        assert len(fired) == 1
        assert [clause["value"] for clause in fired[0]["clauses"]] == [True, True, True]
        assert answer.json["summary"]["victims"] == [fired[0]["victim"]]
        assert answer.json["layout"] == "talos"
        text = memqos("replay-oom", STORM)
        assert "60 samples: 1 fire, 59 no-fire" in text.out

    def test_guards(self, tmp_path: Path) -> None:
        """As watch-oom has them, and select-victim: the other pod goes."""
        uids = [f"1234abcd-0000-0000-0000-00000000000{number}" for number in (1, 2)]
        files = {"memory.current": "1000\n", "memory.max": "max\n"}
        recording, preferences = tmp_path / "r.jsonl", tmp_path / "pods"
        empty = {**files, "cgroup.events": "populated 0\n"}
        unknown = {"memory.current": "1000\n"}
        guards: list[tuple[dict[str, str], list[str | Path]]] = [
            (files, ["--preferences", preferences]),
            (files, ["--protect-uid", "UID"]),
            (empty, ["--skip-unpopulated"]),
            (unknown, ["--skip-unknown-limit"]),
        ]
        for (never, other), (held, arguments) in product((uids, uids[::-1]), guards):
            preferences.write_text(f"{never} never\n")
            pods = {f"kubepods/besteffort/pod{never}": held}
            pods[f"kubepods/besteffort/pod{other}"] = files
            recording.write_text(json.dumps({"t": 0, "tree": pods}) + "\n")
            root = tmp_path / f"{never}{arguments[0]}"
            for path, texts in pods.items():
                (root / path).mkdir(parents=True)
                for name, text in texts.items():
                    (root / path / name).write_text(text)
            here = [never if item == "UID" else item for item in arguments]
            victim = f"/sys/fs/cgroup/kubepods/besteffort/pod{other}"
            answer = memqos("replay-oom", recording, "--trigger", "true", *here, "-o", "json")
            assert answer.json["summary"]["victims"] == [victim]
            answer = memqos("select-victim", "--cgroup-root", root, *here, "-o", "json")
            assert answer.json["victim"]["path"] == victim

    def test_compare(self, tmp_path: Path) -> None:
        """Two configurations side by side."""
        config = config_file(tmp_path, triggerExpression="false")
        answer = memqos("replay-oom", STORM, "--compare", config, "-o", "json")
        assert answer.json["summary"]["outcomes"]["fire"] == 1
        assert answer.json["compared"]["summary"]["outcomes"] == {"no-fire": 60}
        text = memqos("replay-oom", STORM, "--compare", config)
        assert "second configuration\n60 samples: 60 no-fire" in text.out
        assert memqos("replay-oom", "-", "--compare", config).code == 2

    def test_standard_input(self) -> None:
        """Gzipped or not."""
        data = STORM.read_bytes()
        expected = memqos("replay-oom", STORM).out
        assert memqos("replay-oom", "-", stdin=data).out == expected
        assert memqos("replay-oom", "-", stdin=gzip.decompress(data)).out == expected

    def test_metrics(self) -> None:
        """With the classes by name, and time in nanoseconds."""
        answer = memqos("replay-oom", STORM, "--metrics", "-o", "json")
        metrics = answer.json["steps"][33]["metrics"]
        assert len(metrics) == 39
        assert metrics["qos_memory_full_avg10"]["System"] > 5
        assert metrics["time_since_trigger"] == 2**63 - 1

    @pytest.mark.parametrize("output", ["text", "json", "yaml"])
    @pytest.mark.parametrize("character", [0xDCFF, 0xD800, 0x1B])
    def test_names_that_are_no_text(self, tmp_path: Path, character: int, output: str) -> None:
        """JSON can hold halves of characters, and a recording of a live tree does."""
        files = {"memory.current": "1000\n", "memory.max": "max\n"}
        sample = {"t": 0, "tree": {f"kubepods/besteffort/pod{chr(character)}": files}}
        path = tmp_path / "r.jsonl"
        path.write_text(json.dumps(sample) + "\n")
        plot = ("--plot", tmp_path / "r.svg")
        answer = memqos("replay-oom", path, "--trigger", "true", "-o", output, *plot)
        assert (answer.code, answer.err) == (0, "")
        assert "kubepods/besteffort/pod" in answer.out
        svg = ET.parse(tmp_path / "r.svg").getroot()  # noqa: S314  # our own
        shown = chr(character).encode("unicode_escape").decode()
        assert f"kills pod{shown} (" in "".join(svg.itertext())

    @pytest.mark.parametrize("ending", ["svg", "html"])
    def test_plot(self, tmp_path: Path, ending: str) -> None:
        """A picture that says what fired, and parses."""
        path = tmp_path / f"storm.{ending}"
        assert memqos("replay-oom", STORM, "--sum-children", "--plot", path).code == 0
        text = path.read_text(encoding="utf-8")
        svg = text[text.index("<svg") : text.index("</svg>") + 6]
        ET.fromstring(svg)  # noqa: S314  # our own
        assert "OOM trigger over 29 s: 2 fires in 60 samples" in svg
        assert "kills pod5f0c9a1e-0004" in svg
        assert "holds" in svg
        assert memqos("replay-oom", STORM, "--plot", tmp_path / "x.png").code == 2

    def test_plot_with_nothing_to_say(self, tmp_path: Path) -> None:
        """No fire, no memory, faults only."""
        recording = tmp_path / "r.jsonl"
        broken = {"system": {"memory.pressure": "some avg10=0.00\n"}}
        recording.write_text(
            "".join(f'{{"t": {t}, "tree": {json.dumps(broken)}}}\n' for t in (0, 1))
        )
        assert memqos("replay-oom", recording, "--plot", tmp_path / "x.svg").code == 0
        assert "2 collect-error" in memqos("replay-oom", recording).out

    @pytest.mark.parametrize(
        ("data", "place"),
        [
            (b"", "no samples"),
            (b"{}\n", "line 1"),
            (b'{"t": 0, "tree": {}}\n{"t": 0', "line 2"),
            (b"\xff\xfe\n", "line 1"),
            (b"[" * 100_000, "line 1"),
            (b"\x1f\x8bgarbage", "read"),
            (gzip.compress(b'{"t": 0, "tree": {}}\n' * 1000, mtime=0)[:-20], "read"),
        ],
        ids=["empty", "no fields", "cut off", "binary", "deep", "no gzip", "gzip cut off"],
    )
    def test_broken_recordings(self, tmp_path: Path, data: bytes, place: str) -> None:
        """One line, and no answer."""
        path = tmp_path / "r"
        path.write_bytes(data)
        answer = memqos("replay-oom", path)
        assert (answer.code, answer.out) == (3, "")
        assert len(answer.err.splitlines()) == 1
        assert place in answer.err

    @pytest.mark.parametrize("seconds", ["1e308", "-1e300", "NaN", "Infinity"])
    def test_times_beyond_any_clock(self, tmp_path: Path, seconds: str) -> None:
        """The line and the field are told."""
        path = tmp_path / "r"
        path.write_text(f'{{"t": 0, "tree": {{}}}}\n{{"t": {seconds}, "tree": {{}}}}\n')
        answer = memqos("replay-oom", path, "--layout", "talos")
        assert (answer.code, answer.out) == (3, "")
        assert "line 2" in answer.err
        assert "$.t" in answer.err

    @pytest.mark.parametrize(
        "case",
        [
            pytest.param(case, id=case["id"])
            for case in TRIGGER["cases"]
            if "samples" in case and "previous_values" not in case
        ],
    )
    def test_vectors(self, tmp_path: Path, case: Mapping[str, Any]) -> None:
        """The cases that are samples, through the command."""
        interval = case["sample_interval_s"]
        since = case["time_since_trigger_s"]
        lines = [
            json.dumps({"t": number * interval, "tree": sample})
            for number, sample in enumerate(case["samples"])
        ]
        path = tmp_path / "r.jsonl"
        path.write_text("\n".join(lines))
        arguments = ["--trigger", case["expression"], "--interval", f"{interval}s"]
        if since is not None:
            first = since - (len(lines) - 1) * interval
            arguments += ["--time-since-trigger", f"{max(first, 0)}s"]
            if first < 0:
                pytest.skip("the trigger fired between the samples")
        answer = memqos(
            "replay-oom", path, *arguments, "--layout", "talos", "--metrics", "-o", "json"
        )
        assert answer.code == 0
        # An earlier sample that fires restarts the timer, which the case does not do.
        if not any(step["outcome"] == "fire" for step in answer.json["steps"][:-1]):
            last = answer.json["steps"][-1]
            assert last["outcome"] == case["expect"]["outcome"]
            for name, value in case["expect"].get("metrics", {}).items():
                assert last["metrics"][name] == pytest.approx(value, rel=1e-12)

    @pytest.mark.parametrize(
        "case", [pytest.param(case, id=case["id"]) for case in TRIGGER["sequences"]]
    )
    def test_sequences(self, tmp_path: Path, case: Mapping[str, Any]) -> None:
        """Cycle after cycle, through the command."""
        path = tmp_path / "r.jsonl"
        path.write_text("".join(f"{json.dumps(step)}\n" for step in case["steps"]))
        arguments = [
            "--trigger",
            case["expression"],
            "--interval",
            f"{case['sample_interval_s']}s",
        ]
        answer = memqos("replay-oom", path, *arguments, "--layout", "talos", "-o", "json")
        found = [(step["t"], step["outcome"]) for step in answer.json["steps"]]
        assert found == [(step["t"], step["outcome"]) for step in case["expect"]]
        assert all(math.isfinite(time) for time, _ in found)
