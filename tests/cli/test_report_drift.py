"""memqos report-drift."""

from __future__ import annotations

import csv
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from memqos.memory_manager.reasons import Reason, Verdict
from tests.support.program import PROGRAM, memqos, run_program, validator


COMMAND = "report-drift"
NODES = Path(__file__).parents[2] / "examples" / "nodes"
# From the files of the examples: recorded totals against MemTotal, and the span of /proc/iomem.
DRIFTED, LOST = 38559744, -547006464
BOUND = 113246208


def results(count: int, **changes: Any) -> str:
    """Write result lines of nodes that start."""
    document = {
        "apiVersion": "memqos/v1",
        "kind": "CheckpointValidation",
        "verdict": "tolerated",
        "reason": "drift_within_bound",
        "message": "kubelet starts",
        "kernelImageBytes": BOUND - (64 << 20),
        "driftPerNode": {"0": -4096, "1": 4096},
    } | changes
    return "".join(json.dumps(document | {"name": f"n{n:05}"}) + "\n" for n in range(count))


def fleet(folder: Path, count: int) -> Path:
    """Copy the drifted node many times."""
    for number in range(count):
        shutil.copytree(NODES / "drifted", folder / f"n{number:03}")
    return folder


# --- the report ----------------------------------------------------------------------------------


def test_json() -> None:
    """The examples, figure by figure."""
    answer = memqos(COMMAND, NODES, "-o", "json")
    report = answer.json

    assert answer.code == 1
    assert answer.err == ""
    assert [Path(node["name"]).name for node in report["nodes"]] == [
        "corrupt",
        "drifted",
        "lost-dimm",
    ]
    assert report["nodes"][1]["driftPerNode"] == {"0": -DRIFTED, "1": DRIFTED}
    assert (report["snapshots"], report["unreadable"], report["refused"]) == (3, 0, 2)
    assert report["verdicts"] == {"exact": 0, "tolerated": 1, "rejected": 1, "error": 1}
    assert report["reasons"] == {
        "checkpoint_corrupt": 1,
        "drift_exceeds_bound": 1,
        "drift_within_bound": 1,
    }
    assert report["autoBoundBytes"] == {"min": BOUND, "max": BOUND}
    drift = report["drift"]
    assert (drift["numaNodes"], drift["unchanged"]) == (4, 0)
    assert (drift["overGrace"], drift["overBound"], drift["boundUnknown"]) == (1, 1, 0)
    assert (drift["minBytes"], drift["maxBytes"]) == (LOST, DRIFTED)
    # 38559744 / 2^20 = 36.8, 547006464 / 2^20 = 521.7
    assert [
        (bucket["fromBytes"] >> 20, bucket["toBytes"] >> 20, bucket["numaNodes"])
        for bucket in drift["histogram"]
    ] == [(36, 37, 3), (521, 522, 1)]
    assert [Path(node["name"]).name for node in report["attention"]] == [
        "lost-dimm",
        "corrupt",
        "drifted",
    ]


def test_same_as_validate_checkpoint() -> None:
    """Each node's verdict is that of validate-checkpoint on the same root."""
    report = memqos(COMMAND, NODES, "-o", "json").json

    for node in report["nodes"]:
        single = memqos("validate-checkpoint", "--root", node["name"], "-o", "json").json
        same = [key for key in node if key not in ("name", "autoBoundBytes")]
        assert {key: node[key] for key in same} == {key: single[key] for key in same}
        assert node["autoBoundBytes"] == single["kernelImageBytes"] + (64 << 20)


def test_yaml() -> None:
    """YAML is the same document."""
    as_yaml = yaml.safe_load(memqos(COMMAND, NODES, "-o", "yaml").out)

    validator("DriftReport").validate(as_yaml)
    assert as_yaml == memqos(COMMAND, NODES, "-o", "json").json


@pytest.mark.parametrize("output", ["json", "yaml"])
def test_document_without_nodes(output: str, tmp_path: Path) -> None:
    """A report on unreadable inputs alone is a whole document too."""
    answer = memqos(COMMAND, tmp_path / "no", "-o", output)
    report = yaml.safe_load(answer.out)

    validator("DriftReport").validate(report)
    assert answer.code == 3
    assert (report["nodes"], report["unreadable"]) == ([], 1)
    assert report["failures"][0]["name"] == str(tmp_path / "no")


def test_text() -> None:
    """Text names verdicts, distribution, limits, and the nodes to look at."""
    answer = memqos(COMMAND, NODES)

    assert answer.code == 1
    assert answer.out.startswith("kubelet starts in 1 of 3 snapshots, and would refuse to in 2\n")
    assert "drift_exceeds_bound   1" in answer.out
    assert "32 to 48 MiB      3" in answer.out
    assert "grace       64.00 MiB: 1 NUMA nodes" in answer.out
    assert "auto bound  108.00 MiB: 1 NUMA nodes" in answer.out
    lines = answer.out.splitlines()
    first = lines[lines.index(next(line for line in lines if line.startswith("LOOK AT"))) + 1]
    # 547006464 / 113246208 = 4.83
    assert first.split() == [
        str(NODES / "lost-dimm"),
        *("rejected", "drift_exceeds_bound", "0", "-521.67", "MiB", "108.00", "MiB", "483", "%"),
    ]


def test_text_of_odd_results() -> None:
    """Unknown bounds, a range of bounds, and order-dependent results are said."""
    lines = (
        results(1, kernelImageBytes=None)
        + results(1, orderDependent=True, kernelImageBytes=64 << 20)
        + results(1, driftPerNode={"0": 1 << 31}, assumptions=["none found"])
    )
    answer = memqos(COMMAND, "-", stdin=lines.encode())

    assert "unknown for 2 NUMA nodes" in answer.out
    assert "108.00 MiB to 128.00 MiB: 1 NUMA nodes" in answer.out
    assert "1 snapshots depend on the random order" in answer.out
    assert "tolerated or not" in answer.out
    assert "1024 MiB or more" in answer.out
    assert "1 of 3 without a kubelet configuration" in answer.err


def test_csv(tmp_path: Path) -> None:
    """One row per snapshot and NUMA node, in the order given; unknown is empty."""
    (tmp_path / "r.jsonl").write_text(results(1))
    answer = memqos(
        COMMAND, NODES / "lost-dimm", tmp_path / "no", NODES / "corrupt", tmp_path / "r.jsonl",
        "-o", "csv",
    )  # fmt: skip
    rows = list(csv.reader(io.StringIO(answer.out)))
    lost, bound = str(NODES / "lost-dimm"), str(BOUND)

    assert rows == [
        ["name", "verdict", "reason", "numaNode", "recordedBytes", "driftBytes",
         "toleranceBytes", "autoBoundBytes"],
        [lost, "rejected", "drift_exceeds_bound", "0", "1055453184", str(LOST), bound, bound],
        [lost, "rejected", "drift_exceeds_bound", "1", "1011990528", str(DRIFTED), bound, bound],
        [str(tmp_path / "no"), "", "", "", "", "", "", ""],
        [str(NODES / "corrupt"), "error", "checkpoint_corrupt", "", "", "", bound, bound],
        ["n00000", "tolerated", "drift_within_bound", "0", "", "-4096", "", bound],
        ["n00000", "tolerated", "drift_within_bound", "1", "", "4096", "", bound],
    ]  # fmt: skip
    assert answer.code == 1
    assert answer.err == f"memqos: {tmp_path}/no: No such file or directory\n"


def test_csv_quotes(tmp_path: Path) -> None:
    """A name with commas, quotes and line ends stays one field."""
    shutil.copytree(NODES / "drifted", tmp_path / 'a,"b"\nc')

    rows = list(csv.reader(io.StringIO(memqos(COMMAND, tmp_path, "-o", "csv").out)))

    assert [row[0] for row in rows[1:]] == [str(tmp_path / 'a,"b"\nc')] * 2


@pytest.mark.parametrize(
    ("name", "cell"),
    [
        ("=1+1", "'=1+1"),
        ("+1", "'+1"),
        ("-1", "'-1"),
        ("-:1+cmd|' /C calc'!A0", "'-:1+cmd|' /C calc'!A0"),
        ("@SUM(A1)", "'@SUM(A1)"),
        ("\t=1", "'\t=1"),
        ("\r=1", "'\r=1"),
        ("a=1", "a=1"),
        ("-:1", "-:1"),
        ("a\rb", "a\rb"),
        ('"a", b\r\n', '"a", b\r\n'),
    ],
)
def test_csv_for_spreadsheets(name: str, cell: str) -> None:
    """No name is a formula to a spreadsheet, and each stays one field whatever it holds."""
    document = json.loads(results(1)) | {"name": name}
    answer = memqos(COMMAND, "-", "-o", "csv", stdin=json.dumps(document).encode())

    rows = list(csv.reader(io.StringIO(answer.out, newline="")))
    assert [len(row) for row in rows] == [8, 8, 8]
    assert [row[0] for row in rows[1:]] == [cell, cell]
    assert rows[1][5] == "-4096"


@pytest.mark.parametrize("output", ["text", "json", "yaml", "csv"])
def test_odd_names(output: str, tmp_path: Path) -> None:
    """A file name that is no UTF-8 is shown as well as it can be."""
    shutil.copytree(NODES / "drifted", tmp_path / os.fsdecode(b"\xff"))

    answer = memqos(COMMAND, tmp_path, "-o", output)

    assert (answer.code, answer.err) == (0, "")
    assert f"{tmp_path}/" in answer.out


# --- inputs and options --------------------------------------------------------------------------


def test_own_results() -> None:
    """What validate-checkpoint prints is a result, indented or on one line."""
    pretty = memqos("validate-checkpoint", "--root", NODES / "drifted", "-o", "json").out
    line = json.dumps(json.loads(pretty)) + "\n"

    report = memqos(COMMAND, "-", "-o", "json", stdin=(pretty + line).encode()).json

    assert [node["driftPerNode"] for node in report["nodes"]] == [
        {"0": -DRIFTED, "1": DRIFTED}
    ] * 2
    assert report["autoBoundBytes"] == {"min": BOUND, "max": BOUND}


def test_archive(tmp_path: Path) -> None:
    """A snapshot in an archive is decided like the directory."""
    with tarfile.open(tmp_path / "n.tar", "w") as tar:
        tar.add(NODES / "drifted", ".")

    report = memqos(COMMAND, tmp_path / "n.tar", "-o", "json").json

    assert report["nodes"][0]["driftPerNode"] == {"0": -DRIFTED, "1": DRIFTED}


@pytest.mark.parametrize(
    ("options", "verdict"),
    [
        ([], "tolerated"),
        (["--drift-tolerance", "off"], "rejected"),
        (["--drift-tolerance", "30Mi"], "rejected"),
        (["--drift-tolerance", "40Mi"], "tolerated"),
        (["--kubelet-version", "1.37"], "error"),  # it does not know the gate
    ],
)
def test_what_if(options: list[str], verdict: str) -> None:
    """Tolerance and release are those asked for."""
    report = memqos(COMMAND, NODES / "drifted", "-o", "json", *options).json

    assert report["verdicts"][verdict] == 1


def test_what_if_of_results() -> None:
    """Results are decided already, which a tolerance cannot change; that is said."""
    answer = memqos(COMMAND, "-", "--drift-tolerance", "off", stdin=results(1).encode())

    assert answer.code == 0
    assert "--drift-tolerance changes nothing for results" in answer.err


@pytest.mark.parametrize(("limit", "expected"), [("0", 0), ("2", 2), ("5", 3)])
def test_attention(limit: str, expected: int) -> None:
    """No more nodes are named than asked for."""
    answer = memqos(COMMAND, NODES, "-o", "json", "--attention", limit)

    assert len(answer.json["attention"]) == expected
    assert ("LOOK AT" in memqos(COMMAND, NODES, "--attention", limit).out) == (expected > 0)


@pytest.mark.parametrize(
    ("names", "code"),
    [
        (["drifted"], 0),
        (["drifted", "no"], 3),
        (["no"], 3),
        (["lost-dimm"], 1),
        (["lost-dimm", "no"], 1),
        (["corrupt", "drifted"], 1),
    ],
)
@pytest.mark.parametrize("output", ["text", "json", "csv"])
def test_exit_status(names: list[str], code: int, output: str) -> None:
    """A refusal is 1, else an unreadable input is 3, else it is 0."""
    answer = memqos(COMMAND, *(NODES / name for name in names), "-o", output)

    assert answer.code == code
    assert answer.err.count("\n") == names.count("no")
    assert answer.out.count("NOT READ") == (output == "text" and "no" in names)


def test_failures_are_named_up_to_twenty() -> None:
    """Standard error is one line; the report names twenty failures and counts the rest."""
    answer = memqos(COMMAND, "-", stdin=b"{}\n" * 23)

    assert (answer.code, answer.err.count("\n")) == (3, 1)
    assert answer.err.startswith("memqos: -: line 1: $: not a CheckpointValidation")
    assert "(and 22 more that could not be read)" in answer.err
    assert answer.out.count("not a CheckpointValidation") == 20
    assert answer.out.endswith("and 3 more\n")


def test_no_answer_is_one_line(tmp_path: Path) -> None:
    """With exit status 3, notes on the rest do not hide what could not be read."""
    lines = results(1, assumptions=["none found"]) + "{}\n"
    answer = memqos(COMMAND, tmp_path, "-", "--drift-tolerance", "off", stdin=lines.encode())

    assert (answer.code, answer.err.count("\n")) == (3, 1)
    assert answer.err.startswith("memqos: -: line 2:")
    assert "1 have no kubelet configuration" in answer.out


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["-", "-"],
        [NODES, "--jobs", "0"],
        [NODES, "--jobs", "x"],
        [NODES, "--attention", "-1"],
        [NODES, "-o", "prometheus"],
        [NODES, "--kubelet-version", "2.0"],
        [NODES, "--plot", "drift.png"],
        [NODES, "--plot", "svg"],
    ],
)
def test_wrong_usage(arguments: list[str | Path]) -> None:
    """Wrong usage is 2, with one line and nothing on stdout."""
    answer = memqos(COMMAND, *arguments)

    assert (answer.code, answer.out, answer.err.count("\n")) == (2, "", 1)


@pytest.mark.parametrize("output", ["text", "json", "csv"])
def test_no_snapshots(output: str, tmp_path: Path) -> None:
    """A directory without snapshots leaves nothing to report on."""
    answer = memqos(COMMAND, tmp_path, "-o", output)

    assert (answer.code, answer.out) == (2, "")
    (line,) = answer.err.splitlines()
    assert line.startswith(f"memqos report-drift: there are no snapshots in {tmp_path} ")


def test_some_directory_is_empty(tmp_path: Path) -> None:
    """An empty directory beside others is said, and is no failure."""
    answer = memqos(COMMAND, tmp_path, NODES / "drifted")

    assert answer.code == 0
    assert answer.err == f"memqos: {tmp_path}: no snapshots in it\n"


def test_help() -> None:
    """Help has an example, and needs no drawing library."""
    answer = memqos(COMMAND, "--help")

    assert answer.code == 0
    assert "memqos report-drift snapshots/ --plot drift.svg" in answer.out


def test_schema_words() -> None:
    """The words in the schema are those of the library."""
    schema = validator("DriftReport").schema

    assert isinstance(schema, dict)
    assert schema["$defs"]["verdict"]["enum"] == [str(verdict) for verdict in Verdict]
    assert schema["$defs"]["reason"]["enum"] == [str(reason) for reason in Reason]


# --- many ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("output", ["text", "json", "yaml", "csv"])
def test_jobs_do_not_matter(output: str, tmp_path: Path) -> None:
    """One process and three workers print the same bytes."""
    fleet(tmp_path, 40)
    shutil.copytree(NODES / "lost-dimm", tmp_path / "n020x")
    (tmp_path / "n030x.tar").write_bytes(b"broken")

    one, three = (run_program(COMMAND, tmp_path, "-o", output, "--jobs", n) for n in ("1", "3"))

    assert one.returncode == 1
    assert (three.returncode, three.stdout, three.stderr) == (
        one.returncode,
        one.stdout,
        one.stderr,
    )


def test_closed_pipe(tmp_path: Path) -> None:
    """`| head` ends quietly, workers and all."""
    (tmp_path / "r.jsonl").write_text(results(20_000))
    with subprocess.Popen(
        [PROGRAM, COMMAND, tmp_path / "r.jsonl", "-o", "csv", "--jobs", "2"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout
        assert process.stdout.readline().startswith(b"name,")
        process.stdout.close()
        assert process.stderr
        assert (process.stderr.read(), process.wait(60)) == (b"", 141)


@pytest.mark.parametrize("group", [True, False])
@pytest.mark.parametrize("jobs", ["1", "2"])
def test_interrupt(jobs: str, group: bool, tmp_path: Path) -> None:
    """Ctrl-C ends at once with 130 and no traceback, whether or not workers get it as well."""
    with subprocess.Popen(
        [PROGRAM, COMMAND, "-", "-o", "csv", "--jobs", jobs],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=tmp_path,
        start_new_session=True,
    ) as process:
        assert process.stdin
        assert process.stdout
        process.stdin.write(results(400).encode())
        process.stdin.flush()
        process.stdout.readline()  # it is at work, and waits for more
        (os.killpg if group else os.kill)(process.pid, signal.SIGINT)
        _, err = process.communicate(timeout=60)

    assert (process.returncode, err) == (130, b"")
    with pytest.raises(ProcessLookupError):
        os.killpg(process.pid, 0)


def test_workers_die_with_their_parent(tmp_path: Path) -> None:
    """Workers of a killed report do not stay behind."""
    with subprocess.Popen(
        [PROGRAM, COMMAND, "-", "-o", "csv", "--jobs", "2"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=tmp_path,
        start_new_session=True,
    ) as process:
        assert process.stdin
        assert process.stdout
        process.stdin.write(results(400).encode())
        process.stdin.flush()
        process.stdout.readline()
        process.kill()
        process.wait()
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            try:
                os.killpg(process.pid, 0)
            except ProcessLookupError:
                return
            time.sleep(0.1)
    pytest.fail("workers are still there")


def test_flat_memory(tmp_path: Path) -> None:
    """Twenty times the results take no more memory."""
    peaks = []
    for count in (1_000, 20_000):
        (tmp_path / "r.jsonl").write_text(results(count))
        with subprocess.Popen(
            [PROGRAM, COMMAND, tmp_path / "r.jsonl", "-o", "csv", "--jobs", "1"],
            stdout=subprocess.DEVNULL,
        ) as process:
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
        assert process.returncode == 0
        peaks.append(usage.ru_maxrss)

    assert peaks[1] < 1.2 * peaks[0]


def on_a_terminal(*arguments: str | Path) -> tuple[str, str]:
    """Run with a terminal as stderr; return what went to stdout and what the terminal got."""
    leader, follower = os.openpty()
    try:
        done = run_program(
            *arguments, stdout=subprocess.PIPE, stderr=follower, capture_output=False
        )
        return done.stdout, os.read(leader, 1 << 16).decode()
    finally:
        os.close(leader)
        os.close(follower)


def test_progress() -> None:
    """Progress is shown on a terminal, erased at the end, and nowhere else."""
    out, terminal = on_a_terminal(COMMAND, NODES)

    assert "3 read, 2 refused" in terminal
    assert terminal.endswith("\r\x1b[K")
    assert out == memqos(COMMAND, NODES).out
    assert memqos(COMMAND, NODES).err == ""


# --- the picture ---------------------------------------------------------------------------------


@pytest.mark.parametrize("output", ["text", "json", "csv"])
@pytest.mark.parametrize("ending", ["svg", "html"])
def test_plot(ending: str, output: str, tmp_path: Path) -> None:
    """The picture comes beside the output, and says the same."""
    file = tmp_path / f"drift.{ending}"
    answer = memqos(COMMAND, NODES, "-o", output, "--plot", file)
    picture = file.read_text("utf-8")

    assert answer.out == memqos(COMMAND, NODES, "-o", output).out
    assert (answer.code, answer.err) == (1, "")
    for words in (
        "Memory drift of 4 NUMA nodes in 3 snapshots",
        "0 exact, 1 tolerated, 1 rejected, 1 error",
        "grace 64 MiB",
        "auto bound 108.0 MiB",
        "beyond the node's own bound: 1",
    ):
        assert words in picture.replace("&#x27;", "'")


def test_plot_that_cannot_be_written(tmp_path: Path) -> None:
    """A place that cannot be written to is no answer, with one line."""
    answer = memqos(COMMAND, NODES, "--plot", tmp_path / "no" / "drift.svg")

    assert (answer.code, answer.out, answer.err.count("\n")) == (3, "", 1)


def test_plot_without_the_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without matplotlib one line says what to install, before any work is done."""
    monkeypatch.setattr("memqos_cli.output.plot.find_spec", lambda _name: None)

    answer = memqos(COMMAND, tmp_path / "no", "--plot", tmp_path / "drift.svg")

    assert (answer.code, answer.out, answer.err.count("\n")) == (2, "", 1)
    assert "install memqos[plot]" in answer.err


def test_only_a_plot_loads_the_library() -> None:
    """Without --plot, matplotlib is not imported."""
    program = (
        "import sys; from memqos_cli.run import run; "
        f"run(['report-drift', {str(NODES)!r}, '--jobs', '1']); "
        "print('matplotlib' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60
    )

    assert done.stdout.endswith("\nFalse\n")
