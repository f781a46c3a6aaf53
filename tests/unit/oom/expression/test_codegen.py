"""What the generated functions are made of."""

import ast
from random import Random
from types import MappingProxyType

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memqos.oom.expression import DOUBLE, Checked, Environment, Problems, check
from memqos.oom.expression.checker import Checker
from memqos.oom.expression.codegen import compile_tree
from memqos.oom.expression.syntax import parse
from tests.support.expressions import ENVIRONMENT, SCALARS, Maker


def source(text: str, environment: Environment = ENVIRONMENT) -> str:
    """Return the function that an expression becomes."""
    root = parse(text)
    checker = Checker(environment)
    checker.run(root)
    assert not checker.errors, checker.errors
    return compile_tree(root, frozenset(checker.names)).source


# Every name that generated code uses begins like this, or is written out in codegen.
GENERATED = ("k", "t", "f", "x", "call_")
WRITTEN = frozenset(
    {
        *("v", "b", "e", "n", "r", "o", "x", "error", "evaluate", "translate", "slow"),
        *("BUDGET", "Duration", "ERRORS", "EvaluationError", "KeyError", "Uint"),
        *("as_bool", "as_optional", "box", "charge", "charge_length", "dict", "divide", "dot"),
        *("double_from_text", "double_text", "float", "given", "index", "int", "int_divide"),
        *("int_from_double", "int_from_text", "int_from_uint", "int_modulo", "int_overflow"),
        *("items_of", "len", "make_map", "matches", "no_value", "optional_index", "optional_of"),
        *("present_field", "search", "spend", "uint_divide", "uint_from_double"),
        *("uint_from_int", "uint_from_text", "uint_modulo", "uint_overflow", "unbox"),
    }
)
ATTRIBUTES = frozenset({"append", "present", "value", "startswith", "endswith"})


def foreign(code: str) -> set[str]:
    """Return the names, attributes and texts in generated code that no rule of ours made."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(code)):
        match node:
            case ast.Name(id=name) | ast.arg(arg=name) | ast.FunctionDef(name=name):
                rest = name.lstrip("ktfx").removeprefix("call_").replace("_t", "")
                if name not in WRITTEN and not (name.startswith(GENERATED) and rest.isdigit()):
                    found.add(name)
            case ast.Attribute(attr=name) if name not in ATTRIBUTES:
                found.add(name)
            case ast.Constant(value=str() | bytes() as text):
                found.add(repr(text))
            case ast.Import() | ast.ImportFrom() | ast.Lambda() | ast.ClassDef():
                found.add(type(node).__name__)
            case _:
                pass
    return found


@pytest.mark.parametrize(
    "text",
    [
        's == \'__import__("os").system("id")\'',
        "s.contains('\\\"\\'\\n)') ? 'evil' : \"evil\"",
        "{'evil': n}.evil + {'a': n}['a']",
        "has({'__class__': n}.__class__)",
        "{'__globals__': n}.?__globals__.orValue(1)",
        "['a'].map(evil, evil + s)",
        "[n].exists(__import__, __import__ == 1)",
        "optional.of(s).optMap(__builtins__, __builtins__ + s)",
        "s.matches('evil.*') || s.startsWith('evil')",
        "b'evil' + bytes(s) == b'evil'",
        "q[n] > 1.0 && n in q",
    ],
)
def test_nothing_of_the_text_reaches_the_source(text: str) -> None:
    """Texts, fields and the names of loops are values or names of ours."""
    code = source(text)

    assert foreign(code) == set()
    assert "evil" not in code
    assert "__" not in code


@settings(max_examples=150, derandomize=True, database=None, deadline=None)
@given(chance=st.randoms(use_true_random=True))
def test_generated_expressions_become_names_of_ours(chance: Random) -> None:
    """The same for expressions made at random."""
    text = Maker(chance).make(chance.choice(SCALARS), 3)

    checked = check(text, ENVIRONMENT, None)
    if isinstance(checked, Checked):
        assert foreign(source(text)) == set()


def test_names_of_variables_are_values_too() -> None:
    """An environment may call a variable what it likes; only the text cannot use every name."""
    environment = Environment(
        variables=MappingProxyType({"evil": DOUBLE, "class": DOUBLE}),
        constants=MappingProxyType({}),
    )

    assert "evil" not in source("evil + class", environment)


def test_the_name_space_has_no_builtins() -> None:
    """Generated code could not reach more than it was given."""
    checked = check("n + 1", ENVIRONMENT, None)

    assert isinstance(checked, Checked)
    assert checked.evaluate.__globals__["__builtins__"] == {}


def test_constants_are_folded_and_types_known() -> None:
    """No look-up, conversion or comparison of what is known is left for later."""
    code = source("{0: 1.0 + 1.0, 1: double('2.5')}[n] * double(2 + 3)")

    assert "(k1[v[k2]] * 5.0)" in code


def test_long_expressions_do_not_nest_too_deeply_for_python() -> None:
    """Code that would exceed the parser's limit is moved into functions."""
    checked = check("+".join(["n"] * 100), ENVIRONMENT, None)

    assert isinstance(checked, Checked)
    assert checked.evaluate({"n": 2}) == 200


def test_deep_logic_does_not_nest_blocks() -> None:
    """Python allows twenty blocks in one another; here are ninety conditions."""
    text = "1/n == 1"
    for _ in range(30):
        text = f"(1/n == 2 && ({text} || 1/n == 3))"
    checked = check(text, ENVIRONMENT, None)

    assert not isinstance(checked, Problems)
    assert checked.evaluate({"n": 1}) is False
