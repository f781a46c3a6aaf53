"""Who goes first whatever the score."""

import pytest

from memqos.errors import InputError
from memqos.oom.classes import OOMClass
from memqos.oom.expression import Checked, check_ranking
from memqos.oom.preference import ATTRIBUTES, Preference, parse_preferences, preference_of
from memqos.oom.victim import Candidate, Eligibility, Selection, score_all, select_victim


A = "5f0c9a1e-0000-4000-8000-00000000000a"
B = "5f0c9a1e-0000-4000-8000-00000000000b"
STATIC = "0123456789abcdef0123456789abcdef"
PREFER, PLAIN, AVOID, NEVER = Preference


class TestParse:
    """UID and word, a line each."""

    def test_lines(self) -> None:
        """Comments and blank lines; the stricter of two words for one pod."""
        text = (
            f"# pods\n\n{A} avoid\n\t{B}   never # the database\n{STATIC} prefer\n{A} prefer\r\n"
        )
        assert parse_preferences(text) == {A: AVOID, B: NEVER, STATIC: PREFER}
        assert parse_preferences("") == {}

    @pytest.mark.parametrize("end", ["\u2028", "\x85", "\x0c"])
    def test_line_ends(self, end: str) -> None:
        """Only LF and CRLF end a line, and so a comment; lines are counted by them."""
        text = f"# one{end}{B} never\r\n{A} avoid # b{end}c\r\n"
        assert parse_preferences(text) == {A: AVOID}
        with pytest.raises(InputError) as caught:
            parse_preferences(f"{text}slip\r\n")
        assert caught.value.line == 3

    @pytest.mark.parametrize(
        "line",
        [
            A,
            f"{A} plain",
            f"{A} Never",
            f"{A} never ever",
            f"never {A}",
            f"pod{A} never",
            f"{A[:-1]} never",
            f"{A.upper()} never",
            f"{A.replace('-', '_')} never",
            "* never",
        ],
    )
    def test_malformed(self, line: str) -> None:
        """The line is named: a pod that was to be spared must not be killed for a slip."""
        with pytest.raises(InputError, match="expected a pod's UID") as caught:
            parse_preferences(f"{B} never\n# next\n{line}\n")
        assert caught.value.line == 3


class TestPreferenceOf:
    """What a file says and what a cgroup says of itself."""

    @pytest.mark.parametrize(
        "path",
        [
            f"kubepods/pod{A}",
            f"kubepods.slice/kubepods-pod{A.replace('-', '_')}.slice",
        ],
    )
    def test_uid(self, path: str) -> None:
        """As both cgroup drivers write it."""
        assert preference_of(path, {A: AVOID}) is AVOID
        assert preference_of(path, {B: AVOID}) is PLAIN

    @pytest.mark.parametrize("before", ["", "pod", "kubepods-burstable-pod", "abcdef0123456789"])
    @pytest.mark.parametrize("uid", [A, STATIC])
    def test_what_comes_before(self, before: str, uid: str) -> None:
        """It may look like a UID's beginning, as the d of pod does."""
        assert preference_of(f"x/{before}{uid}", {B: NEVER, uid: AVOID}) is AVOID
        assert preference_of(f"x/{before}{uid[:-1]}", {uid: AVOID}) is PLAIN

    def test_protected(self) -> None:
        """A part is enough, in either spelling of the name."""
        for name in (A, A.replace("-", "_")):
            assert preference_of(f"x/pod{name}", {A: PREFER}, (), [A[:13]]) is NEVER
        assert preference_of(f"x{A}/pod", {}, (), [A[:13]]) is PLAIN

    @pytest.mark.parametrize(
        ("attributes", "expected"),
        [
            ([], PLAIN),
            (["trusted.oomd_prefer"], PREFER),
            (["trusted.oomd_avoid"], AVOID),
            (["user.oomd_avoid"], AVOID),
            (["user.oomd_omit"], NEVER),
            (["trusted.oomd_prefer", "user.oomd_avoid"], AVOID),
            ([*ATTRIBUTES], NEVER),
        ],
    )
    def test_attributes(self, attributes: list[str], expected: Preference) -> None:
        """The names of systemd and of oomd; never wins over avoid, and avoid over prefer."""
        assert preference_of("system/x", {}, attributes) is expected
        assert preference_of(f"kubepods/pod{A}", {A: NEVER}, attributes) is NEVER


def choose(*candidates: tuple[str, OOMClass, int, Preference], strict: bool = True) -> Selection:
    """Choose among (path, class, score, preference)."""
    ranking = check_ranking("double(memory_current.orValue(0u))")
    assert isinstance(ranking, Checked)
    found = [
        Candidate(path, oom_class, size, preference=preference)
        for path, oom_class, size, preference in candidates
    ]
    return select_victim(score_all(found, ranking), strict=strict)


def victim(selection: Selection) -> str | None:
    """Return the victim's path."""
    return None if selection.victim is None else selection.victim.candidate.path


LOW, HIGH = OOMClass.BESTEFFORT, OOMClass.GUARANTEED


class TestSelection:
    """The ranking decides within the first group that has an eligible candidate."""

    def test_a_preferred_one_goes_before_a_less_important_class(self) -> None:
        """Class and score count within the group only."""
        selection = choose(
            ("plain", LOW, 9, PLAIN),
            ("larger", HIGH, 5, PREFER),
            ("smaller", HIGH, 4, PREFER),
            ("spared", LOW, 99, NEVER),
            ("avoided", LOW, 50, AVOID),
        )
        assert victim(selection) == "larger"
        assert [item.eligibility for item in selection.scored] == [
            Eligibility.OTHER_PREFERENCE,
            Eligibility.ELIGIBLE,
            Eligibility.ELIGIBLE,
            Eligibility.NEVER,
            Eligibility.OTHER_PREFERENCE,
        ]
        assert [item.eligible for item in selection.scored] == [True, True, True, False, True]

    def test_class_order_within_a_group(self) -> None:
        """The least important class of the group goes first, unless the order is off."""
        group = (("high", HIGH, 9, PREFER), ("low", LOW, 1, PREFER), ("plain", LOW, 5, PLAIN))
        assert victim(choose(*group)) == "low"
        assert choose(*group).scored[0].eligibility is Eligibility.OTHER_CLASS
        assert victim(choose(*group, strict=False)) == "high"

    @pytest.mark.parametrize("strict", [True, False])
    def test_groups_without_an_eligible_one_are_passed_over(self, strict: bool) -> None:
        """A preferred one that scores 0 helps nobody; an avoided one goes when it must."""
        group = (("small", LOW, 0, PREFER), ("none", LOW, 0, PLAIN), ("last", HIGH, 1, AVOID))
        assert victim(choose(*group, strict=strict)) == "last"

    def test_never(self) -> None:
        """Even when there is nobody else."""
        assert victim(choose(("a", LOW, 9, NEVER), ("b", LOW, 0, AVOID))) is None

    def test_ties_are_within_the_group(self) -> None:
        """Others with the same score that would not have been chosen do not tie."""
        selection = choose(("a", LOW, 5, PLAIN), ("b", LOW, 5, AVOID), ("c", LOW, 5, PLAIN))
        assert victim(selection) == "a"
        assert [item.candidate.path for item in selection.tied] == ["c"]
