"""Runs a notebook, as a program: in IPython, cell by cell, and prints what each cell put out as JSON."""

import json
import sys
from pathlib import Path

from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output

shell = InteractiveShell.instance()
shown = []
for cell in json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))["cells"]:
    if cell["cell_type"] == "code":
        with capture_output() as captured:
            done = shell.run_cell("".join(cell["source"]))
        if not done.success:
            sys.exit(captured.stdout + captured.stderr)
        data = {} if done.result is None else shell.display_formatter.format(done.result)[0]
        shown.append({"printed": captured.stdout, **data})
print(json.dumps(shown))
