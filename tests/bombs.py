"""A program that makes files which unpack to far more than they are, reads them, and tells what that took.

Run by test_damage.py as `bombs.py FOLDER`; prints how each reading ended and the growth in megabytes.
"""

import gzip
import io
import json
import resource
import struct
import sys
import tarfile
import zipfile
import zlib
from pathlib import Path

import numpy as np

from deeppruning.data.folders import load_folder
from deeppruning.data.npz import load_npz
from deeppruning.data.plain_pickle import load_plain
from deeppruning.data.sets.mnist import read_idx
from deeppruning.data.unpacking import archive_reader
from deeppruning.errors import DeepPruningError
from deeppruning.jobs.solution import rebuild
from deeppruning.training.weights import read_state_dict

here, GB = Path(sys.argv[1]), 10**9


def zeros(count):
    """A gzip stream of so many zeros: streams may follow each other."""
    return gzip.compress(bytes(1 << 20)) * (count >> 20)


def npy(shape):
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(file, {"descr": "|u1", "fortran_order": False, "shape": shape})
    return file.getvalue()


def archive(path, entries, **how):
    with zipfile.ZipFile(path, "w", **how) as packed:
        for name, content in entries.items():
            with packed.open(name, "w", force_zip64=True) as file:
                for piece in content:
                    file.write(piece)
    return path


def chunk(kind, content):
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


def png(side):
    head = chunk(b"IHDR", struct.pack(">2I5B", side, side, 8, 2, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + head + chunk(b"IDAT", zlib.compress(bytes(1000))) + chunk(b"IEND", b"")


block, LARGE = bytes(1 << 20), 300  # megabytes: more than any file may unpack to unasked
one = [npy((1,)), b"x"]
claim = archive(here / "claim.npz", {"images.npy": [npy((100 * GB, 1, 1)), b"x"], "labels.npy": one})
blank = archive(
    here / "blank.npz",
    {"images.npy": [npy((LARGE, 1 << 10, 1 << 10)), *[block] * LARGE], "labels.npy": [npy((1,)), b"x"]},
    compression=zipfile.ZIP_DEFLATED,
    compresslevel=1,
)
torch_zip = archive(
    here / "w.pt", {"archive/data.pkl": [block] * LARGE}, compression=zipfile.ZIP_DEFLATED, compresslevel=1
)
(here / "idx.gz").write_bytes(gzip.compress(struct.pack(">4B3I", 0, 0, 8, 3, *[2**31] * 3)))
(here / "long.gz").write_bytes(gzip.compress(struct.pack(">4B3I", 0, 0, 8, 3, 1, 1, 1)) + zeros(GB))
member = tarfile.TarInfo("inner/stranger")
member.size = 2 * GB
(here / "a.tar.gz").write_bytes(gzip.compress(member.tobuf()) + zeros(2 * GB))
for kind in "ab":
    (here / "set" / kind).mkdir(parents=True)
    (here / "set" / kind / "1.png").write_bytes(png(20_000))
table = {"name": "vgg16", "num_classes": 2 * GB, "in_channels": 3, "image_size": 32}
memo = b"\x80\x02]r\xf0\xff\xff\x7f."

before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for call in (
    lambda: load_npz(claim),
    lambda: load_npz(blank),
    lambda: read_state_dict(torch_zip),
    lambda: read_idx(here / "idx.gz", 3),
    lambda: read_idx(here / "long.gz", 3),
    lambda: archive_reader(here / "a.tar.gz", "inner", ("idx",)),
    lambda: load_folder(here / "set"),
    lambda: rebuild(here / "a", {"architecture": json.dumps(table)}),
    lambda: rebuild(here / "a", {"architecture": json.dumps({**table, "num_classes": 9, "image_size": GB})}),
    lambda: load_plain(memo, "batch"),
    lambda: load_plain(b"\x80\x02" + b")\x85" * 10**6 + b".", "batch"),
):
    try:
        call()
        print("read")
    except DeepPruningError as error:
        print(type(error).__name__)
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1000)
