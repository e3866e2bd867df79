"""What a decoder layer hands over is found out on what reads it, and refused where it cannot be told."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="runs in the ML environment: tools/host_tests.sh")

from speculators.data_generation.handover import COMPLETE, SUM, HandoverProbe  # noqa: E402  (found only now)


class Reader(torch.nn.Module):
    """A norm in the manner of vLLM: reads a pair, or one tensor."""

    def __init__(self, read):
        super().__init__()
        self.read = read

    def forward(self, *tensors):
        return self.read(*tensors)


class Layer(torch.nn.Module):
    """Reads what the layer before returned in one way, and returns ``answer``."""

    def __init__(self, read, hand_on, answer):
        super().__init__()
        self.norm, self.hand_on, self.answer = Reader(read), hand_on, answer

    def forward(self, hidden, residual):
        self.norm(*self.hand_on(hidden, residual))
        return self.answer(hidden, residual)


class Model(torch.nn.Module):
    def __init__(self, read, hand_on, answer):
        super().__init__()
        self.layers = torch.nn.ModuleList(Layer(read, hand_on, answer) for _ in range(3))
        self.rotary = Reader(lambda positions: positions)
        self.norm, self.hand_on = Reader(read), hand_on

    def forward(self, hidden):
        residual = torch.ones_like(hidden)
        for layer in self.layers:
            output = layer(hidden, residual)
            hidden, residual = output if isinstance(output, tuple) else (output, residual)
            # Between a layer and what reads it, a model may ask something else.
            self.rotary(torch.arange(len(hidden)))
        return self.norm(*self.hand_on(hidden, residual))


def pair(hidden, residual):
    return hidden, residual


def moved(hidden, residual):
    return hidden + 1, residual * 2


WAYS = {
    "a fused norm adds them": (lambda h, r: h + r, pair, moved, SUM),
    "a fused norm works in place": (lambda h, r: h.add_(r), pair, moved, SUM),
    "the norm leaves the residual alone": (lambda h, _r: h * 3, pair, moved, COMPLETE),
    "the norm gets the state alone": (lambda h: h * 3, lambda h, _r: (h,), moved, COMPLETE),
    "the model adds them before the norm": (lambda s: s * 3, lambda h, r: (h + r,), moved, SUM),
    "a layer returns one tensor": (lambda h, r: h + r, pair, lambda h, _r: h + 1, COMPLETE),
    "a layer returns no residual": (lambda h, _r: h, pair, lambda h, r: (h + 1, r), COMPLETE),
}


def probed(read, hand_on, answer):
    model = Model(read, hand_on, answer)
    with HandoverProbe(model, model.layers, {0, 2}) as probe:
        model(torch.rand(5, 8))
    return probe.found


@pytest.mark.parametrize("name", WAYS)
def test_each_way_of_handing_over_is_told(name):
    *way, wanted = WAYS[name]
    assert probed(*way) == {0: wanted, 2: wanted}


REFUSED = {
    "half of the residual is added": (lambda h, r: h + r / 2, pair, moved),
    "the model makes something else of them": (lambda s: s, lambda h, r: (h * 2 + r,), moved),
    "the residual is nothing, so that both would fit": (
        lambda s: s,
        lambda h, r: (h + r,),
        lambda h, r: (h + 1, r * 0),
    ),
    "the trial run computes no number": (lambda s: s, lambda h, r: (h + r,), lambda h, r: (h / 0 - h / 0, r)),
    "three tensors come back": (lambda h, _r: h, pair, lambda h, r: (h, r, h + 1)),
    "two tensors of two shapes come back": (lambda h, _r: h, lambda h, r: (h, r), lambda h, r: (h, r[:, :2])),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_told_is_refused_with_the_layer(name):
    with pytest.raises(ValueError, match="decoder layer 0"):
        probed(*REFUSED[name])


def test_a_layer_that_nothing_reads_is_refused():
    model = Model(lambda h, r: h + r, pair, moved)
    model.norm = torch.nn.Identity()
    model.hand_on = lambda h, _r: (h[:, :2],)
    with (
        pytest.raises(ValueError, match=r"nothing reads what decoder layers \[2\] return"),
        HandoverProbe(model, model.layers, {0, 2}),
    ):
        model(torch.rand(5, 8))


def test_the_probe_leaves_no_hook_behind_and_changes_no_result():
    model, states = Model(lambda h, r: h + r, pair, moved), torch.rand(5, 8)
    before = model(states.clone())
    with HandoverProbe(model, model.layers, {0, 1, 2}):
        during = model(states.clone())
    assert torch.equal(before, during)
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())
