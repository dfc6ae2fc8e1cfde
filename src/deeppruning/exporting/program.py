"""A network as a .pt2 file of torch.export: its graph and weights, run without the class it came from."""

import io
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.fx import GraphModule

from deeppruning.data.images import Normalization
from deeppruning.deploying import deployed
from deeppruning.deploying.onnx_graph import with_listed_outputs
from deeppruning.errors import GraphError
from deeppruning.exporting.formats import FORMATS, Export, Format
from deeppruning.exporting.onnx_file import as_exported
from deeppruning.exporting.parity import TOLERANCE, check_parity, refuse_changing
from deeppruning.graph.trace.follow import tensors_in
from deeppruning.system.files import write_atomically


def export_program(
    model: nn.Module,
    example_input: Tensor,
    path: str | Path,
    *,
    normalization: Normalization | None = None,
    tolerance: float = TOLERANCE,
) -> float:
    """Write `model` with torch.export, the batch free, and return the difference after loading it back."""
    network = as_exported(model, normalization)
    example = example_input.detach().cpu()
    pair = torch.cat([example[:1], example[:1]])  # a batch of one would be taken for a fixed size
    refuse_changing(network, example, tolerance=tolerance)
    form = with_listed_outputs(deployed(network, example), example)
    try:
        program = torch.export.export(form, (pair,), dynamic_shapes=({0: torch.export.Dim("batch", min=1)},))
    except Exception as error:
        reason = str(error).strip().split("\n")[0]
        raise GraphError(f"torch.export does not understand this network: {reason}") from error
    for module in program.graph_module.modules():
        for node in module.graph.nodes if isinstance(module, GraphModule) else ():
            node.meta.pop("stack_trace", None)  # places on this machine, which are no one else's business
    content = io.BytesIO()
    torch.export.save(program, content)
    content.seek(0)
    loaded = torch.export.load(content).module()
    difference = check_parity(
        network,
        lambda images: tensors_in(loaded(images)),
        example,
        pixels=normalization is not None,
        tolerance=tolerance,
    )
    write_atomically(Path(path), content.getvalue())
    return difference


def _write(export: Export, path: Path) -> float:
    return export_program(
        export.model, export.example(), path, normalization=export.normalization, tolerance=export.tolerance
    )


FORMATS.add(
    Format(name="torch-export", suffix=".pt2", about="program of torch.export (.pt2)", write=_write), place=20
)
