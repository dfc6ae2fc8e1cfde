"""Makes a plan from a finished atom table: classes become genes, bound dimensions become strips."""

import fnmatch
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from torch import nn

from deeppruning.graph.atoms import Atoms, AtomTable, Genes, Site
from deeppruning.graph.cut.heads import stored_sizes
from deeppruning.graph.cut.recipe import Recipe
from deeppruning.graph.payloads import Channels
from deeppruning.graph.plan import LayerFilters, Plan
from deeppruning.graph.trace.tracer import Trace


@dataclass(frozen=True)
class GraphOptions:
    """What a user may choose about a channel graph."""

    exclude: tuple[str, ...] = ()  # name patterns of layers that keep all filters
    exclude_types: tuple[type[nn.Module], ...] = ()
    min_channels: int = 1
    round_to: int | None = 1
    prune_linear: bool = False
    depth: bool = False
    prune_heads: bool = False


def assemble(
    model: nn.Module, table: AtomTable, traces: Mapping[str, Trace], options: GraphOptions, *, batch: int
) -> tuple[Plan, Atoms, Genes]:
    """The plan, and the class and the gene of each atom (-1 where it always stays)."""
    _freeze_excluded(model, table, options)
    table.freeze_pinned()
    classes = table.classes()
    while True:
        reasons = table.reasons(classes)
        genes = _number_genes(table, classes, reasons, options)[classes]
        if not _freeze_lone(table, traces, genes):
            break
    strips = _StripPool()
    parameters: dict[str, list[tuple[int, int]]] = {}
    detached_strips: dict[str, int] = {}
    names = {name for name, _ in (*model.named_parameters(), *model.named_buffers())}
    for (name, dimension), atoms in table.bound.items():
        if name not in names:  # the input or output of a detached module
            detached_strips[name] = strips.add(genes[atoms])
        elif (genes[atoms] >= 0).any():
            parameters.setdefault(name, []).append((dimension, strips.add(genes[atoms])))
    norms: dict[str, list[tuple[int, int]]] = {}
    for (layer, dimension), atoms in table.norms.items():
        if (genes[atoms] >= 0).any():
            norms.setdefault(layer, []).append((dimension, strips.add(genes[atoms])))
    sizes = stored_sizes(model, table, genes, strips.add)
    layers = tuple(_layers(table, classes, genes, reasons, _output_sizes(traces), options))
    trace = traces["eval"]
    alike = tuple((strips.add(genes[atoms]), each) for atoms, each in trace.channel_multiply_adds)
    detached = _detached(table, detached_strips, strips)
    uncut = Recipe(
        kept=tuple(np.arange(len(genes)) for genes in strips.unique),
        widths=tuple(len(genes) for genes in strips.unique),
        parameters={name: tuple(cuts) for name, cuts in parameters.items()},
        aliases=_aliases(model),
        detached=detached,
        grouped=dict(table.grouped),
        norms={layer: tuple(cuts) for layer, cuts in norms.items()},
        unreached=_unreached(model, traces),
        sizes=sizes,
    )
    plan = Plan(
        num_genes=int(genes.max(initial=-1)) + 1,
        strips=tuple(strips.unique),
        uncut=uncut,
        shapes={n: tuple(t.shape) for n, t in (*model.named_parameters(), *model.named_buffers())},
        trainable=frozenset(name for name, _ in model.named_parameters()),
        uses=trace.multiply_adds,
        fixed_multiply_adds=trace.other_multiply_adds,
        channel_multiply_adds=alike,
        batch=batch,
        layers=layers,
        pieces=tuple(_pieces(traces, genes, layers)),
        min_channels=options.min_channels,
        round_to=options.round_to,
    )
    return plan, classes, genes


class _StripPool:
    """Stores equal strips once: most parameters share theirs with others."""

    def __init__(self) -> None:
        self.unique: list[Genes] = []
        self.numbers: dict[bytes, int] = {}

    def add(self, genes: Genes) -> int:
        """The number of a strip, stored now or before."""
        number = self.numbers.setdefault(genes.tobytes(), len(self.unique))
        if number == len(self.unique):
            self.unique.append(genes)
        return number


def _freeze_excluded(model: nn.Module, table: AtomTable, options: GraphOptions) -> None:
    """Freeze the filters of layers that the user excludes."""
    modules = dict(model.named_modules())
    for issue in table.issues.values():
        if issue.kind not in ("conv", "linear"):
            continue
        for pattern in options.exclude:
            if fnmatch.fnmatchcase(issue.layer, pattern):
                table.freeze(issue.atoms, f"excluded by pattern {pattern!r}")
        if options.exclude_types and isinstance(modules.get(issue.layer), options.exclude_types):
            table.freeze(issue.atoms, f"excluded by type {type(modules[issue.layer]).__name__}")


def _freeze_lone(table: AtomTable, traces: Mapping[str, Trace], genes: Genes) -> bool:
    """Freeze channels if nothing would be left of a layer or at an operation without them; true if any."""
    spots = [
        (issue.atoms, issue.layer) for issue in table.issues.values() if issue.kind in ("conv", "linear")
    ]
    for trace in traces.values():
        for record in trace.records:
            made = (payload.atoms for payload in record.payloads if isinstance(payload, Channels))
            spots += [(atoms, f"{record.name} in {record.layer or 'forward'}") for atoms in made]
    froze = False
    for atoms, place in spots:
        own = genes[atoms]
        if len(own) and own[0] >= 0 and (own == own[0]).all():
            lone = "the only channel" if len(own) == 1 else "all channels, tied to one another,"
            table.freeze(atoms, f"{lone} of {place}: one must stay")
            froze = True
    return froze


def _number_genes(
    table: AtomTable, classes: Atoms, reasons: Mapping[int, list[str]], options: GraphOptions
) -> Genes:
    """Genes in the order in which the network runs its layers, filter by filter."""
    gene_of_class = np.full(table.size, -1, dtype=np.int64)
    kinds = ("conv", "linear") if options.prune_linear else ("conv",)
    heads = {kin for use in table.heads for kin in classes[use.atoms].tolist()}
    count = 0
    for issue in table.issues.values():
        if issue.kind not in ("conv", "linear"):
            continue
        for kin in classes[issue.atoms].tolist():
            asked = issue.kind in kinds or kin in heads
            if asked and kin not in reasons and gene_of_class[kin] < 0:
                gene_of_class[kin] = count
                count += 1
    return gene_of_class


def _layers(
    table: AtomTable,
    classes: Atoms,
    genes: Genes,
    reasons: Mapping[int, list[str]],
    outputs: Mapping[int, int],
    options: GraphOptions,
) -> list[LayerFilters]:
    """Convolutions, and linear layers that can lose something, or that were asked for and cannot."""
    layers: list[LayerFilters] = []
    uses: Counter[str] = Counter()
    for site, issue in table.issues.items():
        if issue.kind in ("conv", "linear"):
            own = genes[issue.atoms]
            frozen = np.unique(classes[issue.atoms][own < 0]).tolist()
            why = tuple(dict.fromkeys(reason for kin in frozen for reason in reasons.get(kin, ())))
            asked = options.prune_linear or (options.prune_heads and why)
            if issue.kind == "conv" or asked or (own >= 0).any():
                uses[issue.layer] += 1  # one weight, or one module, may be used in several convolutions
                name = issue.layer if uses[issue.layer] == 1 else f"{issue.layer}#{uses[issue.layer]}"
                repeats = max(1, outputs.get(issue.start, 0) // issue.size)
                layers.append(LayerFilters(name, issue.kernel, own, why, repeats, *_weight_of(table, site)))
    return layers


def _weight_of(table: AtomTable, site: Site) -> tuple[str, int]:
    """The parameter that a layer's filters lie in, and along which of its dimensions."""
    if site in table.bound:
        return site
    return "", 0


def _output_sizes(traces: Mapping[str, Trace]) -> dict[int, int]:
    """First atom -> the number of output channels of the convolution that issued it."""
    sizes: dict[int, int] = {}
    for trace in traces.values():
        for record in trace.records:
            if record.name == "convolution" and isinstance(record.payloads[0], Channels):
                atoms = record.payloads[0].atoms
                sizes[int(atoms[0])] = len(atoms)
    return sizes


def _pieces(traces: Mapping[str, Trace], genes: Genes, layers: tuple[LayerFilters, ...]) -> list[Genes]:
    """Strips of channels that exist at some point of the run and could become empty.

    One that holds all filters of some layer cannot: the layer itself keeps at least one.
    """
    whole = {frozenset(layer.genes.tolist()) for layer in layers}
    by_gene: dict[int, list[frozenset[int]]] = {}
    for members in whole:
        by_gene.setdefault(min(members), []).append(members)
    seen: set[bytes] = set()
    pieces = []
    for trace in traces.values():
        for record in trace.records:
            for channels in record.payloads:
                if not isinstance(channels, Channels):
                    continue
                own = genes[channels.atoms]
                if (own < 0).any() or own.tobytes() in seen:
                    continue
                seen.add(own.tobytes())
                members = frozenset(own.tolist())
                if not any(inner <= members for gene in members for inner in by_gene.get(gene, ())):
                    pieces.append(own)
    return pieces


def _detached(
    table: AtomTable, numbers: Mapping[str, int], strips: _StripPool
) -> dict[str, tuple[int | None, int]]:
    """Only modules with an input or output that can be cut need a wrapper."""
    detached: dict[str, tuple[int | None, int]] = {}
    modules = [issue.layer for issue in table.issues.values() if issue.kind == "module"]
    for name in modules:
        inward, outward = numbers.get(f"{name}.input"), numbers[f"{name}.output"]
        cut_in = inward is not None and (strips.unique[inward] >= 0).any()
        if cut_in or (strips.unique[outward] >= 0).any():
            detached[name] = (inward, outward)
    return detached


def _unreached(model: nn.Module, traces: Mapping[str, Trace]) -> tuple[str, ...]:
    """Layers that did not run in any mode: how their weights would have to be cut is unknown."""
    run = {name for trace in traces.values() for name in trace.maps_channels}
    used = frozenset().union(*(trace.used for trace in traces.values()))
    aliases = _aliases(model)
    unreached = []
    for name, module in model.named_modules():
        own = [f"{name}.{key}" for key, value in module._parameters.items() if value is not None]
        if name and own and name not in run and not any(aliases.get(each, each) in used for each in own):
            unreached.append(name)
    return tuple(unreached)


def _aliases(model: nn.Module) -> dict[str, str]:
    """Other names of parameters that several modules share."""
    first: dict[int, str] = {}
    aliases = {}
    for name, tensor in model.named_parameters(remove_duplicate=False):
        if first.setdefault(id(tensor), name) != name:
            aliases[name] = first[id(tensor)]
    return aliases
