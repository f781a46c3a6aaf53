"""How refusals are shown."""

from memqos.oom.expression import Problem, Problems, check_ranking, check_trigger


def test_a_refusal_is_rendered_with_its_line_and_a_caret() -> None:
    """The form that operators know from Talos."""
    text = "disk > 5.0"
    problems = check_trigger(text)

    assert isinstance(problems, Problems)
    assert problems.render(text) == (
        "ERROR: <input>:1:1: undeclared reference to 'disk' (in container '')\n | disk > 5.0\n | ^"
    )


def test_the_place_is_right_behind_other_lines() -> None:
    """Lines and columns count from 1; the caret stands below the column."""
    text = "true &&\n  disk > 5.0"
    problems = check_trigger(text)

    assert isinstance(problems, Problems)
    assert problems[0][1:] == (2, 3)
    assert problems.render(text).endswith("\n |   disk > 5.0\n | ..^")


def test_all_problems_are_given_in_order() -> None:
    """One run shows every undeclared name, those of dead branches too."""
    problems = check_ranking("false ? one : two + three")

    assert isinstance(problems, Problems)
    assert [problem.column for problem in problems] == [9, 15, 21]


def test_a_problem_beyond_the_text_has_no_source_line() -> None:
    """Rendering never fails, whatever text it is given."""
    assert Problems([Problem("no", 9, 1)]).render("a") == "ERROR: <input>:9:1: no"
