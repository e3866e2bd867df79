"""The page: one section for each group."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tools.mutationkit.groups import NOT_CAUGHT, Row

if TYPE_CHECKING:
    from pathlib import Path

TITLES = {
    "patches": "Every patch",
    "hunks": "Every hunk of every patch",
    "contracts": "Every declared contract",
    "properties": "Every property of captured states",
    "undeclared": "Every patch, as if nobody had known that it is needed",
}
ABOUT = {
    "properties": (
        "Damage to the code that runs. The audit sees every edited file; it is left out here, and so are the imports: "
        "the truth rung itself must see it in the states."
    ),
    "undeclared": (
        "Without the audit: what imports and truth see of a stack that lacks one patch, and why they cannot see some."
    ),
}


def line(row: Row) -> str:
    """A row of the table."""
    cells = (row.mutation, row.faults, row.damage, row.rung, row.message)
    return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |\n"


def cells(text: str) -> tuple[str, ...]:
    """The cells of a row as the page has them."""
    return tuple(cell.strip() for cell in re.split(r"(?<!\\)\|", text)[1:-1])


def section(group: str, lines: list[str]) -> str:
    """A group's table."""
    caught = sum(cells(one)[3] != NOT_CAUGHT for one in lines)
    about = f"{ABOUT[group]}\n\n" if group in ABOUT else ""
    head = "| what is broken | fault | how | caught by | message |\n|---|---|---|---|---|\n"
    return f"## {TITLES[group]}\n\n{about}{caught} of {len(lines)} caught.\n\n{head}{''.join(lines)}"


def merged(earlier: list[str], rows: list[Row]) -> list[str]:
    """Lines of rows made anew in the places of those that they replace; new ones at the end."""
    found = {(cells(text)[0], cells(text)[2]): text for text in earlier}
    for row in rows:
        text = line(row)
        found[cells(text)[0], cells(text)[2]] = text
    return list(found.values())


def page(rows: dict[str, list[Row]], stack: str, earlier: str, only: bool) -> str:
    """The whole page; groups that were not made anew stay as the page had them ``earlier``.

    With ``only`` some rows of their groups were made anew, and the other rows of these stay too.
    """
    kept: dict[str, list[str]] = {}
    for part in re.split(r"(?m)^## ", earlier)[1:]:
        lines = [f"{text}\n" for text in part.splitlines() if text.startswith("| ")]
        kept[part.partition("\n")[0]] = lines[1:]
    sections = []
    for group, title in TITLES.items():
        old = kept.get(title, [])
        if group in rows:
            old = merged(old, rows[group]) if only else [line(row) for row in rows[group]]
        if old:
            sections.append(section(group, old))
    head = f"""# What catches what

Made by `make mutations` for the stack `{stack}`. Each line breaks one thing in a copy of the environment and names the
first rung of the verification that refused, cheapest rung first, with its message.
"""
    return "\n".join([head, *sections])


def write(output: Path, rows: dict[str, list[Row]], stack: str, only: bool = False) -> None:
    """Write the page, or renew some of its groups, or ``only`` some rows of these."""
    earlier = output.read_text(encoding="utf-8") if output.exists() else ""
    output.write_text(page(rows, stack, earlier, only), encoding="utf-8")
