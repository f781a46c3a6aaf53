"""Every memqos command line in examples/."""

import click
import pytest

from tests.support.examples import EXAMPLES, check_command, commands


NODES = EXAMPLES / "nodes"
TEXTS = {
    path.relative_to(EXAMPLES).as_posix(): path.read_text(encoding="utf-8")
    for path in sorted(EXAMPLES.rglob("*"))
    if path.is_file() and NODES not in path.parents
}
LINES = [(name, words) for name, text in TEXTS.items() for words in commands(text)]


@pytest.mark.parametrize(("name", "arguments"), LINES)
def test_command_line_parses(name: str, arguments: list[str]) -> None:
    """Memqos has each command and takes each option that an example uses."""
    assert arguments != [], name
    check_command(arguments)


@pytest.mark.parametrize("words", [["validate-checkpoint", "--wrong"], ["no-such-command"]])
def test_wrong_command_line_is_noticed(words: list[str]) -> None:
    """An option or a command that memqos lacks is an error, so the test above can fail."""
    with pytest.raises(click.UsageError):
        check_command(words)


def test_command_lines_are_found() -> None:
    """The demo, the units and the DaemonSet are among what the test above looks at."""
    assert {name for name, _ in LINES} >= {
        "demo.sh",
        "kubernetes/daemonset.yaml",
        "systemd/kubelet.service.d/10-memqos.conf",
        "systemd/memqos-rebaseline.service",
        "systemd/memqos-validate.service",
        "systemd/memqos-watch-oom.service",
        "systemd/memqos-watch-oom.service.d/10-kill.conf",
    }
