"""Configuration: layers, units, and the sentence each mistake gets."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from pipeline.config import load_experiment, load_project
from pipeline.errors import ConfigError
from pipeline.stage import Config
from pipeline.units import (
    Bytes,
    Count,
    Hertz,
    Seconds,
    parse_bytes,
    parse_count,
    parse_hertz,
    parse_seconds,
    parse_watts,
)

TEXT = """steps: {}
defaults:
  boards: [stove]
  prune:
    rate: 0.5
    budget: {peak: 51.7KB}
experiments:
  kws:
    description: keywords
    prune:
      epochs: 9
    quick:
      prune: {epochs: 2}
quick:
  prune: {epochs: 3, rate: 0.7}
"""


class Budget(Config):
    peak: Bytes
    macs: Count = 10


class Prune(Config):
    rate: float
    epochs: int = 100
    budget: Budget
    clock: Hertz = 1
    limit: Seconds = 1.0


MODELS = {"prune": Prune}


def load(tmp_path, text=TEXT, *, quick=False, settings=(), name="kws"):
    (tmp_path / "pipeline.yaml").write_text(text)
    return load_experiment(
        load_project(tmp_path / "pipeline.yaml"), name, quick=quick, settings=settings, models=MODELS
    )


def refusal(tmp_path, text=TEXT, **options) -> str:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, text, **options)
    assert caught.value.exit_code == 2
    return str(caught.value)


def test_a_section_cannot_be_changed_and_holds_only_numbers():
    section = Prune(rate=0.5, budget=Budget(peak="1KB"))
    with pytest.raises(ValidationError, match="frozen"):
        section.rate = 0.7
    with pytest.raises(ValidationError, match="finite number"):
        Prune(rate=float("nan"), budget=Budget(peak="1KB"))


def test_an_experiment_overrides_the_defaults(tmp_path):
    section = load(tmp_path).sections["prune"]
    assert section == Prune(rate=0.5, epochs=9, budget=Budget(peak="51.7KB"))
    assert section.budget.peak == 51700


def test_the_quick_overlay_of_an_experiment_wins_over_the_general_one(tmp_path):
    experiment = load(tmp_path, quick=True)
    assert (experiment.sections["prune"].epochs, experiment.sections["prune"].rate) == (2, 0.7)
    assert (experiment.run_name, experiment.boards) == ("kws-quick", ("stove",))


def test_a_setting_wins_over_everything(tmp_path):
    settings = (
        "prune.epochs=5",
        "prune.budget.macs=8.351M",
        "boards=[kiln, kiln]",
        "prune.clock=216MHz",
        "prune.limit=500ms",
    )
    experiment = load(tmp_path, quick=True, settings=settings)
    section = experiment.sections["prune"]
    assert (section.epochs, section.budget.macs, section.clock, section.limit) == (5, 8351000, 216000000, 0.5)
    assert experiment.boards == ("kiln",)


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ("rate: 0.5", "rtae: 0.5", "pipeline.yaml:5: defaults.prune.rtae: unknown key; did you mean 'rate'?"),
        ("      epochs: 9", "      epoch: 9", "pipeline.yaml:11: experiments.kws.prune.epoch: unknown key; did you mean 'epochs'?"),
        ("peak: 51.7KB", "peek: 51.7KB", "pipeline.yaml:6: defaults.prune.budget.peek: unknown key; did you mean 'peak'?"),
        ("quick:\n  prune:", "quikc:\n  prune:", "pipeline.yaml:14: quikc: unknown key; did you mean 'quick'?"),
        ("    prune:\n      epochs", "    prun:\n      epochs", "pipeline.yaml:10: experiments.kws.prun: unknown key; did you mean 'prune'?"),
        ("epochs: 9", "epochs: ten", "pipeline.yaml:11: experiments.kws.prune.epochs: found 'ten', input should be a valid integer"),
        ("51.7KB", "51700", "pipeline.yaml:6: defaults.prune.budget.peak: found 51700: missing unit, needed one of B, KB, MB"),
        ("51.7KB", "51.7KX", "pipeline.yaml:6: defaults.prune.budget.peak: found '51.7KX': unknown unit 'KX'"),
        ("51.7KB", "-51.7KB", "pipeline.yaml:6: defaults.prune.budget.peak: found '-51.7KB', needed a quantity above zero"),
        ("51.7KB", "51.70001KB", "not a whole number of base units"),
        ("    budget: {peak: 51.7KB}\n", "", "prune.budget: missing; add it to the experiment"),
        ("boards: [stove]", "boards: stove", "pipeline.yaml:3: defaults.boards: found 'stove', needed a list of board names"),
        ("      epochs: 9", "      epochs: 9\n      epochs: 8", "pipeline.yaml:12: experiments.kws.prune.epochs: given twice, first at pipeline.yaml:11"),
        ("rate: 0.5", "rate: [0.5", "not valid YAML"),
        ("    prune:\n      epochs: 9", "    prune: 9", "pipeline.yaml:10: experiments.kws.prune: found 9, needed a mapping"),
    ],
)  # fmt: skip
def test_a_mistake_is_named_with_file_line_and_remedy(tmp_path, old, new, sentence):
    assert old in TEXT
    assert sentence in refusal(tmp_path, TEXT.replace(old, new, 1))


@pytest.mark.parametrize(
    ("setting", "sentence"),
    [
        ("prune.rat=1", "--set prune.rat=1: prune.rat: unknown key; did you mean 'rate'?"),
        ("prune.epochs", "--set prune.epochs: found no key=value"),
        ("prune.=3", "--set prune.=3: found no key=value"),
        ("boards=[1, kiln]", "--set boards=[1, kiln]: boards: found [1, 'kiln'], needed a list of board names"),
        ("prune.budget.peek=9B", "--set prune.budget.peek=9B: prune.budget.peek: unknown key; did you mean 'peak'?"),
        ("prune.rate.low=1", "--set prune.rate.low=1: prune.rate: found {'low': 1}, input should be a valid number"),
        ("prune.epochs=[", "--set prune.epochs=[: the value is not valid YAML"),
        ("prune.budget.peak=9", "--set prune.budget.peak=9: prune.budget.peak: found 9: missing unit"),
        ("qta.epochs=3", "--set qta.epochs=3: qta: unknown key; known are description, boards, quick, extends, prune"),
    ],
)
def test_a_wrong_setting_is_named(tmp_path, setting, sentence):
    assert sentence in refusal(tmp_path, settings=(setting,))


def test_an_unknown_experiment_names_the_nearest(tmp_path):
    assert refusal(tmp_path, name="kw") == "pipeline.yaml: experiments.kw: unknown experiment; did you mean 'kws'?"


@pytest.mark.parametrize(
    ("parse", "values"),
    [
        (parse_bytes, {"1B": 1, "2 KB": 2000, "3MB": 3_000_000, "1GB": 10**9, "1KiB": 1024, "1MiB": 2**20, "1GiB": 2**30}),
        (parse_count, {7: 7, "1.5K": 1500, "8.351M": 8_351_000, "2e3": 2000, "1G": 10**9}),
        (parse_hertz, {"20Hz": 20, "4kHz": 4000, "216MHz": 216_000_000, "1GHz": 10**9}),
        (parse_seconds, {"5us": 5e-6, "500ms": 0.5, "3s": 3.0, "2min": 120.0, "1h": 3600.0, "30d": 2_592_000.0}),
        (parse_watts, {"5uW": 5e-6, "900mW": 0.9, "1.5W": 1.5}),
    ],
)  # fmt: skip
def test_quantities_are_counted_in_their_base_unit(parse, values):
    for text, value in values.items():
        assert parse(text) == value and isinstance(parse(text), type(value))


@pytest.mark.parametrize(
    ("parse", "value", "sentence"),
    [
        (parse_count, True, "found True, needed a quantity such as 8.351M"),
        (parse_count, 0, "found 0, needed a quantity above zero"),
        (parse_count, "1.5", "found '1.5': not a whole number of base units"),
        (parse_watts, "5", "found '5': missing unit, needed one of uW, mW, W, such as 900mW"),
        (parse_bytes, "many KB", "found 'many KB', needed a quantity such as 51.7KB"),
    ],
)
def test_what_is_no_quantity_is_refused(parse, value, sentence):
    with pytest.raises(ValueError, match=sentence):
        parse(value)


def test_a_missing_file_says_what_to_do(tmp_path):
    with pytest.raises(ConfigError, match="cannot be read .* run from the folder that holds it or give --file"):
        load_project(tmp_path / "nowhere.yaml")


MOST = "quick_at_most: {prune: {epochs: 4, rate: 3}}\n"
BARE = TEXT.partition("    quick:")[0] + MOST


def test_quick_without_an_overlay_lowers_what_is_listed_and_tells_it(tmp_path):
    experiment = load(tmp_path, BARE, quick=True)
    assert (experiment.sections["prune"].epochs, experiment.sections["prune"].rate) == (4, 0.5)
    assert (experiment.derived, experiment.run_name) == (("prune.epochs=4",), "kws-quick")
    assert load(tmp_path, BARE).sections["prune"].epochs == 9


@pytest.mark.parametrize("text", [TEXT + MOST, TEXT.replace("    quick:\n      prune: {epochs: 2}\n", "") + MOST])
def test_an_overlay_of_anybody_is_taken_instead(tmp_path, text):
    experiment = load(tmp_path, text, quick=True)
    assert (experiment.derived, experiment.sections["prune"].epochs in (2, 3)) == ((), True)


def test_what_was_asked_for_is_not_lowered(tmp_path):
    experiment = load(tmp_path, BARE, quick=True, settings=["prune.epochs=50"])
    assert (experiment.derived, experiment.sections["prune"].epochs) == ((), 50)


def test_a_wrong_limit_names_its_line(tmp_path):
    wrong = BARE.replace("epochs: 4, rate: 3", "epcohs: 4")
    with pytest.raises(ConfigError, match=r"pipeline.yaml:12: .*epcohs: unknown key; did you mean 'epochs'\?"):
        load(tmp_path, wrong, quick=True)
