"""memqos schema, and the schemas themselves."""

import json

import pytest
from jsonschema import Draft202012Validator

from memqos.adapters.schemas import schema_kinds, schema_text
from memqos.memory_manager.checkpoint import ChecksumStatus, Format
from memqos.memory_manager.iomem import ImageStatus
from memqos.memory_manager.options import ToleranceSource
from memqos.memory_manager.reasons import Reason, Verdict
from memqos.oom.preference import Preference
from memqos.oom.victim import Eligibility
from tests.support.program import memqos


def test_kinds() -> None:
    """Without a kind the kinds are listed, one a line."""
    answer = memqos("schema")

    assert answer.code == 0
    assert tuple(answer.out.splitlines()) == schema_kinds()
    assert {"CheckpointValidation", "DriftTolerance"} <= set(schema_kinds())


@pytest.mark.parametrize("kind", schema_kinds())
def test_schema(kind: str) -> None:
    """Each schema is valid, closed, and names its kind and version."""
    answer = memqos("schema", kind)

    schema = json.loads(answer.out)
    Draft202012Validator.check_schema(schema)
    assert answer.out == schema_text(kind)
    assert schema["title"] == kind
    assert schema["properties"]["kind"] == {"const": kind}
    assert schema["properties"]["apiVersion"] == {"const": "memqos/v1"}
    assert schema["additionalProperties"] is False
    assert set(schema["required"]) <= set(schema["properties"])


def test_enums() -> None:
    """The words in the schema are exactly those of the library."""
    schema = json.loads(schema_text("CheckpointValidation"))
    fields = schema["properties"]

    assert schema["$defs"]["reason"]["enum"] == [str(reason) for reason in Reason]
    assert schema["$defs"]["verdict"]["enum"] == [str(verdict) for verdict in Verdict]
    assert fields["toleranceSource"]["enum"] == [*map(str, ToleranceSource), None]
    checkpoint = fields["checkpoint"]["properties"]
    assert checkpoint["format"]["enum"] == [*map(str, Format), "none", None]
    assert checkpoint["checksum"]["enum"] == [*map(str, ChecksumStatus), None]
    tolerance = json.loads(schema_text("DriftTolerance"))
    assert tolerance["properties"]["status"]["enum"] == [str(status) for status in ImageStatus]
    selection = json.loads(schema_text("VictimSelection"))
    candidate = selection["$defs"]["candidate"]["properties"]
    assert set(candidate["reason"]["enum"]) == {str(reason) for reason in Eligibility}
    assert candidate["preference"]["enum"] == [preference.label for preference in Preference]


def test_unknown_kind() -> None:
    """A kind that is not there is wrong usage."""
    answer = memqos("schema", "../schemas/DriftTolerance")

    assert (answer.code, answer.out, answer.err.count("\n")) == (2, "", 1)
