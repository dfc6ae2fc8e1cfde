"""Other methods at the same FLOPs, where the run was compared with any."""

from deeppruning.reporting.comparison import FOLDER, read_rivals
from deeppruning.reporting.plots import rivals
from deeppruning.reporting.section import SECTIONS, Section

SECTIONS.add(
    Section(
        "rivals",
        lambda source, data: {"rivals": read_rivals(source.run.path / FOLDER)},
        {"rivals": rivals},
    ),
    place=60,
)
