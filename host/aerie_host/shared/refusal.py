"""A refusal: the exception of all code that does not go on, with what a person needs to mend the cause."""

from __future__ import annotations

from .checks import Check


class Refusal(Exception):  # noqa: N818 - a refusal is an answer, not a fault of the program
    """Something is not done, or did not succeed.

    Attributes:
        name: what was looked at, in the words of a check: "chat template", "disk for hidden states".
        found: what is there, or what happened.
        wanted: what should be there; may be empty.
        remedy: what to do; may be empty.
        file: the file that it is about, if it is about one.

    """

    def __init__(
        self, name: str, found: object, wanted: object = "", remedy: str = "", file: str | None = None
    ) -> None:
        self.name = name
        self.found = str(found)
        self.wanted = str(wanted)
        self.remedy = remedy
        self.file = file
        super().__init__(name, self.found, self.wanted, remedy, file)

    def __str__(self) -> str:
        text = f"{self.name}: {self.found}"
        text += f"; wanted {self.wanted}" if self.wanted else ""
        return text + (f". Remedy: {self.remedy}" if self.remedy else "")

    def as_check(self) -> Check:
        """The same as a failed check."""
        return Check(self.name, "fail", self.found, self.wanted, self.remedy, self.file)


class UsageRefusal(Refusal):
    """The work could not be tried, because an input is missing or makes no sense: exit code 2."""
