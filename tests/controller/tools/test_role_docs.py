"""Role READMEs, defaults and argument specs are kept in step."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools import role_docs

README = "# r\n\n<!-- variables: begin -->\n<!-- variables: end -->\n\nafter\n"


def role(tmp_path: Path, defaults: str) -> Path:
    (tmp_path / "r" / "defaults").mkdir(parents=True)
    (tmp_path / "r" / "defaults" / "main.yml").write_text(defaults)
    return tmp_path / "r"


OPTIONS = {
    "r_size": {"type": "int", "default": 3, "description": "How many | much."},
    "r_path": {"type": "path", "required": True, "description": ["Where.", "Exactly."]},
}


def test_table_has_required_first_and_is_stable() -> None:
    once = role_docs.with_table(README, OPTIONS)
    assert once.index("r_path") < once.index("r_size")
    assert "| `r_path` | path | **required** | Where. Exactly. |" in once
    assert "| `r_size` | int | `3` | How many \\| much. |" in once
    assert once.endswith("\n\nafter\n")
    assert role_docs.with_table(once, OPTIONS) == once


@pytest.mark.parametrize(
    ("defaults", "problem"),
    [
        ("# r_path: /x\nr_size: 3\n", ""),
        ("r_size: 3\n", "r_path is required and is no commented entry"),
        ("# r_path: /x\nr_size: 4\n", "r_size: default 4, argument spec 3"),
        ("# r_path: /x\n", "r_size is optional and has no default"),
        ("# r_path: /x\nr_size: 3\nr_other: 1\n", "r_other stands in defaults"),
        ("r_path: /x\nr_size: 3\n", "r_path is required and has a default"),
    ],
)
def test_disagreement_between_defaults_and_spec_is_named(tmp_path: Path, defaults: str, problem: str) -> None:
    found = role_docs.defaults_problems(role(tmp_path, defaults), OPTIONS)
    assert ("\n".join(found) == "") if not problem else problem in "\n".join(found)


def test_readme_without_a_place_for_the_table_is_refused() -> None:
    with pytest.raises(ValueError, match="variables: begin"):
        role_docs.with_table("# r\n", OPTIONS)
