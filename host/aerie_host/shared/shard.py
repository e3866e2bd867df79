"""One part of the data: every n-th row, so that the parts are equally large and their union is the data."""

from __future__ import annotations

import dataclasses
import re

from .refusal import UsageRefusal


@dataclasses.dataclass(frozen=True)
class Shard:
    """Shard ``number`` (from 1) of ``count``: every ``count``-th row of the data, beginning with row ``number``."""

    number: int = 1
    count: int = 1

    def takes(self, index: int) -> bool:
        """Whether the row at this place (from 0) belongs to the shard."""
        return index % self.count == self.number - 1

    def share(self, rows: int) -> int:
        """How many of so many rows lie in a shard of this size, at most."""
        return -(-rows // self.count)

    def __str__(self) -> str:
        return f"{self.number}/{self.count}"


WHOLE = Shard()


def parse(text: str) -> Shard:
    """The shard that ``i/n`` means; ``UsageRefusal`` when it means none."""
    match = re.fullmatch(r"(\d{1,6})/(\d{1,6})", text)
    shard = Shard(int(match[1]), int(match[2])) if match else None
    if shard is None or not 1 <= shard.number <= shard.count:
        wanted = "i/n with i from 1 to n, for example 2/8"
        raise UsageRefusal("shard", repr(text), wanted, "correct hidden_states_shard")
    return shard
