"""An independent Transformers forward to hold hidden states against, and the bound that rounding sets.

The states come from hooks on each decoder layer, not from ``output_hidden_states``: its last entry is after the
final norm, which would hide the very mistake that is looked for.
"""

from __future__ import annotations

from typing import Any

import torch

# A forward in bfloat16 differs from float32 by rounding alone. A second bfloat16 forward rounds elsewhere (other
# kernels, other order of sums): its deviation is another one but alike in size, so a state that is further away than
# this many times the largest deviation seen is not rounding.
ROUNDINGS = 2.0
# Half a unit in the last place of bfloat16 (8 significant bits): what storing a state may cost in any case.
UNIT_ROUNDOFF = 2.0**-8


def decoder_layers(model: Any) -> torch.nn.ModuleList:
    """Return the decoder layers of a Transformers causal language model, also inside a multimodal wrapper.

    Raises:
        ValueError: there is no list of decoder layers at the known places.

    """
    for path in ("model.layers", "model.language_model.layers", "language_model.model.layers", "transformer.h"):
        found: Any = model
        for name in path.split("."):
            found = getattr(found, name, None)
        if isinstance(found, torch.nn.ModuleList) and len(found):
            return found
    raise ValueError(f"{type(model).__name__}: no decoder layers where Transformers' text models keep them")


class Reference:
    """A checkpoint loaded by Transformers in one dtype.

    Args:
        checkpoint: folder with configuration, weights and tokenizer.
        dtype: of the weights and of the arithmetic.
        trust_remote_code: run code that comes with the checkpoint.

    """

    def __init__(self, checkpoint: str, dtype: torch.dtype, device: str = "cpu", trust_remote_code: bool = False):
        from transformers import AutoModelForCausalLM

        # eager attention: the one implementation that rounds only where the model's own definition does
        self.model: Any = AutoModelForCausalLM.from_pretrained(
            checkpoint, dtype=dtype, attn_implementation="eager", trust_remote_code=trust_remote_code
        )
        self.model.to(device).eval()
        self._device = device
        self._states: list[torch.Tensor] = []
        for layer in decoder_layers(self.model):
            layer.register_forward_hook(self._keep)

    def _keep(self, _layer: torch.nn.Module, _inputs: Any, output: Any) -> None:
        state = output[0] if isinstance(output, tuple) else output
        self._states.append(state.reshape(-1, state.shape[-1]).float())

    def states(self, input_ids: list[int]) -> torch.Tensor:
        """Return the output of every decoder layer, float32 ``[layers, seq, hidden]``."""
        self._states.clear()
        with torch.inference_mode():
            self.model(torch.tensor([input_ids], device=self._device), use_cache=False)
        return torch.stack(self._states).cpu()


def row_errors(states: torch.Tensor, reference: torch.Tensor) -> torch.Tensor:
    """Relative distance of each row: ``|state - reference| / |reference|``, float32 ``[..., seq]``."""
    distance = torch.linalg.vector_norm(states.float() - reference, dim=-1)
    return distance / torch.linalg.vector_norm(reference, dim=-1).clamp_min(torch.finfo(torch.float32).tiny)


def rounding_bounds(rounded: list[torch.Tensor], exact: list[torch.Tensor]) -> list[float]:
    """The largest relative row distance that rounding explains, for each decoder layer.

    Args:
        rounded: a bfloat16 forward of some sequences, each ``[layers, seq, hidden]``.
        exact: the float32 forward of the same sequences.

    """
    worst = torch.stack([row_errors(a, b).amax(-1) for a, b in zip(rounded, exact, strict=True)]).amax(0)
    return [ROUNDINGS * float(value) + UNIT_ROUNDOFF for value in worst]


def best_layer(state: torch.Tensor, reference: torch.Tensor) -> tuple[int, float]:
    """The layer of ``reference`` ``[layers, seq, hidden]`` nearest to ``state``, and its largest row error."""
    errors = torch.stack([row_errors(state, layer).amax(-1) for layer in reference])
    layer = int(errors.argmin())
    return layer, float(errors[layer])
