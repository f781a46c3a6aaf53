"""The OOMConfig document: spec section 2."""

from typing import Any

import pytest

from memqos.oom.config import DEFAULT_RANKING, DEFAULT_TRIGGER, OOMConfig, check_documents, merge


def document(**fields: Any) -> dict[str, Any]:
    """Return an OOMConfig document."""
    return {"apiVersion": "v1alpha1", "kind": "OOMConfig", **fields}


def valid(*documents: Any, **more: Any) -> OOMConfig:
    """Check documents that must be valid."""
    config = check_documents(documents, **more)
    assert isinstance(config, OOMConfig), config
    return config


def problems(*documents: Any, **more: Any) -> list[str]:
    """Check documents that must not be valid; return ``field: message``."""
    found = check_documents(documents, **more)
    assert isinstance(found, tuple)
    return [f"{problem.field}: {problem.message}" for problem in found]


def test_defaults() -> None:
    """No document, an empty one, and empty strings all mean the defaults."""
    empty = document(triggerExpression="", cgroupRankingExpression=None, sampleInterval="0")
    for config in (valid(), valid(document()), valid(empty)):
        assert config.trigger.text == DEFAULT_TRIGGER
        assert config.ranking.text == DEFAULT_RANKING
        assert config.strict is True
        assert config.interval_ns == 500_000_000


def test_found_in_a_machine_configuration() -> None:
    """Other documents of the stream are passed over."""
    others = [{"version": "v1alpha1", "machine": {}}, None, {"kind": "HostnameConfig"}]
    config = valid(*others, document(strictCgroupClassOrdering=False, sampleInterval="100ms"))
    assert config.strict is False
    assert config.interval_ns == 100_000_000


def test_overrides() -> None:
    """What is given beside the document wins."""
    config = valid(
        document(triggerExpression="false", sampleInterval="1s"),
        trigger="true",
        ranking="1.0",
        strict=False,
        interval_ns=7,
    )
    assert (config.trigger.text, config.ranking.text) == ("true", "1.0")
    assert (config.strict, config.interval_ns) == (False, 7)


def test_all_errors_are_joined() -> None:
    """Not only the first: an operator edits once."""
    found = check_documents(
        [
            document(
                triggerExpression="memory_full_avg10 >\n  disk",
                cgroupRankingExpression="0",
                sampleInterval="-1s",
                strictCgroupClassOrdering="yes",
                extra=1,
            )
        ]
    )
    assert isinstance(found, tuple)
    by_field = {problem.field: problem for problem in found}
    assert set(by_field) == {
        "triggerExpression",
        "cgroupRankingExpression",
        "sampleInterval",
        "strictCgroupClassOrdering",
        "extra",
    }
    trigger = by_field["triggerExpression"]
    assert trigger.message.startswith("OOM trigger expression is invalid: ")
    assert "undeclared reference to 'disk'" in trigger.message
    assert (trigger.line, trigger.column) == (2, 3)
    ranking = by_field["cgroupRankingExpression"].message
    assert ranking.startswith("OOM cgroup scoring expression is invalid: ")
    assert "expression output type is int, expected double" in ranking
    assert by_field["sampleInterval"].message == "OOM sample interval must be longer than 0"


@pytest.mark.parametrize("value", [True, 5, ["true"], {"a": 1}])
def test_an_expression_must_be_a_string(value: object) -> None:
    """YAML's false is not the expression "false"."""
    (problem,) = problems(document(triggerExpression=value))
    assert problem.startswith("triggerExpression: ")
    assert "where a string is expected" in problem


@pytest.mark.parametrize("value", ["1", "5 s", "1d", 500, True, "x" * 10_000])
def test_intervals_that_are_none(value: object) -> None:
    """Go's durations have units, and YAML integers are not durations."""
    (problem,) = problems(document(sampleInterval=value))
    assert problem.startswith("sampleInterval: ")


def test_two_documents() -> None:
    """Talos refuses to load them."""
    assert "duplicate document" in problems(document(), document())[0]


def test_wrong_version() -> None:
    """The one version there is."""
    assert problems(document(apiVersion="v2")) == ["apiVersion: expected v1alpha1, found 'v2'"]


def test_patches() -> None:
    """A patch that holds the interval alone keeps the expressions, unlike Talos."""
    base = document(triggerExpression="false", strictCgroupClassOrdering=True)
    patches = [
        {"kind": "Other", "triggerExpression": "1"},
        document(sampleInterval="1s", triggerExpression=""),
        document(strictCgroupClassOrdering=False, sampleInterval="0s"),
    ]
    config = valid(base, patches=patches)
    assert config.trigger.text == "false"
    assert config.interval_ns == 1_000_000_000
    assert config.strict is False


def test_merge_leaves_both_alone() -> None:
    """The documents are the caller's."""
    base = {"sampleInterval": "1s"}
    assert merge(base, {"sampleInterval": "2s"}) == {"sampleInterval": "2s"}
    assert base == {"sampleInterval": "1s"}


def test_swap() -> None:
    """Variables of swap are valid on request only, as in the defaults they do not occur."""
    fields = document(
        triggerExpression="swap_free < MiB",
        cgroupRankingExpression="double(memory_swap_current.orValue(0u))",
    )
    assert valid(fields, swap=True).swap is True
    assert valid().swap is False
    found = problems(fields)
    assert len(found) == 2
    assert "undeclared reference to 'swap_free'" in found[0]
    assert "undeclared reference to 'memory_swap_current'" in found[1]
