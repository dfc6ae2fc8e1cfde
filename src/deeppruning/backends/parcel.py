"""Pack an object so that other processes use its tensors in shared memory instead of copying them.

A parcel holds the bytes of the tensors, followed by a pickle of the rest that refers to them. For processes
of this machine it is a file that they map (`pack`, `unpack`): pages are shared until a process writes to one,
which then becomes its own copy, so the data set exists once, and no worker can change it for another. The
file has no name, so the system removes it when the last process that uses it ends, even if that was killed.
For other machines the parcel is an array (`pack_array`, `unpack_array`), which Ray keeps in shared memory.
"""

import importlib.machinery
import io
import mmap
import os
import pickle
import site
import struct
import sys
import sysconfig
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any, BinaryIO

import cloudpickle  # type: ignore[import-untyped]
import numpy as np
import torch
from numpy.typing import NDArray

# Whether the receiver can import a module, given its name and the module here.
Importable = Callable[[str, ModuleType], bool]

_ALIGNMENT = 64  # as torch allocates; kernels may take other paths at other addresses
_TRAILER = struct.Struct("<Q")
_SHARED_FROM = 2**20  # bytes; tensors of an array that are smaller are copied out of it


def pack(value: object) -> int:
    """The descriptor of a new nameless file that holds `value`; the caller closes it."""
    descriptor = _nameless_file()
    try:
        with open(descriptor, "wb", closefd=False) as file:
            _write_parcel(file, value, _found_by_new_process)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def unpack(descriptor: int) -> Any:
    """The value in the file; its tensors are copy-on-write views of the file's pages."""
    mapped = mmap.mmap(descriptor, 0, access=mmap.ACCESS_COPY)
    (start,) = _TRAILER.unpack(mapped[-_TRAILER.size :])
    return _Unpickler(mapped, io.BytesIO(mapped[start : -_TRAILER.size])).load()


def pack_array(value: object) -> NDArray[np.uint8]:
    """An array of bytes that holds `value`, for machines that have the same packages installed.

    The code of all other modules is included: a user's own files are on the user's machine only.
    """
    file = io.BytesIO()
    _write_parcel(file, value, _is_installed_elsewhere)
    return np.frombuffer(file.getbuffer(), dtype=np.uint8)


def unpack_array(array: NDArray[np.uint8]) -> Any:
    """The value in the array. Its large tensors, such as a data set's images, are views of the array.

    They must not be written to, because other processes use the same memory. Small tensors are copies: code
    that writes to a weight or a counter affects its own process only.
    """
    (start,) = _TRAILER.unpack(array[-_TRAILER.size :].tobytes())
    pickled = io.BytesIO(array[start : -_TRAILER.size].tobytes())
    return _Unpickler(array, pickled, copied_below=_SHARED_FROM).load()


def _write_parcel(file: BinaryIO, value: object, importable: Importable) -> None:
    """Write storages, the pickle around them and a trailer that says where the pickle starts."""
    pickled = io.BytesIO()
    pickler = _Pickler(pickled, importable)
    try:
        pickler.dump(value)
    finally:
        for module in pickler.carried:
            cloudpickle.unregister_pickle_by_value(module)
    for offset, storage in pickler.storages.values():
        file.seek(offset)
        file.write(torch.empty(0, dtype=torch.uint8).set_(storage).numpy().data)
    file.seek(pickler.end)
    file.write(pickled.getbuffer())
    file.write(_TRAILER.pack(pickler.end))


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    """Leaves CPU storages out of the pickle and assigns them places in the file instead."""

    def __init__(self, file: io.BytesIO, importable: Importable) -> None:
        super().__init__(file, protocol=5)
        self._importable = importable
        # The storages are held here so that no address is used twice while pickling.
        self.storages: dict[tuple[int, int], tuple[int, torch.UntypedStorage]] = {}
        self.end = 0
        self.carried: list[ModuleType] = []  # their code is in the pickle
        self._judged: set[str] = set()

    def persistent_id(self, obj: Any) -> tuple[int, int, torch.dtype] | None:
        """The place of a CPU storage in the parcel; None for anything that is pickled as usual."""
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
        """Pickle a class or function, with the code of its module if the receiver lacks it."""
        if isinstance(obj, type | FunctionType):
            self._carry_module(getattr(obj, "__module__", None))
        return super().reducer_override(obj)

    def _carry_module(self, name: str | None) -> None:
        """Include a module's code if the receiver could not import that module."""
        if name is None or name in self._judged:
            return
        self._judged.add(name)
        module = sys.modules.get(name)
        if module is not None and name != "__main__" and not self._importable(name, module):
            cloudpickle.register_pickle_by_value(module)
            self.carried.append(module)


class _Unpickler(pickle.Unpickler):
    """Reads the pickle of a parcel; its storages are views of the parcel's memory."""

    def __init__(
        self, parcel: mmap.mmap | NDArray[np.uint8], pickled: io.BytesIO, *, copied_below: int = 0
    ) -> None:
        super().__init__(pickled)
        self._parcel = parcel
        self._copied_below = copied_below
        self._storages: dict[int, torch.UntypedStorage] = {}  # by place: tensors that share one keep doing so

    def persistent_load(self, pid: Any) -> torch.storage.TypedStorage:
        """The storage at a place of the parcel."""
        offset, nbytes, dtype = pid
        if offset not in self._storages:
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", "The given buffer is not writable")
                view = torch.frombuffer(self._parcel, dtype=torch.uint8, offset=offset, count=nbytes)
            own = view.clone() if nbytes < self._copied_below else view
            self._storages[offset] = own.untyped_storage()
        return torch.storage.TypedStorage(  # type: ignore[no-untyped-call]
            wrap_storage=self._storages[offset], dtype=dtype, _internal=True
        )


def _found_by_new_process(name: str, module: ModuleType) -> bool:
    """Whether a new process would find the module's top package at the same place."""
    top = name.partition(".")[0]
    if top in sys.builtin_module_names or top in sys.stdlib_module_names:
        return True
    origin = getattr(sys.modules.get(top), "__file__", None)
    for finder in sys.meta_path:
        spec: importlib.machinery.ModuleSpec | None = finder.find_spec(top, None)
        if spec is not None:
            return origin is None or spec.origin == origin
    return False


def _is_installed_elsewhere(name: str, module: ModuleType) -> bool:
    """Whether another machine with the same packages has the module: Python's own, ours, or installed."""
    top = name.partition(".")[0]
    if top in sys.builtin_module_names or top in sys.stdlib_module_names or top == "deeppruning":
        return True
    origin = getattr(module, "__file__", None)
    paths = sysconfig.get_paths()
    folders = (paths["purelib"], paths["platlib"], site.getusersitepackages(), *site.getsitepackages())
    return origin is None or any(Path(origin).is_relative_to(folder) for folder in folders)


def _nameless_file() -> int:
    """A file in memory for a parcel, which disappears with its last descriptor."""
    # memfd rather than /dev/shm: containers often leave only 64 MB there.
    if hasattr(os, "memfd_create"):
        return os.memfd_create("deeppruning")
    descriptor, path = tempfile.mkstemp(prefix="deeppruning-")
    os.unlink(path)  # noqa: PTH108 - mkstemp gives a str
    return descriptor
