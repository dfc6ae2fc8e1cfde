"""What tests of the channel graph check of a network: that it is priced, proven, trained and left alone."""

from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from deeppruning.graph import ChannelGraph
from deeppruning.graph.trace.follow import tensors_in
from graph_networks import NETWORKS


def call(model: nn.Module, example: Any) -> Any:
    """Run a model on an example input of any of the accepted forms."""
    if isinstance(example, dict):
        return model(**example)
    return model(*example) if isinstance(example, tuple) else model(example)


def filled(example: Any) -> Any:
    """The example input with random values."""
    generator = torch.Generator().manual_seed(3)
    if isinstance(example, dict):
        return {name: torch.randn(x.shape, generator=generator) for name, x in example.items()}
    if isinstance(example, tuple):
        return tuple(torch.randn(x.shape, generator=generator) for x in example)
    return torch.randn(example.shape, generator=generator)


def counted(model: nn.Module, example: Any) -> int:
    """Multiply-adds of a whole batch, by torch's own counter, which does not see into fused attention."""
    torch.backends.mha.set_fastpath_enabled(False)
    with torch.no_grad(), sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        call(model.eval(), example)
    torch.backends.mha.set_fastpath_enabled(True)
    return counter.get_total_flops() // 2


def batch_of(example: Any) -> int:
    """The batch size of an example input."""
    return tensors_in(example)[0].shape[0]


def train_one_step(model: nn.Module, example: Any) -> None:
    """A step of SGD must change a weight and leave all of them finite."""
    model.train()
    weights = [p for p in model.parameters() if p.requires_grad]
    before = [p.detach().clone() for p in weights]
    optimizer = torch.optim.SGD(weights, lr=0.01)
    loss = sum(t.float().square().mean() for t in tensors_in(call(model, example)) if t.is_floating_point())
    assert isinstance(loss, Tensor)
    loss.backward()
    optimizer.step()
    assert any(not torch.equal(old, new) for old, new in zip(before, weights, strict=True))
    assert all(bool(torch.isfinite(p).all()) for p in weights)


def check_cut(graph: ChannelGraph, model: nn.Module, example: Any, genome: np.ndarray) -> nn.Module:
    """One genome: proven, priced, named as before."""
    proof = graph.verify(genome)
    assert proof.difference <= proof.tolerance <= 1e-3
    thin = graph.prune(genome)
    assert graph.params(genome) == sum(p.numel() for p in thin.parameters())
    assert graph.size(genome) == sum(t.nbytes for t in thin.state_dict().values())
    assert graph.flops(genome) * batch_of(example) == counted(thin, example)
    assert [n for n, _ in thin.named_parameters()] == [n for n, _ in model.named_parameters()]
    assert list(thin.state_dict()) == list(model.state_dict())
    requires = [p.requires_grad for p in model.parameters()]
    assert [p.requires_grad for p in thin.parameters()] == requires
    return thin


def snapshot(model: nn.Module) -> dict[str, Any]:
    """All that a graph must leave as it is."""
    return {
        "state": {name: tensor.clone() for name, tensor in model.state_dict().items()},
        "modes": [module.training for module in model.modules()],
        "grads": [None if p.grad is None else p.grad.clone() for p in model.parameters()],
        "hooks": [(len(m._forward_hooks), len(m._forward_pre_hooks)) for m in model.modules()],
        "ids": [id(tensor) for tensor in (*model.parameters(), *model.buffers())],
    }


def assert_untouched(model: nn.Module, before: dict[str, Any]) -> None:
    """The model is what it was."""
    after = snapshot(model)
    assert after["state"].keys() == before["state"].keys()
    assert all(torch.equal(before["state"][name], after["state"][name]) for name in after["state"])
    for old, new in zip(before["grads"], after["grads"], strict=True):
        assert (old is None and new is None) or torch.equal(old, new)
    assert all(before[key] == after[key] for key in ("modes", "hooks", "ids"))


def every_nth(step: int, names: Iterable[str]) -> list[Any]:
    """All names for parametrisation; but for every nth, only where slow tests run, too."""
    return [
        pytest.param(name, marks=pytest.mark.slow) if place % step else name
        for place, name in enumerate(names)
    ]


def digests(names: Iterable[str]) -> dict[str, str]:
    """Small networks by name -> all that their graphs say, the same wherever they are built."""
    found = {}
    for name in names:
        torch.manual_seed(0)
        graph = ChannelGraph(*NETWORKS[name]())
        found[name] = f"{graph}\n{graph.layer_genes()}"
    return found


def masked_by_hooks(model: nn.Module, graph: ChannelGraph, genome: np.ndarray, images: Tensor) -> Tensor:
    """The full network with the outputs of removed filters, and of the norms behind them, set to zero."""
    handles = []
    for name, genes in graph.layer_genes().items():
        removed = [gene >= 0 and not genome[gene] for gene in genes]
        keep = ~torch.tensor(removed).view(-1, 1, 1)
        for place in (name, name.replace(".0", ".1")):  # a block is a convolution and its norm
            module = model.get_submodule(place)
            handles.append(module.register_forward_hook(lambda module, args, out, keep=keep: out * keep))
    try:
        return model(images)
    finally:
        for handle in handles:
            handle.remove()
