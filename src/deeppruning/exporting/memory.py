"""The memory a forward pass needs, counted tensor by tensor while it runs."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


def peak_memory(model: nn.Module, example: Tensor) -> int:
    """Bytes of weights, input and activations alive at once in a forward pass, at the worst moment.

    Counted, not sampled from the process: the same on every machine, and not blurred by what the
    allocator keeps. What a library takes for its own workspace inside an operation is not in it.
    """
    tensors = (*model.parameters(), *model.buffers(), example)
    held = {tensor.untyped_storage().data_ptr(): tensor for tensor in tensors}
    counter = _Counter(sum(tensor.untyped_storage().nbytes() for tensor in held.values()), set(held))
    with torch.no_grad(), counter:
        model(example)
    return counter.peak


class _Counter(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Sees every operation and keeps watch on the storages its results live in."""

    def __init__(self, held: int, own: set[int]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.held = held
        self.own = own
        self.peak = held
        self._alive: dict[int, tuple[StorageWeakRef, int]] = {}

    def __torch_dispatch__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        out = func(*args, **(kwargs or {}))
        self._alive = {
            key: (watch, size)
            for key, (watch, size) in self._alive.items()
            if not watch.expired()  # type: ignore[no-untyped-call]
        }
        for tensor in tree_leaves(out):
            if isinstance(tensor, Tensor) and tensor.untyped_storage().data_ptr() not in self.own:
                storage = tensor.untyped_storage()
                watch = StorageWeakRef(storage)  # type: ignore[no-untyped-call]
                self._alive[storage._cdata] = (watch, storage.nbytes())
        self.peak = max(self.peak, self.held + sum(size for _, size in self._alive.values()))
        return out
