"""The guided search, which is the default, and the presets on the command line."""

import json

import click
import pytest
import tomli_w
from click.testing import CliRunner

from cli_calls import call
from cli_search import guided_arguments, trained
from deeppruning.cli.commands.prune import prune
from deeppruning.cli.commands.resume import resume
from deeppruning.cli.options.search import finetune_config, search_config
from deeppruning.config import FinetuneConfig, SearchConfig
from deeppruning.errors import InputError
from deeppruning.runs import RunFolder


def settings_of(*flags: str) -> dict[str, object]:
    """What `prune` is called with for these flags."""
    seen: dict[str, object] = {}
    copy = click.Command("prune", params=prune.params, callback=lambda **values: seen.update(values))
    result = CliRunner().invoke(copy, list(flags))
    if isinstance(result.exception, InputError):
        raise result.exception
    assert result.exit_code == 0, result.output
    return seen


def configs_of(*flags: str) -> tuple[SearchConfig, FinetuneConfig]:
    seen = settings_of("resnet20", "--data", "digits", *flags)
    return search_config(seen)[0], finetune_config(seen, 0)


@pytest.mark.parametrize("flags", [(), ("--preset", "guided"), ("--strategy", "guided")])
def test_without_a_preset_the_values_are_our_own(flags):
    assert configs_of(*flags) == (SearchConfig(), FinetuneConfig())


@pytest.mark.parametrize("flags", [("--preset", "paper"), ("--strategy", "paper")])
def test_the_papers_values_come_with_its_preset_or_its_strategy_alone(flags):
    assert configs_of(*flags) == (SearchConfig.paper(), FinetuneConfig.paper())


def test_options_come_on_top_of_a_preset():
    search, tuning = configs_of("--preset", "paper", "--depth", "--generations", "3", "--distill", "0.5")
    assert search == SearchConfig.paper(depth=True, generations=3)
    assert tuning == FinetuneConfig.paper(distill=0.5)
    search, tuning = configs_of("--preset", "guided", "--strategy", "paper")
    assert search == SearchConfig(strategy="paper") and tuning == FinetuneConfig()


def test_minutes_alone_leave_the_number_of_generations_open():
    assert configs_of("--minutes", "20")[0] == SearchConfig(minutes=20)
    assert configs_of("--minutes", "20")[0].generations is None
    assert configs_of("--minutes", "20", "--generations", "3")[0].generations == 3


def test_mistakes_are_explained():
    with pytest.raises(InputError, match=r"unknown strategy 'papr'; did you mean paper"):
        configs_of("--strategy", "papr")
    for low, high in ((0.5, 0.5), (0.6, 0.2)):
        with pytest.raises(InputError, match=f"low must lie below high, got {low} and {high}"):
            configs_of("--low", str(low), "--high", str(high))
    refused = CliRunner().invoke(prune, ["resnet20", "--data", "digits", "--preset", "papr"])
    assert refused.exit_code == 2 and "'papr' is not one of 'guided', 'paper'" in refused.output


@pytest.mark.parametrize("line", ['preset = "paper"', '[search]\nstrategy = "paper"'])
def test_a_file_names_a_preset_too(tmp_path, line):
    (tmp_path / "options.toml").write_text(f"offspring = 4\n{line}\n")
    given = ("--config", str(tmp_path / "options.toml"))
    assert configs_of(*given) == (SearchConfig.paper(offspring=4), FinetuneConfig.paper())


def test_a_file_that_is_no_runs_changes_the_default_options(tmp_path):
    (tmp_path / "mine.toml").write_text(tomli_w.dumps({"search": {"offspring": 4}}))
    assert configs_of("--config", str(tmp_path / "mine.toml")) == (
        SearchConfig(offspring=4),
        FinetuneConfig(),
    )


def test_a_new_run_says_its_strategy_so_that_it_is_read_as_it_was():
    for search in (SearchConfig(bins=5), SearchConfig.paper(sample=7)):
        assert SearchConfig.from_table(search.to_table()) == search


def test_prune_from_the_beginning_to_the_table(tmp_path):
    model, weights = trained(tmp_path)
    out = tmp_path / "run"
    said = call(*guided_arguments(model, weights, out), command=prune).stdout
    lines = said.splitlines()
    started = "searching: 36 filter groups, 11 candidates, 25.50 k FLOPs, 2,942 parameters"
    assert sum(started in line for line in lines) == 1
    assert sum(line.startswith("candidate ") for line in lines) == 11
    assert sum(line.startswith("generation ") for line in lines) == 2
    rows = {line.split()[0] for line in lines if line.split()}
    assert rows >= {"original", "heavy", "knee", "light"}
    assert all((out / f"{role}.safetensors").is_file() for role in ("heavy", "knee", "light"))
    config = (out / "config.toml").read_text()
    assert 'strategy = "guided"' in config and 'evaluation = "refit"' in config
    with RunFolder.open(out, read_only=True) as run:
        assert SearchConfig.from_table(run.config["search"]) == SearchConfig(
            offspring=4, generations=2, sample=100
        )
        candidates = list(run.history.candidates())
    assert candidates[0].operator == "original" and candidates[0].evaluated.score == 0.0
    assert "entered the archive: " in said and "\nnext (" in said
    quiet = call(out, "--quiet", command=resume).stdout
    assert quiet.startswith("network ") and "entered" not in quiet and "next" not in quiet
    last = json.loads(call(out, "--json", command=resume).stdout)
    assert [row["network"] for row in last["networks"]] == ["original", "heavy", "knee", "light"]
    for row in last["networks"][1:]:
        assert 0.15 <= row["flops"] / 25_500 <= 0.86


@pytest.mark.slow
def test_options_that_nothing_looks_at_are_named(tmp_path):
    model, weights = trained(tmp_path)
    given = guided_arguments(model, weights, tmp_path / "run", "--mutation", 0.3, "--eval-epochs", 2)
    said = call(*given, command=prune).stdout
    assert "no effect with strategy guided and evaluation refit: --mutation, --eval-epochs" in said
