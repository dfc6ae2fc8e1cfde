"""Runs an ONNX file in onnxruntime, in a process of its own: a damaged file may crash it, or never end.

Started as a script, so that it imports nothing but numpy and onnxruntime:
`python onnxruntime_process.py FILE FOLDER THREADS BYTES`. The folder holds inputs as 0.npz, 1.npz, ... with
arrays in the order of the file's inputs; the answers become 0.out.npz or 0.txt, the reason why there is none.
It ends after two answers.
"""

import resource
import sys
from pathlib import Path

ENOUGH = 2  # answers


def main(file: str, folder: Path, threads: int, most: int) -> None:
    """Run the file on all inputs in the folder, in no more memory than `most` bytes."""
    import numpy as np
    import onnxruntime  # type: ignore[import-untyped]

    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = threads
    try:
        session = onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])
    except BaseException as error:
        (folder / "session.txt").write_text(reason_of(error))
        return
    names, answered = [value.name for value in session.get_inputs()], 0
    for place in range(len(list(folder.glob("*.npz")))):
        try:
            with np.load(folder / f"{place}.npz") as given:
                inputs = {name: given[f"arr_{number}"] for number, name in enumerate(names)}
            np.savez(folder / f"{place}.out.npz", *session.run(None, inputs))
            answered += 1
        except BaseException as error:
            (folder / f"{place}.txt").write_text(reason_of(error))
        if answered == ENOUGH:
            return


def reason_of(error: BaseException) -> str:
    """The first line of an error."""
    return (str(error).strip().split("\n")[0] or type(error).__name__)[:300]


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
