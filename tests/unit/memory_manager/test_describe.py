"""A decision in words."""

import pytest

from memqos.memory_manager.describe import mebibytes, message, next_step, warnings, where
from memqos.memory_manager.validation import advise, validate_start
from tests.support import vectors as of
from tests.support.vectors import Case, named


@pytest.mark.parametrize(
    ("value", "sign", "text"),
    [
        (0, False, "0 KiB"),
        (-12288, True, "-12 KiB"),
        (43696128, True, "+41.67 MiB"),
        (124780544, False, "119.00 MiB"),
        (3 * 2**30, False, "3.00 GiB"),
    ],
)
def test_sizes(value: int, sign: bool, text: str) -> None:
    """Sizes are in KiB, MiB or GiB."""
    assert mebibytes(value, sign=sign) == text


@pytest.mark.parametrize("case", named("validate"))
def test_every_decision_has_words(case: Case) -> None:
    """Each decision has one sentence that says whether kubelet starts, and a next step."""
    parts = of.settings(case), of.machine(case), of.checkpoint(case), of.image(case)
    decision = validate_start(*parts)

    sentence = message(decision)

    starts = case["expect"]["verdict"] in ("exact", "tolerated")
    assert sentence.startswith("kubelet starts" if starts else "kubelet refuses to start: ")
    assert "None" not in sentence or "policy" in sentence
    assert next_step(decision, advise(*parts))
    place = where(decision) or {}
    assert str(place.get("resource", "")) in sentence


def test_a_wrapped_reservation_is_warned_of() -> None:
    """More reserved than there is wraps in kubelet, and is said."""
    case = dict(of.vectors("validate")[0])
    case["machine"] = {"nodes": [{"id": 0, "memory_bytes": 2**20, "hugepages": []}]}
    case["checkpoint"] = None

    decision = validate_start(of.settings(case), of.machine(case), None, None)

    assert [text for text in warnings(decision) if "wraps" in text]
