"""A network as a file that PyTorch reads: a program of torch.export, or plain weights as safetensors."""

import io
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.fx import GraphModule

from deeppruning.data.images import Normalization
from deeppruning.deploying import deployed
from deeppruning.deploying.onnx_graph import with_listed_outputs
from deeppruning.errors import GraphError, reason_of
from deeppruning.exporting.formats import FORMATS, Export, Format
from deeppruning.exporting.parity import TOLERANCE, check_parity, refuse_changing
from deeppruning.graph.trace.follow import tensors_in
from deeppruning.system.files import write_atomically
from deeppruning.training.tensors import write_tensors


def export_program(
    model: nn.Module,
    example_input: Tensor,
    path: str | Path,
    *,
    normalization: Normalization | None = None,
    tolerance: float = TOLERANCE,
) -> float:
    """Write `model` with torch.export, its batch size free, and return the difference after loading it back.

    The file holds graph and weights, and is run without the class it came from.
    """
    return _write_torch_program(Export(model, lambda: example_input, normalization, tolerance), Path(path))


def _write_torch_program(export: Export, path: Path) -> float:
    """Write a program of torch.export, load it back and return the difference."""
    network = export.network()
    example = export.example().detach().cpu()
    pair = torch.cat([example[:1], example[:1]])  # a batch of one would become a fixed size
    refuse_changing(network, example, tolerance=export.tolerance)
    form = with_listed_outputs(deployed(network, example), example)
    try:
        program = torch.export.export(form, (pair,), dynamic_shapes=({0: torch.export.Dim("batch", min=1)},))
    except Exception as error:
        raise GraphError(f"torch.export does not understand this network: {reason_of(error)}") from error
    for module in program.graph_module.modules():
        for node in module.graph.nodes if isinstance(module, GraphModule) else ():
            node.meta.pop("stack_trace", None)  # paths on this machine are private
    content = io.BytesIO()
    torch.export.save(program, content)
    content.seek(0)
    loaded = torch.export.load(content).module()
    difference = check_parity(
        network,
        lambda images: tensors_in(loaded(images)),
        example,
        pixels=export.normalization is not None,
        tolerance=export.tolerance,
    )
    write_atomically(path, content.getvalue())
    return difference


def _write_safetensors(export: Export, path: Path) -> float:
    """Write the weights under their names in the class, read them back and return the difference: 0."""
    state = export.model.state_dict()
    write_tensors(path, state, export.metadata or {})
    written = load_file(path)
    for name, tensor in state.items():
        if not torch.equal(written[name], tensor.cpu()):
            path.unlink()
            raise GraphError(f"{path} did not read back as written ({name}); check the disk and try again")
    return 0.0


FORMATS.add(
    Format(
        name="torch-export", suffix=".pt2", about="program of torch.export (.pt2)", write=_write_torch_program
    ),
    place=20,
)
FORMATS.add(
    Format(
        name="safetensors",
        suffix=".safetensors",
        about="plain weights",
        write=_write_safetensors,
        graph=False,
    ),
    place=30,
)
