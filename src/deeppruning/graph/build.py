"""Building a plan: trace, probe, and adapt until every cut equals masking.

Pruning linear layers must not freeze filters of convolutions: otherwise the plan without them is taken. The
same holds for heads of attention and whatever can be pruned without them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from torch import Tensor, nn

from deeppruning.errors import GraphError
from deeppruning.graph.assemble import GraphOptions, assemble
from deeppruning.graph.atoms import Bits
from deeppruning.graph.cut.cutting import cut
from deeppruning.graph.cut.recipe import Recipe
from deeppruning.graph.paths import InputPaths, PathRun
from deeppruning.graph.proof.depth import DepthFinder
from deeppruning.graph.proof.difference import difference, tolerance_for
from deeppruning.graph.proof.masking import kept_atoms
from deeppruning.graph.proof.probe import ExpectedSteps, Fault, ThinRun, expected_shapes, find_faults
from deeppruning.graph.proof.remedies import Decisions, Doctor
from deeppruning.graph.proof.trials import Trials
from deeppruning.graph.proof.twin import Scene, Stage, seeded
from deeppruning.graph.proof.verify import Built
from deeppruning.graph.trace.follow import Follower, Number, OperationList, tensors_in
from deeppruning.graph.trace.tracer import Record, Trace

LINEAR, HEADS = "linear layers", "heads of attention"


def build_best(
    model: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any], options: GraphOptions
) -> Built:
    """Build with these options, but without linear layers or heads where these fail or freeze filters."""
    if options.prune_heads:
        without = build_best(model, args, kwargs, replace(options, prune_heads=False))
        try:
            headed = Builder(model, args, kwargs, options).build()
        except GraphError as error:
            return _noted(without, str(error), HEADS)
        return prefer(without, headed, HEADS)
    if not options.prune_linear:
        return Builder(model, args, kwargs, options).build()
    plain = Builder(model, args, kwargs, replace(options, prune_linear=False)).build()
    try:
        whole = Builder(model, args, kwargs, options).build()
    except GraphError as error:
        return _noted(plain, str(error))
    return prefer(plain, whole)


def prefer(plain: Built, whole: Built, what: str = LINEAR) -> Built:
    """The plan with linear layers or heads, unless some layer is free to lose fewer filters in it."""
    free = _free_filters(whole)
    lost = [layer for layer, count in _free_filters(plain).items() if free.get(layer, 0) < count]
    return _noted(plain, f"that would freeze filters of {', '.join(lost)}", what) if lost else whole


def _free_filters(built: Built) -> dict[str, int]:
    """Layer -> how many of its filters some gene decides about."""
    return {layer.name: int(np.sum(layer.genes >= 0)) for layer in built.plan.layers}


def _noted(plain: Built, reason: str, what: str = LINEAR) -> Built:
    """The plan without linear layers or heads, with a note that says why."""
    return replace(plain, notes=[*plain.notes, f"{what} are not pruned: {reason}"])


@dataclass(frozen=True)
class _Failure:
    """A genome with a thin network that differs from the masked one."""

    mode: str
    genome: Bits
    faults: list[Fault]


class Builder:
    """Builds the plan of one network; works on copies and leaves the network as it is."""

    def __init__(
        self, model: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any], options: GraphOptions
    ) -> None:
        self.options = options
        self.decisions = Decisions()
        self.stage = Stage(model, args, kwargs, whole_heads=options.prune_heads)

    def build(self) -> Built:
        """Trace and probe until nothing differs.

        It ends because each round makes a new decision about a gene that is left.
        """
        while True:
            table, traces = self.stage.trace(self.decisions)
            if self.decisions.turn_views(table, traces):
                continue
            model, trace = self.stage.eval.model, traces["eval"]
            plan, classes, genes = assemble(model, table, traces, self.options, batch=self._batch(trace))
            detached = frozenset(self.decisions.detached)
            read = [note for trace in traces.values() for note in trace.notes]
            notes = list(dict.fromkeys([*self.stage.notes, *read, *_unreached_note(plan.uncut.unreached)]))
            built = Built(plan, genes, detached, trace.records, notes, trace.numbers)
            trials = Trials(built.plan, built.genes, list(traces.values()))
            failure = self._probe(built, traces, trials)
            if failure is None:
                built = replace(built, notes=[*notes, *trials.widths.notes])
                padded = any(issue.kind in ("constant", "module") for issue in table.issues.values())
                built = self._with_paths(built, traces) if padded or self.options.depth else built
                return self._with_depth(built, traces) if self.options.depth else built
            doctor = Doctor(model, self.decisions, traces, table, classes, genes)
            if not doctor.treat(failure.faults, traces[failure.mode]):
                self.decisions.excluded.add(self._culprit(built, traces, failure))

    def _with_depth(self, built: Built, traces: Mapping[str, Trace]) -> Built:
        """The plan with the branches that may be removed whole."""
        scenes = {mode: (self.stage.scene(mode), trace) for mode, trace in traces.items()}
        depth = DepthFinder(built, scenes).find()
        return replace(built, plan=replace(built.plan, depth=depth))

    def _with_paths(self, built: Built, traces: Mapping[str, Trace]) -> Built:
        """The plan with the paths that outputs need from inputs."""
        paths: list[InputPaths] = []
        for mode, trace in traces.items():
            if paths and _same_records(trace.records, built.records):
                continue
            scene = self.stage.scene(mode)
            model = scene.copy()
            with seeded():
                run = PathRun(model, built.detached, trace.records, built.genes, by_shapes=trace.by_shapes)
                own = run.follow(model, scene.args, scene.kwargs)
            paths += [own] if not any(own.same_as(each) for each in paths) else []
        return replace(built, plan=replace(built.plan, paths=tuple(paths)))

    def _batch(self, trace: Trace) -> int:
        """How many inputs the example holds, given the batches that convolutions read while it ran.

        The first dimension of an input is its batch if some convolution reads as many maps, or several per
        input: the colours of an image without a batch, or numbers that come beside it, are no batch.
        """
        batches = [r.shapes[0][0] for r in trace.records if r.name == "convolution"]
        inputs = tensors_in((self.stage.eval.args, dict(self.stage.eval.kwargs)))
        inputs = sorted(inputs, key=lambda tensor: -tensor.ndim)  # images before mere numbers
        for size in (tensor.shape[0] for tensor in inputs if tensor.ndim):
            if size and any(batch % size == 0 for batch in batches):
                return size
        return 1

    def _probe(self, built: Built, traces: Mapping[str, Trace], trials: Trials) -> _Failure | None:
        """Try all genomes that matter; the first that fails ends the round."""
        if not built.plan.num_genes:
            self._check_repeatable(built.records)
            return None
        sites = {record.site for record in traces["eval"].records}
        only_in_training = any(
            record.site not in sites for trace in traces.values() for record in trace.records
        )
        only_in_training |= len({frozenset(trace.book.questions) for trace in traces.values()}) > 1
        emptied = False
        for number, genome in enumerate(trials.genomes()):
            lone = np.array_equal(genome, trials.emptied)
            emptied |= lone
            for mode, trace in traces.items():
                if mode == "eval" or only_in_training or number == 0:
                    faults = self._compare(built, genome, mode, trace, lone=lone)
                    if faults:
                        return _Failure(mode, genome, faults)
        if emptied:
            return None
        # One filter left everywhere costs next to nothing to try where values are not compared.
        faults = self._compare(built, trials.emptied, "eval", traces["eval"], values=False, lone=True)
        return _Failure("eval", trials.emptied, faults) if faults else None

    def _culprit(self, built: Built, traces: Mapping[str, Trace], failure: _Failure) -> str:
        """A layer whose cut breaks an operation at which none of its channels is: found by halving."""
        layers = built.plan.layers
        trace = traces[failure.mode]
        works, fails = 0, len(layers)  # numbers of layers, from the first on, that are cut
        if self._compare(built, np.ones_like(failure.genome), failure.mode, trace):
            error = next((fault.error for fault in failure.faults if fault.error), None)
            raise GraphError(
                "the network cannot be adapted: a copy of it fails, though nothing is cut"
                + (f" ({error})" if error else "")
            )
        while fails - works > 1:
            middle = (works + fails) // 2
            genome = failure.genome.copy()
            for layer in layers[middle:]:
                genome[layer.genes[layer.genes >= 0]] = True
            if self._compare(built, genome, failure.mode, trace):
                fails = middle
            else:
                works = middle
        return layers[works].name.partition("#")[0]

    def _compare(
        self, built: Built, genome: Bits, mode: str, trace: Trace, *, values: bool = True, lone: bool = False
    ) -> list[Fault]:
        """Cut by a genome and compare with masking: the faults of one mode."""
        scene, recipe = self.stage.scene(mode), built.plan.recipe(genome)
        full = scene.copy()
        thin = cut(full, recipe)  # before the full one is run, for that may leave traces
        kept = kept_atoms(built.genes, genome)
        masked = ExpectedSteps(full, built.detached, trace.records, kept)
        masked.replayed = trace.numbers
        due = None
        if mode == "train" or not values:
            masked.steps = expected_shapes(trace.records, kept)
        else:
            due = self._run_masked(masked, full)
        # In training mode the draws of the trace: the way taken may depend on them.
        seed = 0 if mode == "train" else 1
        run = ThinRun(thin, built.detached, masked.steps, strict_order=mode == "eval")
        run.replayed, run.due_numbers = trace.numbers, masked.numbers if due is not None else None
        with seeded(seed):
            faults = find_faults(run, thin, scene.args, scene.kwargs)
        if not faults and run.stopped and not self._outcome(scene, recipe, seed, trace.numbers):
            return [run.stopped]  # whatever is drawn in training mode, it has to run
        if not faults:
            return []
        if not values:
            return self._compare(built, genome, mode, trace, lone=lone)
        # Torch runs some functions by other operations where a size is 1: what counts then is the outcome.
        if faults[0].strayed or (lone and not faults[0].error):
            outcome = self._outcome(scene, recipe, seed, trace.numbers)
            if outcome and (mode == "train" or difference(outcome, due)[0] <= tolerance_for(masked.coarsest)):
                return []
        return faults

    def _run_masked(self, masked: ExpectedSteps, full: nn.Module) -> Any:
        """Run the full network with the removed channels held at zero."""
        try:
            with seeded(1):  # other random numbers than the trace had: the operations must be the same
                return masked.run(full, self.stage.eval.args, self.stage.eval.kwargs)
        except GraphError:
            self._check_repeatable(masked.records)
            raise

    def _outcome(self, scene: Scene, recipe: Recipe, seed: int, numbers: Sequence[Number]) -> list[Tensor]:
        """The outputs of a thin network, whatever it does on its way; none where it fails."""
        thin = cut(scene.copy(), recipe)
        follower = Follower(thin)
        follower.replayed = numbers
        try:
            with seeded(seed):
                return tensors_in(follower.run(thin, scene.args, scene.kwargs))
        except Exception:
            return []

    def _check_repeatable(self, records: Sequence[Record]) -> None:
        """Another run under other random numbers must execute the same operations."""
        scene = self.stage.eval
        model = scene.copy()
        tracer = OperationList(model)
        with seeded(1):
            tracer.run(model, scene.args, scene.kwargs)
        traced = [(record.name, record.shapes) for record in records]
        if tracer.operations != traced:
            pairs = zip(tracer.operations, traced, strict=False)
            first = next(
                (i for i, (a, b) in enumerate(pairs) if a != b), min(len(tracer.operations), len(traced))
            )
            raise GraphError(
                "the network draws its structure at random: two runs in evaluation mode differ at operation "
                f"{first}; make its forward repeatable in eval() before pruning it"
            )


def _unreached_note(named: Sequence[str]) -> list[str]:
    """A note about layers that other inputs may lead to: no cut reaches them."""
    first = ", ".join(named[:3]) + (f" and {len(named) - 3} more" if len(named) > 3 else "")
    return [f"{first}: not run on the example input, so a thin network may fail there"] if named else []


def _same_records(first: Sequence[Record], second: Sequence[Record]) -> bool:
    """Whether two runs execute the same operations on the same channels, as both modes often do."""
    return len(first) == len(second) and all(
        left.site == right.site
        and len(left.atoms()) == len(right.atoms())
        and all(map(np.array_equal, left.atoms(), right.atoms()))
        for left, right in zip(first, second, strict=True)
    )
