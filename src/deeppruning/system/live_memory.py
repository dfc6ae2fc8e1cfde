"""The memory that tensors take while a network runs, counted tensor by tensor.

Counted, not sampled from the process: the same on every machine, and not blurred by what the allocator keeps.
What a library takes for its own workspace inside an operation is not in it.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class LiveMemory(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Sees every operation and keeps watch on the storages its results live in.

    >>> import torch
    >>> with LiveMemory() as live:
    ...     x = torch.zeros(1000)
    ...     y = x + x
    ...     del x
    ...     now = live.now()
    >>> now, live.peak
    (4000, 8000)
    """

    def __init__(self, own: Iterable[Tensor] = ()) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        storages = [tensor.untyped_storage() for tensor in own if _has_storage(tensor)]
        held = {storage.data_ptr(): storage for storage in storages}
        self.own = set(held)  # counted from the start, and for good
        self.held = sum(storage.nbytes() for storage in held.values())
        self.peak = self.held
        self._alive: dict[int, tuple[StorageWeakRef, int]] = {}

    def now(self) -> int:
        """Bytes that are alive at this moment."""
        self._alive = {
            key: (watch, size)
            for key, (watch, size) in self._alive.items()
            if not watch.expired()  # type: ignore[no-untyped-call]
        }
        return self.held + sum(size for _, size in self._alive.values())

    def __torch_dispatch__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        out = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(out):
            if not isinstance(tensor, Tensor) or not _has_storage(tensor):
                continue
            storage = tensor.untyped_storage()
            if storage.data_ptr() not in self.own:
                watch = StorageWeakRef(storage)  # type: ignore[no-untyped-call]
                self._alive[storage._cdata] = (watch, storage.nbytes())
        self.peak = max(self.peak, self.now())
        return out


def _has_storage(tensor: Tensor) -> bool:
    """Whether the numbers of a tensor lie in one piece of memory: those of a sparse one do not."""
    return tensor.layout == torch.strided
