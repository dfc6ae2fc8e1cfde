"""A search that ends when its minutes are over, and there again when it is resumed."""

import re
from dataclasses import replace

import pytest
import torch

import deeppruning as dp
from deeppruning.api import search as run_search
from deeppruning.comparison.prepare import Match
from deeppruning.config import FinetuneConfig, SearchConfig
from deeppruning.errors import InputError
from deeppruning.jobs.prepare import prepare
from deeppruning.roles import ROLES
from deeppruning.runs import facts
from deeppruning.runs.history import History
from deeppruning.searching.events import GenerationDone, Remark
from deeppruning.searching.loop import TimeBudget
from deeppruning.searching.unlabelled import Unlabelled
from search_helpers import EXAMPLE, digits, tiny_net


def over_after_work(budget: TimeBudget, generation: int) -> bool:
    budget.fresh = True
    return budget.is_over(generation)


def test_without_minutes_it_never_ends(tmp_path):
    budget = TimeBudget(None, History(tmp_path / "a.sqlite"))
    assert not any(over_after_work(budget, number) for number in range(9))


def test_it_ends_where_another_generation_would_end_too_late_and_there_again(tmp_path):
    history = History(tmp_path / "a.sqlite")
    assert not over_after_work(TimeBudget(1.0, history), 1)
    history.set_fact(facts.SPENT, 61.0)  # of an earlier sitting
    assert over_after_work(TimeBudget(1.0, history), 2)
    assert history.get_fact(facts.ENDED) == 2
    resumed = TimeBudget(1.0, history)
    assert [resumed.is_over(generation) for generation in (1, 2)] == [False, True]
    assert "1 minutes" in resumed.line(2, 9, 3, 20) and "3 of 20" in resumed.line(2, 9, 3, 20)


def test_generations_that_are_read_from_the_history_take_no_time(tmp_path):
    history = History(tmp_path / "a.sqlite")
    history.set_fact(facts.SPENT, 61.0)
    budget = TimeBudget(1.0, history)
    assert not any(budget.is_over(generation) for generation in range(1, 9))
    assert history.get_fact(facts.SPENT) == 61.0 and history.get_fact(facts.ENDED) is None
    assert over_after_work(budget, 9) and history.get_fact(facts.ENDED) == 9


def test_minutes_are_no_number_of_generations_for_the_papers_search():
    config = SearchConfig(strategy="paper", minutes=1.0)
    assert config.generations == 4 and config.idle() == ["minutes"]


def test_a_search_keeps_to_its_minutes():
    images = digits()[0].images.float() / 255
    events = []
    options = SearchConfig(offspring=3, generations=50, minutes=0.01, round_to=1)
    front = run_search(tiny_net(), images[:64], search=options, workers=1, observer=events.append)
    done = [event.generation for event in events if isinstance(event, GenerationDone)]
    assert done[-1] < 50 and front.best(flops=0.8).flops > 0
    assert [event.about for event in events if isinstance(event, Remark)].count("budget") == 1


def test_minutes_alone_leave_the_number_of_generations_open():
    assert SearchConfig().generations == 4 and SearchConfig().changed() == []
    assert SearchConfig(minutes=20, generations=2).generations == 2
    open_ = SearchConfig(minutes=20)
    assert open_.generations is None and open_.changed() == ["minutes"]
    assert open_.evaluations == SearchConfig().evaluations == 43
    assert SearchConfig.from_table(open_.to_table()) == open_


def test_a_search_by_its_minutes_alone_ends_where_it_finds_nothing_new():
    images = digits()[0].images.float() / 255
    events = []
    options = SearchConfig(offspring=3, minutes=60.0, round_to=4)  # tiny_net has few widths in fours
    front = run_search(tiny_net(), images[:64], search=options, workers=1, observer=events.append)
    done = [event for event in events if isinstance(event, GenerationDone)]
    assert {event.generations for event in done} == {None}
    assert [event.generation for event in done] == list(range(1, len(done) + 1))
    (said,) = (event.text for event in events if isinstance(event, Remark) and event.about == "budget")
    assert f"after {len(done)} generations, before its 60 minutes are over" in said
    genomes = [each.genome.tobytes() for each in front.candidates]
    assert {*genomes[-3:]} <= {*genomes[:-3]}  # the last generation


@pytest.mark.parametrize("generations", [50, None])
def test_a_run_that_its_time_ended_can_be_matched(tmp_path, generations):
    train, test = digits()
    options = SearchConfig(offspring=3, generations=generations, minutes=0.01, round_to=1, sample=60)
    finetune = FinetuneConfig(epochs=0)
    result = dp.prune(
        tiny_net(), train, test, search=options, finetune=finetune, run_dir=tmp_path / "run", workers=1
    )
    picks = Match.read(tmp_path / "run", tiny_net()).picks
    assert {role: network.genome.tobytes() for role, network in picks.items()} == {
        role: getattr(result, role).genome.tobytes() for role in ROLES
    }
    compared = dp.compare(
        tiny_net(), train, test, match=tmp_path / "run", methods="guided", finetune=finetune, workers=1
    )
    # As many candidates as the run had, without its time.
    assert [each.evaluations for each in compared.searches] == [len(result.candidates)]


def test_a_comparison_by_minutes_is_refused(tmp_path):
    train, test = digits()
    with pytest.raises(InputError, match="give generations, not minutes"):
        dp.compare(tiny_net(), train, test, shares=(0.5,), run_dir=tmp_path, search=SearchConfig(minutes=1.0))


def test_minutes_that_cannot_be_meant_are_refused():
    with pytest.raises(InputError, match="minutes"):
        SearchConfig(minutes=0.0)


class Wide(torch.nn.Module):
    """Its activations of 64 channels of 400 by 400 numbers take 41 MB of each input that waits."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = torch.nn.Conv2d(1, 64, 3, padding=1), torch.nn.Conv2d(64, 2, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.first(x)).mean((2, 3))


def test_what_a_refit_may_take_is_said_before_it_starts():
    large = torch.randn(40, 1, 400, 400)
    options = SearchConfig(memory=4.0)
    context = prepare(
        Wide(), task=Unlabelled(Wide(), large), example_input=(large[:1],), search=options, measure=False
    ).context
    remark = context.memory_remark()
    assert remark.about == "memory"
    needed = re.match(
        r"a refit on 40 inputs takes up to (.*) GB, of the 4 that .* take \(--memory\)", remark.text
    )
    assert 40 * 0.041 < float(needed[1]) <= 4.0
    short = replace(context, memory=1.0, device="cuda").memory_remark()  # which the driver may lack
    assert short.about == "sample"
    room = re.match(r"a refit uses (\d+) of the 40 inputs: more have no room in the 1 GB", short.text)
    assert 16 <= int(room[1]) < 1 / 0.041
    small = prepare(
        tiny_net(),
        task=Unlabelled(tiny_net(), torch.randn(40, 1, 8, 8)),
        example_input=EXAMPLE,
        search=options,
        measure=False,
    )
    assert small.context.memory_remark() is None
