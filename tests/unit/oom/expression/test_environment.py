"""The names that expressions of the OOM policy may use."""

import pytest

from memqos.oom.expression import (
    CLASSES,
    DOUBLE,
    INT,
    RANKING,
    TRIGGER,
    UINT,
    Checked,
    Problems,
    check,
    check_ranking,
    check_trigger,
    map_of,
)


def test_the_trigger_environment_holds_56_names() -> None:
    """38 metrics, the time, 5 classes and 12 units, as the specification counts them."""
    assert len(TRIGGER.variables) == 39
    assert len(TRIGGER.variables) + len(TRIGGER.constants) == 56


def test_the_ranking_environment_holds_what_a_candidate_has() -> None:
    """Three optional sizes, the path and the class."""
    assert {name: str(of) for name, of in RANKING.variables.items()} == {
        "memory_max": "optional_type(uint)",
        "memory_current": "optional_type(uint)",
        "memory_peak": "optional_type(uint)",
        "path": "string",
        "class": "int",
    }


def test_classes_are_numbered_by_importance() -> None:
    """The higher, the more important."""
    assert CLASSES == {
        "Besteffort": 0,
        "Burstable": 1,
        "Guaranteed": 2,
        "Podruntime": 3,
        "System": 4,
    }


@pytest.mark.parametrize(
    ("unit", "expected"),
    [
        ("KiB", 1024),
        ("MiB", 1048576),
        ("GiB", 1073741824),
        ("TiB", 1099511627776),
        ("PiB", 1125899906842624),
        ("EiB", 1152921504606846976),
        ("kB", 1000),
        ("MB", 10**6),
        ("GB", 10**9),
        ("TB", 10**12),
        ("PB", 10**15),
        ("EB", 10**18),
    ],
)
@pytest.mark.parametrize("environment", [TRIGGER, RANKING])
def test_units_are_unsigned_in_both(environment: object, unit: str, expected: int) -> None:
    """Powers of 1024 and of 1000."""
    assert environment in (TRIGGER, RANKING)
    checked = check(unit, TRIGGER if environment is TRIGGER else RANKING, None)

    assert isinstance(checked, Checked)
    assert (str(checked.result), checked.constant) == ("uint", expected)


def test_environments_do_not_know_the_names_of_one_another() -> None:
    """A metric is undeclared in a ranking, a candidate's size in a trigger."""
    ranking = check_ranking("memory_full_avg10")
    trigger = check_trigger("memory_max.hasValue()")

    assert isinstance(ranking, Problems)
    assert isinstance(trigger, Problems)
    assert ranking[0].message == "undeclared reference to 'memory_full_avg10' (in container '')"
    assert trigger[0].message == "undeclared reference to 'memory_max' (in container '')"


SWAP_NAMES = {"swap_total": UINT, "swap_free": UINT} | {
    name: map_of(INT, DOUBLE) for name in ("qos_memory_swap_current", "d_qos_memory_swap_current")
}


@pytest.mark.parametrize("name", SWAP_NAMES)
def test_swap_is_known_on_request_only(name: str) -> None:
    """Talos refuses these names, and so does memqos unless it is asked not to."""
    text = f"type({name}) == type({name})"
    unknown = check_trigger(text)
    known = check_trigger(text, swap=True)

    assert isinstance(unknown, Problems)
    assert unknown[0].message == f"undeclared reference to '{name}' (in container '')"
    assert isinstance(known, Checked)
    assert known.environment.variables == {**TRIGGER.variables, **SWAP_NAMES}
    assert isinstance(check_ranking(text, swap=True), Problems)


def test_swap_in_a_ranking() -> None:
    """One size more, optional as the others are."""
    text = "double(memory_swap_current.orValue(7u))"
    checked = check_ranking(text, swap=True)

    assert isinstance(check_ranking(text), Problems)
    assert isinstance(check_trigger(text, swap=True), Problems)
    assert isinstance(checked, Checked)
    assert checked.evaluate({"memory_swap_current": None}) == 7.0
    assert checked.evaluate({"memory_swap_current": 2**40}) == 2.0**40


def test_swap_of_the_node_compares_with_units() -> None:
    """Both are unsigned, as the units are."""
    checked = check_trigger("swap_total > 0u && swap_free < 2u * GiB", swap=True)

    assert isinstance(checked, Checked)
    assert checked.evaluate({"swap_total": 2**33, "swap_free": 2**31 - 1}) is True
    assert checked.evaluate({"swap_total": 2**33, "swap_free": 2**31}) is False
    assert checked.evaluate({"swap_total": 0, "swap_free": 0}) is False


def test_vectors_multiply_in_the_trigger_only() -> None:
    """The function is undeclared in a ranking, and no method anywhere."""
    text = "multiply_qos_vectors({1: 2.0}, {1: 3.0})"
    ranking = check_ranking(text)

    assert isinstance(check(text, TRIGGER, DOUBLE), Checked)
    assert isinstance(ranking, Problems)
    assert ranking[0].message.startswith("undeclared reference to 'multiply_qos_vectors'")
    assert isinstance(check("{1: 2.0}.multiply_qos_vectors({1: 3.0})", TRIGGER, None), Problems)
