from __future__ import annotations

import inspect
from typing import Any

import pytest
import typer
from bertpool.cli.app import app, embed
from bertpool.encoder.recipe import split_names
from bertpool.extraction import extract

ONLY_IN_THE_COMMAND = {"report", "dry_run", "quiet", "verbose"}
ONLY_IN_THE_FUNCTION = {"on_progress"}


def _options() -> dict[str, Any]:
    """Return the options of `embed` by parameter name, as the parser knows them."""
    group: Any = typer.main.get_command(app)
    parameters = group.commands["embed"].params
    return {one.name: one for one in parameters if one.param_type_name == "option"}


OPTIONS = {name: option for name, option in _options().items() if name != "help"}
PARAMETERS = inspect.signature(extract).parameters
SHARED = sorted(set(OPTIONS) - ONLY_IN_THE_COMMAND)
# A list on the command line, where an option may be repeated; in Python one name will do.
SEVERAL_NAMES = {"strategy", "layer"}
OF_THE_COMMAND = set(inspect.signature(embed).parameters) - {"context"}


def test_the_command_and_the_function_take_the_same_things_by_the_same_names() -> None:
    command = OF_THE_COMMAND - ONLY_IN_THE_COMMAND
    assert command == set(PARAMETERS) - ONLY_IN_THE_FUNCTION


def test_every_parameter_of_the_command_but_the_inputs_is_an_option() -> None:
    assert set(OPTIONS) == OF_THE_COMMAND - {"inputs"}


@pytest.mark.parametrize("name", SHARED)
def test_an_option_and_its_parameter_have_the_same_default(name: str) -> None:
    default, own = inspect.signature(embed).parameters[name].default, PARAMETERS[name].default
    if name in SEVERAL_NAMES:
        assert split_names(default) == split_names(own)
    elif name == "keep":
        assert not default
        assert not own
    else:
        assert default == own
        assert type(default) is type(own)


@pytest.mark.parametrize("name", sorted(set(SHARED) - SEVERAL_NAMES - {"keep"}))
def test_an_option_and_its_parameter_are_typed_alike(name: str) -> None:
    by_command = inspect.signature(embed, eval_str=True).parameters[name].annotation
    by_function = inspect.signature(extract, eval_str=True).parameters[name].annotation
    assert by_command.__origin__ == by_function


@pytest.mark.parametrize("name", OPTIONS)
def test_an_option_is_spelled_like_its_parameter(name: str) -> None:
    assert f"--{name.replace('_', '-')}" in OPTIONS[name].opts


@pytest.mark.parametrize("name", OPTIONS)
def test_an_option_reads_its_environment_variable(name: str) -> None:
    assert OPTIONS[name].envvar == f"BERTPOOL_{name.upper()}"


@pytest.mark.parametrize("name", OPTIONS)
def test_an_option_says_what_it_is_for_in_one_sentence(name: str) -> None:
    assert OPTIONS[name].help.endswith(".")


@pytest.mark.parametrize("name", sorted(set(PARAMETERS)))
def test_a_parameter_is_documented(name: str) -> None:
    assert f"\n    {name}: " in inspect.cleandoc(extract.__doc__ or "")


def test_no_two_options_share_a_spelling() -> None:
    spellings = [s for option in OPTIONS.values() for s in (*option.opts, *option.secondary_opts)]
    assert len(spellings) == len(set(spellings))
