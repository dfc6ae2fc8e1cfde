"""LSTM and GRU: they run as they are, and the channels that enter them stay."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from deeppruning.errors import InputError
from deeppruning.importing.values import operation

LSTM_ORDER = (0, 2, 3, 1)  # ONNX has the gates input, output, forget, cell; torch input, forget, cell, output
GRU_ORDER = (1, 0, 2)  # update, reset, hidden; torch has the reset first
USUAL = {"lstm": ["Sigmoid", "Tanh", "Tanh"], "gru": ["Sigmoid", "Tanh"]}


@operation("LSTM")
def lstm(
    value: Tensor,
    weight: Tensor,
    recurrent: Tensor,
    bias: Tensor | None = None,
    lengths: Any = None,
    hidden: Tensor | None = None,
    cell: Tensor | None = None,
    peephole: Any = None,
    **attributes: Any,
) -> tuple[Tensor, Tensor, Tensor]:
    """All outputs (steps, directions, batch, units), the last ones and the last cells."""
    _check("lstm", lengths, attributes)
    if peephole is not None:
        raise InputError("it has peepholes")
    state = [_state(each, value, weight, recurrent) for each in (hidden, cell)]
    weights = _weights(weight, recurrent, bias, LSTM_ORDER)
    outputs, last, cells = torch._VF.lstm(
        _turned(value, attributes), state, weights, bias is not None, 1, 0.0, False, len(weight) == 2, False
    )
    return _by_direction(outputs, len(weight), attributes), last, cells


@operation("GRU")
def gru(
    value: Tensor,
    weight: Tensor,
    recurrent: Tensor,
    bias: Tensor | None = None,
    lengths: Any = None,
    hidden: Tensor | None = None,
    **attributes: Any,
) -> tuple[Tensor, Tensor]:
    """All outputs (steps, directions, batch, units) and the last ones."""
    _check("gru", lengths, attributes)
    if not attributes.get("linear_before_reset", 0):
        raise InputError("it resets before the matrix (linear_before_reset=0), which torch's layer does not")
    state = _state(hidden, value, weight, recurrent)
    weights = _weights(weight, recurrent, bias, GRU_ORDER)
    outputs, last = torch._VF.gru(
        _turned(value, attributes), state, weights, bias is not None, 1, 0.0, False, len(weight) == 2, False
    )
    return _by_direction(outputs, len(weight), attributes), last


def _check(kind: str, lengths: Any, attributes: dict[str, Any]) -> None:
    """Refuse what torch's layers do not have."""
    usual = USUAL[kind]
    named = attributes.get("activations")
    unusual = {
        "lengths of its own for each input": lengths is not None,
        "the batch first (layout=1)": bool(attributes.get("layout", 0)),
        "a limit of its values (clip)": "clip" in attributes,
        "coupled gates (input_forget)": bool(attributes.get("input_forget", 0)),
        f"activations {named}": bool(named) and named not in (usual, usual * 2),
    }
    for what, there in unusual.items():
        if there:
            raise InputError(f"it has {what}")


def _state(given: Tensor | None, value: Tensor, weight: Tensor, recurrent: Tensor) -> Tensor:
    """The initial state of an ONNX recurrent layer: zeros where none is given."""
    return value.new_zeros(len(weight), value.shape[1], recurrent.shape[2]) if given is None else given


def _weights(weight: Tensor, recurrent: Tensor, bias: Tensor | None, order: Sequence[int]) -> list[Tensor]:
    """Matrices and biases of each direction as torch has them, with the gates in its order."""
    weights = []
    for direction in range(len(weight)):
        whole = [weight[direction], recurrent[direction]]
        whole += [] if bias is None else list(bias[direction].chunk(2))
        for each in whole:
            gates = each.chunk(len(order))
            weights.append(torch.cat([gates[place] for place in order]))
    return weights


def _turned(value: Tensor, attributes: dict[str, Any]) -> Tensor:
    """Steps from the last one on, where the layer runs backwards."""
    return value.flip(0) if attributes.get("direction") == "reverse" else value


def _by_direction(outputs: Tensor, directions: int, attributes: dict[str, Any]) -> Tensor:
    """The outputs of an ONNX recurrent layer with a dimension for its directions."""
    steps, batch, width = outputs.shape
    apart = outputs.reshape(steps, batch, directions, width // directions).transpose(1, 2)
    return _turned(apart, attributes)
