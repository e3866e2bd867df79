#!/usr/bin/env python3
"""Draw what bench/extract.py measured: tokens per second over the length of samples, a colour for each step size.

Takes the JSON line that bench/extract.py prints last, and writes an SVG: bench/plot.py measured.json x.svg.
Run with the controller's Python (.venv/bin/python bench/plot.py …).
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import aerie_paths  # noqa: F401  (makes the following importable)

from reporting import plots

COLOURS = ("#2f6fb0", "#c2571a", "#3d8b40", "#8a4fa3")
STYLE = """text { font: 11px sans-serif; fill: #333 } .label { font-size: 12px } .grid { stroke: #ddd }
.files { fill: none; stroke-width: 2 } .plain { fill: none; stroke-width: 1.5; stroke-dasharray: 4 3 }"""


def draw(found: dict[str, Any]) -> str:
    """The SVG: "to files" as lines, plain prefill dashed."""
    rows = [row for row in found["rows"] if row["lengths"] != "mixed"]
    lengths = sorted({int(row["lengths"]) for row in rows})
    steps = sorted({row["step_tokens"] for row in rows})
    top = plots.linear_axis([row[key] for row in rows for key in ("files", "plain")])
    canvas = plots.Canvas(f"{found['model']}: tokens/s by sample length", top, "tokens/s", "tokens per sample")
    places = {length: canvas.across((n + 0.5) / len(lengths)) for n, length in enumerate(lengths)}
    for length, place in places.items():
        canvas.text(place, plots.HEIGHT - plots.BOTTOM + 16, f"{length:,}", "middle")
    for number, step in enumerate(steps):
        colour = COLOURS[number % len(COLOURS)]
        some = sorted((row for row in rows if row["step_tokens"] == step), key=lambda row: int(row["lengths"]))
        for key in ("plain", "files"):
            points = " ".join(f"{places[int(row['lengths'])]:.1f},{canvas.down(row[key]):.1f}" for row in some)
            canvas.parts.append(f'<polyline class="{key}" stroke="{colour}" points="{points}"/>')
        canvas.text(
            plots.WIDTH - plots.RIGHT,
            plots.TOP + 12 * number + 4,
            f"steps of {step:,}",
            "end",
            more=f'style="fill: {colour}"',
        )
    svg = str(canvas.done())
    opened = svg.index(">") + 1
    size = f'width="{2 * plots.WIDTH}" height="{2 * plots.HEIGHT}"'
    head = svg[:opened].replace("<svg ", f'<svg xmlns="http://www.w3.org/2000/svg" {size} ')
    return f'{head}<style>{STYLE}</style><rect width="100%" height="100%" fill="#fff"/>{svg[opened:]}\n'


def main() -> int:
    """Read, draw, write."""
    parser = argparse.ArgumentParser(prog="bench/plot.py", description=__doc__.partition("\n")[0])
    parser.add_argument("measured", type=Path, help="a file whose last line is the JSON of bench/extract.py")
    parser.add_argument("svg", type=Path)
    given = parser.parse_args()
    given.svg.parent.mkdir(parents=True, exist_ok=True)
    given.svg.write_text(draw(json.loads(given.measured.read_text(encoding="utf-8").strip().splitlines()[-1])), "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
