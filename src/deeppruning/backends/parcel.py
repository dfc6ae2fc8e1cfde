"""Pack an object into one nameless file that other processes map instead of copying.

Tensors lie in the file as they are; the rest is a pickle at its end that refers to them. A process that
maps the file shares its pages with all others until it writes to one, which then becomes its own: the
data set exists once however many workers there are, and no worker can spoil it for another. The file has
no name, so the system takes it back when the last process using it ends, even one that was killed.
"""

import importlib.machinery
import io
import mmap
import os
import pickle
import struct
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from types import FunctionType, ModuleType
from typing import Any

import cloudpickle  # type: ignore[import-untyped]
import torch

_ALIGNMENT = 64  # what torch's own allocator gives; kernels may take other paths on odd addresses
_TRAILER = struct.Struct("<Q")


def pack(value: object) -> int:
    """The descriptor of a new nameless file that holds `value`; the caller closes it."""
    buffer = io.BytesIO()
    pickler = _Pickler(buffer)
    with pickler.carrying_modules():
        pickler.dump(value)
    descriptor = _nameless_file()
    with open(descriptor, "wb", closefd=False) as file:
        for offset, storage in pickler.storages.values():
            file.seek(offset)
            file.write(_bytes_of(storage))
        file.seek(pickler.end)
        file.write(buffer.getbuffer())
        file.write(_TRAILER.pack(pickler.end))
    return descriptor


def unpack(descriptor: int) -> Any:
    """The value in the file; its tensors are copy-on-write views of the file's pages."""
    mapped = mmap.mmap(descriptor, 0, access=mmap.ACCESS_COPY)
    (start,) = _TRAILER.unpack(mapped[-_TRAILER.size :])
    return _Unpickler(mapped, start).load()


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    """Leaves CPU storages out of the pickle and lays out where they go in the file instead."""

    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file, protocol=5)
        # The storages are held here so that no address is used twice while pickling.
        self.storages: dict[tuple[int, int], tuple[int, torch.UntypedStorage]] = {}
        self.end = 0
        self._carried: dict[str, ModuleType] = {}
        self._judged: set[str] = set()

    def persistent_id(self, obj: Any) -> tuple[int, int, torch.dtype] | None:
        if not isinstance(obj, torch.storage.TypedStorage):
            return None
        storage = obj._untyped_storage
        if storage.device.type != "cpu" or storage.nbytes() == 0:
            return None
        place = (storage.data_ptr(), storage.nbytes())
        if place not in self.storages:
            self.storages[place] = (self.end, storage)
            self.end += -(-storage.nbytes() // _ALIGNMENT) * _ALIGNMENT
        return self.storages[place][0], storage.nbytes(), obj.dtype

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, type | FunctionType):
            self._judge(getattr(obj, "__module__", None))
        return super().reducer_override(obj)

    def _judge(self, name: str | None) -> None:
        """Send a module's code along when a new process could not import that module by its name."""
        if name is None or name in self._judged:
            return
        self._judged.add(name)
        module = sys.modules.get(name)
        if module is not None and name != "__main__" and not _importable(name, module):
            cloudpickle.register_pickle_by_value(module)
            self._carried[name] = module

    @contextmanager
    def carrying_modules(self) -> Iterator[None]:
        """Undo on leaving what was arranged for modules while pickling."""
        try:
            yield
        finally:
            for module in self._carried.values():
                cloudpickle.unregister_pickle_by_value(module)


class _Unpickler(pickle.Unpickler):
    def __init__(self, mapped: mmap.mmap, start: int) -> None:
        super().__init__(io.BytesIO(mapped[start : -_TRAILER.size]))
        self._mapped = mapped

    def persistent_load(self, pid: Any) -> torch.storage.TypedStorage:
        offset, nbytes, dtype = pid
        view = torch.frombuffer(self._mapped, dtype=torch.uint8, offset=offset, count=nbytes)
        return torch.storage.TypedStorage(  # type: ignore[no-untyped-call]
            wrap_storage=view.untyped_storage(), dtype=dtype, _internal=True
        )


def _importable(name: str, module: ModuleType) -> bool:
    """Whether the module's top package would be found, at the same place, by a process just started."""
    top = name.partition(".")[0]
    if top in sys.builtin_module_names or top in sys.stdlib_module_names:
        return True
    origin = getattr(sys.modules.get(top), "__file__", None)
    for finder in sys.meta_path:
        spec: importlib.machinery.ModuleSpec | None = finder.find_spec(top, None)
        if spec is not None:
            return origin is None or spec.origin == origin
    return False


def _bytes_of(storage: torch.UntypedStorage) -> memoryview:
    return torch.empty(0, dtype=torch.uint8).set_(storage).numpy().data


def _nameless_file() -> int:
    # memfd rather than /dev/shm: containers often leave only 64 MB there.
    if hasattr(os, "memfd_create"):
        return os.memfd_create("deeppruning")
    descriptor, path = tempfile.mkstemp(prefix="deeppruning-")
    os.unlink(path)  # noqa: PTH108 - mkstemp gives a str
    return descriptor
