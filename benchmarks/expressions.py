"""Cost of the expressions of the OOM policy, beside celpy's interpreter and cel-expr-python.

Prints the one-time cost, then checking and evaluation of the default expressions with each engine
in turn: the median of the rounds and their spread, and how many times faster memqos is in the
same round. Last, the slowest of some hostile expressions, to be checked and evaluated once.
Times are of the process's CPU, except for the one-time cost.
"""

from __future__ import annotations

import argparse
import datetime as dt
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import celpy
from cel_expr_python import cel
from celpy import celtypes

from memqos.oom.config import DEFAULT_RANKING, DEFAULT_TRIGGER
from memqos.oom.expression import (
    CLASSES,
    TRIGGER,
    Checked,
    EvaluationError,
    check_ranking,
    check_trigger,
)


TRIGGER_ZERO = {
    name: dict.fromkeys(CLASSES.values(), 0.0) if name.startswith(("qos", "d_qos")) else 0.0
    for name in TRIGGER.variables
}
TRIGGER_VALUES: dict[str, Any] = {
    **TRIGGER_ZERO,
    "d_qos_memory_full_total": {**dict.fromkeys(range(5), 0.0), 4: 376.0},
    "qos_memory_full_avg10": {**dict.fromkeys(range(5), 0.0), 4: 6.0},
    "time_since_trigger": 6 * 10**9,
}
CURRENT = 222593024
PODS: dict[str, dict[str, Any]] = {
    "unlimited": {"memory_max": None},
    "limited": {"memory_max": 4096},
}
GRAMMAR = """
import time
start = time.perf_counter()
import memqos.oom.expression
imported = time.perf_counter()
memqos.oom.expression.check_ranking("1.0")
print((imported - start) * 1e3, (time.perf_counter() - imported) * 1e3)
"""
# As memqos.oom.expression spells it, over a map: cel-expr-python takes no optional variables.
MAPPED_RANKING = DEFAULT_RANKING.replace("memory_max", '(m[?"memory_max"])').replace(
    "memory_current", '(m[?"memory_current"])'
)
TEN = "[0, 1, 2, 3, 4, 5, 6, 7, 8, 9]"
LOOPS = f"{TEN}.all(a, {TEN}.all(b, {TEN}.all(c, {TEN}.all(d, BODY))))"
PATTERN = "path.matches('(.*x){9}y')"
# Each a condition; those that are none are refused.
HOSTILE = {
    "390 elements": f"size([{', '.join(['class'] * 390)}]) > 1",
    "190 entries": f"size({{{', '.join(f'{n}: class' for n in range(190))}}}) > 1",
    "190 clauses": " && ".join(["class == 1"] * 190),
    "100 levels": f"{'+'.join(['class'] * 100)} > 1",
    "errors in loops": LOOPS.replace("BODY", "1 / 0 == a"),
    "lists in loops": LOOPS.replace("BODY", f"a in {TEN}"),
    "growing text": f"[path]{'.map(w, w + w + w + w)' * 20}[0] == path",
    "shared values": f"[1]{'.map(w, [w, w])' * 25}.exists(w, w == w)",
    "growing types": f"size([1]{'.map(w, {w: w})' * 40}) > 0",
    "90 patterns": " || ".join([PATTERN] * 90),
    "patterns in loops": LOOPS.replace("BODY", f"!{PATTERN}"),
    "duration": f'duration("{"ms" * 40}!") > duration("1s")',
    "escapes": '"' + "\\a" * 2000,
    "parentheses": "(" * 2000,
}


class Engine(NamedTuple):
    """One implementation, ready to run; `check` takes the text to something to evaluate."""

    name: str
    check: dict[str, Callable[[], object]]
    evaluate: dict[str, Callable[[], object]]


def memqos_engine() -> Engine:
    """Return memqos."""
    trigger, ranking = check_trigger(DEFAULT_TRIGGER), check_ranking(DEFAULT_RANKING)
    if not isinstance(trigger, Checked) or not isinstance(ranking, Checked):
        raise TypeError("a default expression is refused")

    def scored(values: dict[str, Any]) -> Callable[[], object]:
        return lambda: ranking.evaluate(values)

    return Engine(
        "memqos",
        {
            "trigger": lambda: check_trigger(DEFAULT_TRIGGER),
            "ranking": lambda: check_ranking(DEFAULT_RANKING),
        },
        {
            "trigger": lambda: trigger.evaluate(TRIGGER_VALUES),
            **{
                name: scored(
                    {"class": 1, "path": "p", "memory_current": CURRENT, "memory_peak": None} | pod
                )
                for name, pod in PODS.items()
            },
        },
    )


class OptionalUint:
    """An optional value for celpy, which has none."""

    def __init__(self, number: int | None) -> None:
        self.inner = None if number is None else celtypes.UintType(number)


def _has_value(optional: OptionalUint) -> celtypes.BoolType:
    return celtypes.BoolType(optional.inner is not None)


def _or_value(optional: OptionalUint, default: celtypes.UintType) -> celtypes.UintType:
    return default if optional.inner is None else optional.inner


def _dot(values: Any, weights: Any) -> celtypes.DoubleType:
    return celtypes.DoubleType(
        sum(float(values[key]) * float(weights[key]) for key in sorted(values) if key in weights)
    )


def celpy_engine() -> Engine:
    """Return celpy's interpreter, with the functions that stock celpy lacks."""
    functions: dict[str, Any] = {
        "hasValue": _has_value,
        "orValue": _or_value,
        "multiply_qos_vectors": _dot,
    }
    environment = celpy.Environment()

    def compiled(text: str) -> Any:
        return environment.program(environment.compile(text), functions=functions)

    constants = {name: celtypes.IntType(number) for name, number in CLASSES.items()}
    sample: dict[str, Any] = {**constants}
    for name, value in TRIGGER_VALUES.items():
        match value:
            case dict():
                sample[name] = celtypes.MapType(
                    {
                        celtypes.IntType(key): celtypes.DoubleType(item)
                        for key, item in value.items()
                    }
                )
            case float():
                sample[name] = celtypes.DoubleType(value)
            case _:
                sample[name] = celtypes.DurationType(dt.timedelta(microseconds=value // 1000))
    trigger, ranking = compiled(DEFAULT_TRIGGER), compiled(DEFAULT_RANKING)

    def scored(limit: int | None) -> Callable[[], object]:
        values = {
            **constants,
            "class": celtypes.IntType(1),
            "memory_current": OptionalUint(CURRENT),
            "memory_max": OptionalUint(limit),
        }
        return lambda: ranking.evaluate(values)

    return Engine(
        "celpy",
        {
            "trigger": lambda: compiled(DEFAULT_TRIGGER),
            "ranking": lambda: compiled(DEFAULT_RANKING),
        },
        {
            "trigger": lambda: trigger.evaluate(sample),
            **{name: scored(pod["memory_max"]) for name, pod in PODS.items()},
        },
    )


def cel_cpp_engine() -> Engine:
    """Return cel-expr-python, with the ranking over a map."""
    kinds = cel.Type
    classes = dict.fromkeys(CLASSES, kinds.INT)
    vector = kinds.Map(kinds.DYN, kinds.DOUBLE)
    product = cel.FunctionDecl(
        "multiply_qos_vectors",
        [cel.Overload("dot", kinds.DOUBLE, [vector, vector], False, _plain_dot)],
    )
    names: dict[str, Any] = {
        name: kinds.DURATION
        if name == "time_since_trigger"
        else kinds.Map(kinds.INT, kinds.DOUBLE)
        if "qos_" in name
        else kinds.DOUBLE
        for name in TRIGGER.variables
    }
    triggers = cel.NewEnv(variables=classes | names, functions=[product])
    from cel_expr_python.ext import ext_optional

    rankings = cel.NewEnv(
        variables={**classes, "class": kinds.INT, "m": kinds.Map(kinds.STRING, kinds.UINT)},
        extensions=[ext_optional.ExtOptional()],
    )
    trigger, ranking = triggers.compile(DEFAULT_TRIGGER), rankings.compile(MAPPED_RANKING)
    sample = {**CLASSES, **TRIGGER_VALUES, "time_since_trigger": dt.timedelta(seconds=6)}

    def scored(limit: int | None) -> Callable[[], object]:
        sizes = {"memory_current": CURRENT} | ({} if limit is None else {"memory_max": limit})
        values = {**CLASSES, "class": 1, "m": sizes}
        return lambda: ranking.eval(data=values).value()

    return Engine(
        "cel-expr-python",
        {
            "trigger": lambda: triggers.compile(DEFAULT_TRIGGER),
            "ranking": lambda: rankings.compile(MAPPED_RANKING),
        },
        {
            "trigger": lambda: trigger.eval(data=sample).value(),
            **{name: scored(pod["memory_max"]) for name, pod in PODS.items()},
        },
    )


def _plain_dot(values: Any, weights: Any) -> float:
    return sum(float(values[key]) * float(weights[key]) for key in values if key in weights)


def measure(run: Callable[[], object], seconds: float) -> float:
    """Return the time of one call in microseconds."""
    count = 1
    while True:
        start = time.process_time()
        for _ in range(count):
            run()
        taken = time.process_time() - start
        if taken >= seconds:
            return taken / count * 1e6
        count = max(count * 2, int(count * seconds / max(taken, 1e-6)))


def compare(
    title: str, runs: dict[str, Callable[[], object]], rounds: int, seconds: float
) -> None:
    """Print the time of each engine and how many times longer than memqos it takes."""
    times: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(rounds):
        for name, run in runs.items():
            times[name].append(measure(run, seconds))
    for name, taken in times.items():
        ratios = [other / own for other, own in zip(taken, times["memqos"], strict=True)]
        print(
            f"{title:<22} {name:<16} {statistics.median(taken):9.3f} us"
            f"  ({min(taken):.3f} to {max(taken):.3f})"
            f"   {statistics.median(ratios):8.1f} x  ({min(ratios):.1f} to {max(ratios):.1f})"
        )


def attack() -> None:
    """Print how long hostile expressions take."""
    values = {
        "class": 1,
        "path": "/sys/fs/cgroup/kubepods/" + "x" * 230,
        "memory_max": None,
        "memory_current": CURRENT,
        "memory_peak": None,
    }
    for name, text in HOSTILE.items():
        start = time.process_time()
        checked = check_ranking(f"{text} ? 1.0 : 2.0")
        middle = time.process_time()
        try:
            end = checked.evaluate(values) if isinstance(checked, Checked) else checked[0].message
        except EvaluationError as error:
            end = str(error)
        taken = time.process_time()
        print(
            f"{name:<22} check {(middle - start) * 1e3:6.1f} ms"
            f"  evaluate {(taken - middle) * 1e3:6.1f} ms  {str(end)[:50]}"
        )


def main() -> None:
    """Run all measurements."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=0.05, help="of CPU for each figure")
    options = parser.parse_args()

    starts = [
        [float(part) for part in subprocess.check_output([sys.executable, "-c", GRAMMAR]).split()]
        for _ in range(5)
    ]
    for title, taken in zip(("import", "first check"), zip(*starts, strict=True), strict=True):
        print(
            f"{title:<22} {statistics.median(taken):.1f} ms ({min(taken):.1f} to {max(taken):.1f})"
        )

    engines = [memqos_engine(), celpy_engine(), cel_cpp_engine()]
    for what in ("trigger", "limited", "unlimited"):
        values = {engine.name: engine.evaluate[what]() for engine in engines}
        if len({float(value) for value in values.values()}) != 1:  # type: ignore[arg-type]  # bool or float
            raise ValueError(f"{what}: the engines do not agree: {values}")
        print(f"{what}: all give {values['memqos']}")
    for what in ("trigger", "ranking"):
        runs = {engine.name: engine.check[what] for engine in engines}
        compare(f"check {what}", runs, options.rounds, options.seconds)
    for what in ("trigger", "unlimited", "limited"):
        runs = {engine.name: engine.evaluate[what] for engine in engines}
        title = what if what == "trigger" else f"ranking, {what}"
        compare(title, runs, options.rounds, options.seconds)
    attack()


if __name__ == "__main__":
    main()
