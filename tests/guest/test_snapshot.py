"""A snapshot of a real node stands for the node."""

import json
from pathlib import Path

from tests.support.guest import Guest
from tests.support.program import memqos


SCRIPT = Path(__file__).parent / "scripts" / "memory_manager.py"


def test_same_answer_outside(guest: Guest, tmp_path: Path) -> None:
    """What validate-checkpoint says on the node, it says of the node's snapshot elsewhere."""
    result = guest.run(SCRIPT, "snapshot")
    assert result.status == 0, result.stderr
    answer = json.loads(result.files["answer"])
    archive = tmp_path / "snapshot.tar"
    archive.write_bytes(result.files["snapshot.tar"])
    outside = memqos(
        "validate-checkpoint", "--root", archive, "--drift-tolerance", "auto", "-o", "json"
    )
    assert outside.json == answer["inside"]["document"]
    assert (outside.code, outside.json["verdict"]) == (answer["inside"]["code"], "exact")
    assert outside.json["kernelImageBytes"] > 0
    assert answer["snapshot"]["document"]["missing"] == []
