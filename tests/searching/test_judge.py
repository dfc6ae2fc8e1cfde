"""How a candidate is judged after a refit: by what, on which images, and what is too little for it."""

import pytest
import torch

import deeppruning as dp
from deeppruning.data.batches import normalize
from deeppruning.data.images import ImageSet
from deeppruning.errors import InputError
from deeppruning.graph import ChannelGraph
from deeppruning.jobs.prepare import prepare
from deeppruning.searching.candidate import Context, evaluate_candidate, refit_if_asked
from deeppruning.searching.task import MOST_REFITTED, Classification
from deeppruning.training.distillation import distillation_loss
from deeppruning.training.evaluate import evaluate, outputs_on
from search_helpers import EXAMPLE, digits, quick_guided, quick_search, tiny_net


def task_of(search: dp.SearchConfig | None = None, **options) -> Classification:
    train, test = digits()
    task = prepare(tiny_net(), train, test, search=search or quick_guided(), measure=False, **options).task
    assert isinstance(task, Classification)
    return task


def shown(task: Classification) -> tuple[set[bytes], set[bytes]]:
    """The images of both parts by their pixels."""
    refitted, judged = ({image.numpy().tobytes() for image in part.images} for part in task.parts)
    return refitted, judged


def test_the_uncut_network_has_no_divergence_and_its_own_error():
    task = task_of()
    found = task.judge(tiny_net(), seed=0)
    assert found.score == 0.0
    assert found.error == evaluate(tiny_net(), task.parts[1]).error
    assert found.error == task.untrained_error(tiny_net()) == task.candidate_error(tiny_net(), 0)


def test_judged_images_are_not_those_refitted_on():
    task = task_of()
    refitted, judged = shown(task)
    assert (len(refitted), len(judged)) == (30, 30) and not refitted & judged
    assert refitted | judged == {image.numpy().tobytes() for image in task.sample.images}
    inputs = task.refit_inputs()
    assert inputs is not None
    assert torch.equal(inputs, normalize(task.parts[0].images, task.sample.normalization))
    final = task.refit_inputs(final=True)  # when nothing is judged any more
    assert final is not None and len(final) == 60


def test_a_refit_learns_from_no_more_than_so_many_images():
    train, test = digits(train=1300)
    task = prepare(tiny_net(), train, test, search=quick_guided(sample=1200), measure=False).task
    assert isinstance(task, Classification)
    assert [len(part) for part in task.parts] == [MOST_REFITTED, 1200 - MOST_REFITTED]


def test_of_large_images_fewer_are_refitted_on_and_judged_by():
    images = torch.randint(0, 256, (600, 1, 200, 200), dtype=torch.uint8)
    data = ImageSet(images, torch.arange(600) % 10, tuple("abcdefghij"))
    task = Classification(data, quick_guided())
    assert [len(part) for part in task.parts] == [128, 128]
    refitted, judged = ({image.numpy().tobytes() for image in part.images} for part in task.parts)
    assert not refitted & judged


def test_the_score_is_the_divergence_from_the_original_on_the_judged_images():
    task = task_of()
    other = tiny_net(seed=3)
    judged = task.parts[1]
    wanted, found = (outputs_on(network, judged) for network in (tiny_net(), tiny_net(seed=3)))
    verdict = task.judge(other, seed=0)
    assert verdict.score == float(distillation_loss(found, wanted, 1.0)) > 0.0
    assert verdict.error == int((found.argmax(1) != judged.labels).sum()) / 30


def test_the_papers_evaluations_judge_the_images_they_prepare_on_and_have_no_score():
    for evaluation in ("finetune", "recalibrate"):
        task = task_of(quick_search(evaluation=evaluation))
        assert task.parts[0] is task.parts[1] is task.sample
        assert task.refit_inputs() is None
        assert task.judge(tiny_net(), seed=0).score is None


def test_workers_are_sent_the_teacher_only_where_it_is_asked():
    assert task_of().for_search().teacher is not None
    assert task_of(quick_search()).for_search().teacher is None


def test_weights_that_are_drawn_anew_are_not_refitted_before_fine_tuning():
    task = task_of(finetune=dp.FinetuneConfig(from_scratch=True))
    assert task.refit_inputs(final=True) is None and task.refit_inputs() is not None


class NotRefitted(Classification):
    """The same images and score, without a refit."""

    def refit_inputs(self, *, final: bool = False) -> None:
        return None


def context_of(task: Classification) -> Context:
    graph = ChannelGraph(tiny_net(), EXAMPLE, depth=True)
    return Context(graph, task.for_search(), "flops", EXAMPLE, 0)


def test_a_refit_brings_candidates_nearer_to_the_original_and_is_the_same_every_time():
    task = task_of()
    plain = NotRefitted(task.sample, task.search, teacher=task.teacher)
    with_refit, as_cut = context_of(task), context_of(plain)
    graph = with_refit.graph
    genome = graph.full_genome()
    genome[graph.layer_genes()["inner"][:4]] = False
    refitted, cut = evaluate_candidate(with_refit, genome), evaluate_candidate(as_cut, genome)
    assert refitted.score is not None and cut.score is not None
    assert 0.0 < refitted.score < 0.5 * cut.score
    again = evaluate_candidate(context_of(task), genome)
    assert (again.score, again.error, again.cost) == (refitted.score, refitted.error, refitted.cost)


def test_the_original_itself_is_never_refitted():
    context = context_of(task_of())
    full = context.graph.full_genome()
    thin = context.graph.prune(full)
    before = {name: tensor.clone() for name, tensor in thin.state_dict().items()}
    refit_if_asked(context, full, thin)
    assert all(torch.equal(before[name], tensor) for name, tensor in thin.state_dict().items())
    assert evaluate_candidate(context, full).score == 0.0


@pytest.mark.parametrize("size", [20, 30])
def test_a_sample_too_small_for_a_refit_is_refused(tmp_path, size):
    train, test = digits()
    with pytest.raises(InputError, match=rf"at least 16 .* has {size}: give 32 or more"):
        dp.prune(
            tiny_net(), train, test, run_dir=tmp_path / "run", search=quick_guided(sample=size), workers=1
        )
    assert not (tmp_path / "run").exists()
    # As few are enough for any other evaluation.
    assert task_of(quick_guided(sample=size, evaluation="recalibrate")).refit_inputs() is None


def test_a_subclass_with_an_error_of_its_own_is_asked_for_it():
    class Own(Classification):
        def candidate_error(self, model, seed):
            return 0.25 + seed

    task = task_of()
    own = Own(sample=task.sample, search=task.search, teacher=tiny_net())
    assert own.judge(tiny_net(), seed=2).error == 2.25
    assert own.judge(tiny_net(), seed=2).score is None
