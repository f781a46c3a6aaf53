"""The ``OOMConfig`` document of Talos Linux: defaults, merge, validation.

Source: the Talos documentation of the OOM handler; where it is silent, its code.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from attrs import evolve, frozen

from memqos import fields
from memqos.duration import parse_duration
from memqos.errors import InputError
from memqos.oom.expression import Checked, Problems, check_ranking, check_trigger


__all__ = [
    "DEFAULT_INTERVAL_NS",
    "DEFAULT_RANKING",
    "DEFAULT_TRIGGER",
    "ConfigProblem",
    "OOMConfig",
    "check_documents",
    "is_oom_config",
    "merge",
]

DEFAULT_TRIGGER = """\
multiply_qos_vectors(d_qos_memory_full_total, {System: 8.0, Podruntime: 4.0}) > 3000.0 &&
multiply_qos_vectors(qos_memory_full_avg10, {System: 1.0, Podruntime: 1.0}) > 5.0 &&
time_since_trigger > duration("5s")"""

DEFAULT_RANKING = """\
memory_max.hasValue() ? 0.0 :
{Besteffort: 1.0, Burstable: 0.5, Guaranteed: 0.0, Podruntime: 0.0, System: 0.0}[class] *
double(memory_current.orValue(0u))"""

DEFAULT_INTERVAL_NS = 500_000_000

_FIELDS = (
    "apiVersion",
    "kind",
    "triggerExpression",
    "cgroupRankingExpression",
    "strictCgroupClassOrdering",
    "sampleInterval",
)


class ConfigProblem(NamedTuple):
    """One thing that is wrong.

    Attributes:
        field: the field, empty for the document.
        message: in words.
        line: 1-based line within the expression, None for other fields.
        column: 1-based column within that line.
    """

    field: str
    message: str
    line: int | None = None
    column: int | None = None


@frozen(kw_only=True)
class OOMConfig:
    """A configuration that is valid.

    Attributes:
        trigger: checked trigger expression.
        ranking: checked ranking expression.
        strict: ``strictCgroupClassOrdering``.
        interval_ns: ``sampleInterval`` in nanoseconds.
        swap: whether the expressions may use the variables of swap.
    """

    trigger: Checked
    ranking: Checked
    strict: bool = True
    interval_ns: int = DEFAULT_INTERVAL_NS
    swap: bool = False


def is_oom_config(document: object) -> bool:
    """Tell an OOMConfig document from others of a machine configuration."""
    return isinstance(document, dict) and document.get("kind") == "OOMConfig"


def merge(base: Mapping[str, object], patch: Mapping[str, object]) -> dict[str, object]:
    """Lay a patch over a document: what the patch leaves out, or has as zero, stays.

    Talos replaces the expressions even where the patch has none, which silently resets them to
    the defaults.
    """
    unset = (None, "", "0", "0s")
    return {**base, **{key: value for key, value in patch.items() if value not in unset}}


def check_documents(
    documents: Iterable[object],
    *,
    patches: Iterable[object] = (),
    trigger: str | None = None,
    ranking: str | None = None,
    strict: bool | None = None,
    interval_ns: int | None = None,
    swap: bool = False,
) -> OOMConfig | tuple[ConfigProblem, ...]:
    """Check an OOMConfig and fill in the defaults; an absent document is all defaults.

    Args:
        documents: plain data of the stream; other kinds are ignored.
        patches: more such documents, laid over it in order.
        trigger: overrides the document's.
        ranking: overrides the document's.
        strict: overrides the document's.
        interval_ns: overrides the document's.
        swap: whether the expressions may use the variables of swap, which Talos does not have.

    Returns:
        The configuration, or everything that is wrong with it.
    """
    found = [document for document in documents if is_oom_config(document)]
    problems: list[ConfigProblem] = []
    if len(found) > 1:
        problems.append(ConfigProblem("", "duplicate document OOMConfig is not allowed"))
    document: Mapping[str, object] = {}
    if found and isinstance(found[0], dict):
        document = found[0]
    for patch in patches:
        if isinstance(patch, dict) and is_oom_config(patch):
            document = merge(document, patch)
    problems += _structure(document)
    texts = {
        "triggerExpression": trigger,
        "cgroupRankingExpression": ranking,
    }
    for name, given in texts.items():
        if given is None:
            texts[name] = _text(document, name, problems)
    checked_trigger = _expression("triggerExpression", texts, problems, swap=swap)
    checked_ranking = _expression("cgroupRankingExpression", texts, problems, swap=swap)
    given_strict = document.get("strictCgroupClassOrdering")
    if given_strict is not None and not isinstance(given_strict, bool):
        problems.append(ConfigProblem("strictCgroupClassOrdering", "expected true or false"))
        given_strict = None
    interval = _interval(document, problems)
    if problems or not isinstance(checked_trigger, Checked):
        return tuple(problems)
    if not isinstance(checked_ranking, Checked):
        return tuple(problems)
    config = OOMConfig(
        trigger=checked_trigger,
        ranking=checked_ranking,
        strict=True if given_strict is None else given_strict,
        interval_ns=interval,
        swap=swap,
    )
    if strict is not None:
        config = evolve(config, strict=strict)
    return config if interval_ns is None else evolve(config, interval_ns=interval_ns)


def _structure(document: Mapping[str, object]) -> list[ConfigProblem]:
    problems = [
        ConfigProblem(str(key), f"unknown field {str(key)!r}")
        for key in document
        if key not in _FIELDS
    ]
    version = document.get("apiVersion", "v1alpha1")
    if version != "v1alpha1":
        problems.append(ConfigProblem("apiVersion", f"expected v1alpha1, found {version!r}"))
    return problems


def _text(document: Mapping[str, object], name: str, problems: list[ConfigProblem]) -> str | None:
    value = document.get(name)
    if value is None or value == "":
        return None
    try:
        return fields.string(value, name)
    except InputError as error:
        problems.append(ConfigProblem(name, error.message))
        return None


def _expression(
    name: str, texts: Mapping[str, str | None], problems: list[ConfigProblem], *, swap: bool
) -> Checked | None:
    is_trigger = name == "triggerExpression"
    text = texts[name] or (DEFAULT_TRIGGER if is_trigger else DEFAULT_RANKING)
    checked = (check_trigger if is_trigger else check_ranking)(text, swap=swap)
    if isinstance(checked, Problems):
        what = "trigger" if is_trigger else "cgroup scoring"
        problems += [
            ConfigProblem(
                name,
                f"OOM {what} expression is invalid: {problem.message}",
                problem.line,
                problem.column,
            )
            for problem in checked
        ]
        return None
    return checked


def _interval(document: Mapping[str, object], problems: list[ConfigProblem]) -> int:
    value = document.get("sampleInterval")
    if value is None:
        return DEFAULT_INTERVAL_NS
    try:
        nanoseconds = parse_duration(fields.string(value, "sampleInterval"))
    except InputError as error:
        problems.append(ConfigProblem("sampleInterval", error.message))
        return DEFAULT_INTERVAL_NS
    if nanoseconds < 0:
        problems.append(
            ConfigProblem("sampleInterval", "OOM sample interval must be longer than 0")
        )
    return nanoseconds or DEFAULT_INTERVAL_NS
