"""Small inline SVG plots. Colours come from the page's style sheet, so that they fit its light and dark forms."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from markupsafe import Markup, escape

if TYPE_CHECKING:
    from collections.abc import Sequence

WIDTH, HEIGHT = 520, 240
LEFT, RIGHT, TOP, BOTTOM = 62, 14, 14, 40


@dataclass(frozen=True)
class Axis:
    """A scale from values to a length, with round ticks."""

    low: float
    high: float
    ticks: tuple[float, ...]
    log: bool = False

    def place(self, value: float) -> float:
        """Where a value lies between 0 (low) and 1 (high)."""
        if self.log:
            value, low, high = (math.log10(max(one, 1e-30)) for one in (value, self.low, self.high))
        else:
            low, high = self.low, self.high
        return 0.0 if high == low else (value - low) / (high - low)


def linear_axis(values: Sequence[float], from_zero: bool = True, wanted: int = 5) -> Axis:
    """An axis whose ticks are 1, 2 or 5 times a power of ten."""
    low = 0.0 if from_zero else min(values)
    high = max([*values, low])
    if high == low:
        high = low + (abs(low) or 1.0)
    raw = (high - low) / wanted
    power = 10 ** math.floor(math.log10(raw))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= raw * 0.999)
    first, last = math.floor(low / step), math.ceil(high / step - 1e-9)
    ticks = tuple(number * step for number in range(first, last + 1))
    return Axis(ticks[0], ticks[-1], ticks)


def log_axis(values: Sequence[float]) -> Axis:
    """An axis over whole powers of ten."""
    positive = [value for value in values if value > 0] or [1.0]
    low = math.floor(math.log10(min(positive)))
    high = max(math.ceil(math.log10(max(positive))), low + 1)
    return Axis(10.0**low, 10.0**high, tuple(10.0**power for power in range(low, high + 1)), log=True)


def short(value: float) -> str:
    """A number as an axis says it: 1500 as 1.5k, 0.004 as 0.004."""
    for size, sign in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.3g}{sign}"
    return f"{value:.3g}"


class Canvas:
    """Collects the parts of one plot."""

    def __init__(self, title: str, y: Axis, y_label: str, x_label: str) -> None:
        self.title, self.y, self.x_label = title, y, x_label
        self.parts: list[str] = []
        for tick in y.ticks:
            at = self.down(tick)
            self.parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{at:.1f}" y2="{at:.1f}"/>')
            self.text(LEFT - 8, at + 4, short(tick), "end")
        self.text(WIDTH / 2, HEIGHT - 6, x_label, "middle", "label")
        middle = (TOP + HEIGHT - BOTTOM) / 2
        turned = f'transform="rotate(-90 14 {middle:.1f})"'
        self.text(14, middle, y_label, "middle", "label", turned)

    def across(self, share: float) -> float:
        """The horizontal place of a share (0 to 1) of the plot's width."""
        return LEFT + share * (WIDTH - LEFT - RIGHT)

    def down(self, value: float) -> float:
        """The vertical place of a value."""
        return HEIGHT - BOTTOM - self.y.place(value) * (HEIGHT - TOP - BOTTOM)

    def text(self, x: float, y: float, text: str, anchor: str, kind: str = "tick", more: str = "") -> None:
        """Add a text."""
        self.parts.append(
            f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" {more}>{escape(text)}</text>'
        )

    def mark(self, kind: str, shape: str, tip: str) -> None:
        """Add a shape with a tool tip."""
        self.parts.append(f'<g class="{kind}">{shape}<title>{escape(tip)}</title></g>')

    def done(self) -> Markup:
        """The whole SVG element."""
        body = "".join(self.parts)
        return Markup(  # noqa: S704  (every text went through escape)
            f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(self.title)}">{body}</svg>'
        )


def _labels(canvas: Canvas, names: Sequence[str]) -> list[float]:
    """Write the names of evenly spaced columns; return their places. Thinned out where they would touch."""
    places = [canvas.across((number + 0.5) / len(names)) for number in range(len(names))]
    every = math.ceil(len(names) / 16)
    for number, (place, name) in enumerate(zip(places, names, strict=True)):
        if number % every == 0:
            canvas.text(place, HEIGHT - BOTTOM + 16, name, "middle")
    return places


def norms(layers: Sequence[dict[str, Any]]) -> Markup:
    """Mean norm of a row per layer, with its spread: ``[{layer, norm, spread}]``."""
    tops = [float(one["norm"]) + float(one.get("spread", 0)) for one in layers]
    canvas = Canvas("Norm of the states per layer", linear_axis(tops), "norm of a row", "decoder layer")
    for place, one in zip(_labels(canvas, [str(one["layer"]) for one in layers]), layers, strict=True):
        norm, spread = float(one["norm"]), float(one.get("spread", 0))
        high, low = canvas.down(norm + spread), canvas.down(max(0.0, norm - spread))
        shape = (
            f'<line x1="{place:.1f}" x2="{place:.1f}" y1="{low:.1f}" y2="{high:.1f}"/>'
            f'<circle cx="{place:.1f}" cy="{canvas.down(norm):.1f}" r="5"/>'
        )
        canvas.mark("one", shape, f"layer {one['layer']}: norm {norm:.4g}, spread {spread:.4g}")
    return canvas.done()


def differences(layers: Sequence[dict[str, Any]]) -> Markup:
    """Relative difference from the reference per layer: ``[{layer, median?, worst, bound?}]``, on a log scale."""
    values = [float(one[key]) for one in layers for key in ("median", "worst", "bound") if one.get(key)]
    canvas = Canvas("Difference from the reference per layer", log_axis(values), "relative difference", "decoder layer")
    for place, one in zip(_labels(canvas, [str(one["layer"]) for one in layers]), layers, strict=True):
        for key, kind, size in (("worst", "two", 4), ("median", "one", 5)):
            if not one.get(key):
                continue
            value = float(one[key])
            shape = f'<circle cx="{place:.1f}" cy="{canvas.down(value):.1f}" r="{size}"/>'
            canvas.mark(kind, shape, f"layer {one['layer']}: {key} row {value:.3%}")
        if one.get("bound"):
            at = canvas.down(float(one["bound"]))
            shape = f'<line x1="{place - 14:.1f}" x2="{place + 14:.1f}" y1="{at:.1f}" y2="{at:.1f}"/>'
            canvas.mark("bound", shape, f"layer {one['layer']}: bound {float(one['bound']):.3%}")
    return canvas.done()


def histogram(edges: Sequence[float], counts: Sequence[int]) -> Markup:
    """Samples by length: ``edges`` has one value more than ``counts``."""
    canvas = Canvas(
        "Samples by length", linear_axis([float(count) for count in counts]), "samples", "tokens per sample"
    )
    wide = 1 / len(counts)
    for number, count in enumerate(counts):
        left, top = canvas.across(number * wide), canvas.down(count)
        width = max(1.0, canvas.across((number + 1) * wide) - left - 2)
        height = HEIGHT - BOTTOM - top
        shape = f'<rect x="{left + 1:.1f}" y="{top:.1f}" width="{width:.1f}" height="{height:.1f}" rx="2"/>'
        canvas.mark("fill", shape, f"{edges[number]:g} to {edges[number + 1]:g} tokens: {count} samples")
    every = math.ceil(len(edges) / 9)
    for number in range(0, len(edges), every):
        canvas.text(canvas.across(number * wide), HEIGHT - BOTTOM + 16, short(edges[number]), "middle")
    return canvas.done()


def throughput(points: Sequence[dict[str, Any]]) -> Markup:
    """Tokens per second over the time of an extraction: ``[{seconds, tokens_per_s}]``."""
    speeds = [float(one["tokens_per_s"]) for one in points]
    time = linear_axis([float(one["seconds"]) for one in points])
    canvas = Canvas("Throughput over time", linear_axis(speeds), "tokens/s", "seconds since the start")
    for tick in time.ticks:
        canvas.text(canvas.across(time.place(tick)), HEIGHT - BOTTOM + 16, short(tick), "middle")
    places = [
        (canvas.across(time.place(float(one["seconds"]))), canvas.down(speed))
        for one, speed in zip(points, speeds, strict=True)
    ]
    # A point is the mean speed since the point before: a step, not a slope.
    floor, left = canvas.down(0), canvas.across(0)
    steps = " ".join(f"V{y:.1f} H{x:.1f}" for x, y in places)
    canvas.parts.append(f'<path class="area" d="M{left:.1f},{floor:.1f} {steps} V{floor:.1f} Z"/>')
    canvas.parts.append(f'<path class="curve" d="M{left:.1f},{places[0][1]:.1f} {steps}"/>')
    for (x, y), one in zip(places, points, strict=True):
        shape = (
            f'<rect x="{left:.1f}" y="{y:.1f}" width="{max(0.0, x - left):.1f}" height="{max(0.0, floor - y):.1f}"/>'
        )
        canvas.mark("clear", shape, f"until {one['seconds']:,} s: {one['tokens_per_s']:,} tokens/s")
        left = x
    return canvas.done()
