"""An independent forward by Transformers that hidden states are compared with, and the bounds that rounding sets.

The states come from hooks on each decoder layer. The last entry of ``output_hidden_states`` is taken after the final
norm; a reference of that would hide the mistake of saving it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from aerie_host.shared.refusal import Refusal

if TYPE_CHECKING:
    from pathlib import Path

# A forward in bfloat16 differs from float32 by rounding alone. A second bfloat16 forward rounds elsewhere (other
# kernels, other order of sums), by about as much. Rounding does not explain a state that is further away than this many
# times the largest deviation seen.
ROUNDINGS = 2.0
# Half a unit in the last place of bfloat16 (8 significant bits): what storing a state may cost in any case.
UNIT_ROUNDOFF = 2.0**-8

# Where Transformers keeps the decoder layers of its causal language models.
PLACES = (
    "model.layers", "model.language_model.layers", "language_model.model.layers", "transformer.h", "transformer.blocks",
    "model.decoder.layers", "gpt_neox.layers",
)  # fmt: skip


def decoder_layers(model: Any) -> torch.nn.ModuleList:
    """Return the decoder layers of a Transformers causal language model, also inside a multimodal wrapper.

    Raises:
        Refusal: there is no list of decoder layers at the known places.

    """
    for path in PLACES:
        found: Any = model
        for name in path.split("."):
            found = getattr(found, name, None)
        if isinstance(found, torch.nn.ModuleList) and len(found):
            return found
    raise Refusal(
        "decoder layers",
        f"{type(model).__name__} has none at {', '.join(PLACES)}",
        "a list of decoder layers at one of these places",
        "add the place to PLACES in aerie_host/checkpoint/reference_forward.py",
    )


class Nearest(NamedTuple):
    """The state that is closest, and the relative distances of the median and of the worst row from it."""

    name: str
    median: float
    worst: float


NOTHING = Nearest("", 0.0, 0.0)


@dataclass(frozen=True)
class Forward:
    """One sequence through the model: everything that a captured state may turn out to be, float32 on the CPU.

    Attributes:
        layers: output of each decoder layer, ``[layers, seq, hidden]``.
        embedding: input of the first decoder layer, ``[seq, hidden]``.
        final: output of the last decoder layer after the final norm, ``[seq, hidden]``.
        updates: what each decoder layer adds last to its residual, ``[layers, seq, hidden]``; None when not recorded.
    """

    layers: torch.Tensor
    embedding: torch.Tensor
    final: torch.Tensor
    updates: torch.Tensor | None = None

    def nearest(self, state: torch.Tensor) -> Nearest:
        """The state of this sequence that ``state`` ``[seq, hidden]`` is closest to, by the median row."""
        candidates = {f"the output of layer {number}": rows for number, rows in enumerate(self.layers)}
        candidates |= {"the embedding": self.embedding, "the output of the final norm": self.final}
        for number, rows in enumerate(self.updates if self.updates is not None else ()):
            candidates[f"the update of layer {number} without its residual"] = rows
        errors = {name: row_errors(state, rows).nan_to_num(torch.inf, torch.inf) for name, rows in candidates.items()}
        name = min(errors, key=lambda candidate: float(errors[candidate].median()))
        return Nearest(name, float(errors[name].median()), float(errors[name].amax()))


class ReferenceModel:
    """A checkpoint loaded by Transformers in one dtype.

    Args:
        checkpoint: folder with configuration, weights and tokenizer.
        dtype: of the weights and of the arithmetic.
        device: where it computes.
        trust_remote_code: run code that comes with the checkpoint.
        updates: keep what each layer adds to its residual, too.
    """

    def __init__(
        self,
        checkpoint: Path | str,
        dtype: torch.dtype,
        device: str = "cpu",
        trust_remote_code: bool = False,
        updates: bool = False,
    ) -> None:
        from transformers import AutoModelForCausalLM

        # eager attention: the one implementation that rounds only where the model's own definition does
        self.model: Any = AutoModelForCausalLM.from_pretrained(
            checkpoint, dtype=dtype, attn_implementation="eager", trust_remote_code=trust_remote_code
        )
        self.model.to(device).eval()
        self._device = device
        self._states: list[torch.Tensor] = []
        self._updates: list[torch.Tensor] = []
        for layer in decoder_layers(self.model):
            layer.register_forward_hook(self._keep(self._states))
            # A layer adds last what its feed-forward part gives, in some models after one more norm.
            last = getattr(layer, "post_feedforward_layernorm", None) or getattr(layer, "mlp", None)
            if updates and last is not None:
                last.register_forward_hook(self._keep(self._updates))

    @staticmethod
    def _keep(states: list[torch.Tensor]) -> Any:
        def hook(_layer: torch.nn.Module, _inputs: Any, output: Any) -> None:
            state = output[0] if isinstance(output, tuple) else output
            states.append(state.reshape(-1, state.shape[-1]).float())

        return hook

    def forward(self, input_ids: list[int]) -> Forward:
        """Run one sequence through the model."""
        self._states.clear()
        self._updates.clear()
        with torch.inference_mode():
            output = self.model(
                torch.tensor([input_ids], device=self._device), use_cache=False, output_hidden_states=True
            )
        layers = torch.stack(self._states).cpu()
        updates = torch.stack(self._updates).cpu() if self._updates else None
        self._states.clear()
        self._updates.clear()
        embedding, final = output.hidden_states[0][0], output.hidden_states[-1][0]
        return Forward(layers, embedding.float().cpu(), final.float().cpu(), updates)


def row_errors(states: torch.Tensor, reference: torch.Tensor) -> torch.Tensor:
    """Relative distance of each row: ``|state - reference| / |reference|``, float32 ``[..., seq]``."""
    distance = torch.linalg.vector_norm(states.float() - reference, dim=-1)
    return distance / torch.linalg.vector_norm(reference, dim=-1).clamp_min(torch.finfo(torch.float32).tiny)


@dataclass(frozen=True)
class Difference:
    """How far one layer of one sequence is from the reference.

    Attributes:
        where: the sequence's name.
        layer: the decoder layer that was to be saved.
        rows: how many rows were compared.
        median: relative distance of the median row.
        worst: relative distance of the worst row; infinite where a value is NaN or infinite.
        row: which row that is.
        nearest: the state of the same sequence that it is closest to.
        unfit: why it could not be compared; empty when it was.
    """

    where: str
    layer: int
    rows: int = 0
    median: float = 0.0
    worst: float = 0.0
    row: int = 0
    nearest: Nearest = NOTHING
    unfit: str = ""


def measure(where: str, state: torch.Tensor, exact: Forward, layer: int) -> Difference:
    """Compare one captured state ``[seq, hidden]`` with the output of the decoder layer that was to be saved."""
    wanted = exact.layers[layer]
    if state.shape != wanted.shape:
        return Difference(where, layer, unfit=f"shape {list(state.shape)}, wanted {list(wanted.shape)}")
    if state.dtype != torch.bfloat16:
        return Difference(where, layer, unfit=f"{state.dtype}, wanted torch.bfloat16")
    errors = row_errors(state, wanted).nan_to_num(torch.inf, torch.inf)
    row = int(errors.argmax())
    return Difference(where, layer, len(errors), float(errors.median()), float(errors[row]), row, exact.nearest(state))


@dataclass
class Rounding:
    """How far rounding alone moves the output of each decoder layer, from bfloat16 forwards of the same sequences."""

    median: list[float] = field(default_factory=list)
    worst: list[float] = field(default_factory=list)

    def add(self, rounded: Forward, exact: Forward) -> None:
        """Take in one sequence, forwarded in bfloat16 and in float32."""
        errors = row_errors(rounded.layers, exact.layers)
        medians, worst = errors.median(-1).values.tolist(), errors.amax(-1).tolist()
        self.median = [max(pair) for pair in zip(self.median or medians, medians, strict=True)]
        self.worst = [max(pair) for pair in zip(self.worst or worst, worst, strict=True)]

    def median_bound(self, layer: int) -> float:
        """The largest relative distance of a median row that is rounding."""
        return ROUNDINGS * self.median[layer] + UNIT_ROUNDOFF

    def row_bound(self, layer: int) -> float:
        """The largest relative distance of any row that is rounding."""
        return ROUNDINGS * self.worst[layer] + UNIT_ROUNDOFF

    def problem(self, difference: Difference) -> str:
        """What is wrong with a state; empty when rounding explains its distance."""
        layer = difference.layer
        row_bound, median_bound = self.row_bound(layer), self.median_bound(layer)
        where = f"{difference.where}, layer {layer}"
        if difference.unfit:
            return f"{where}: {difference.unfit}"
        if difference.worst <= row_bound and difference.median <= median_bound:
            return ""
        name, median, worst = difference.nearest
        # The nearest state shows a mix-up only where rounding, of any layer, explains the rest.
        largest = ROUNDINGS * max(self.worst) + UNIT_ROUNDOFF
        if name != f"the output of layer {layer}" and median <= largest:
            neighbours = [f"the output of layer {layer + step}" for step in (-1, 1)]
            note = ": off by one" if name in neighbours else ""
            verb = "equals" if worst <= largest else "nearest to"
            return f"{where}: saved as layer {layer}, {verb} {name}{note}"
        if difference.worst == float("inf"):
            return f"{where}: row {difference.row} holds NaN or infinity"
        if difference.worst > row_bound:
            row, worst = difference.row, difference.worst
            return f"{where}: row {row} differs by {worst:.1%}, rounding explains {row_bound:.1%}"
        return f"{where}: the median row differs by {difference.median:.1%}, rounding explains {median_bound:.1%}"
