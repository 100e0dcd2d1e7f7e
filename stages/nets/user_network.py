"""A user's own torch network: imported by name from the project's folder and checked before anything trains."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

from pipeline.errors import ConfigError
from stages.nets.config import NetworkConfig


def user_network(config: NetworkConfig) -> nn.Module:
    """What `module` makes of `args`; ConfigError unless it is a network that tells the classes apart."""
    assert config.module is not None
    where, make = f"network.module: {config.module}", import_user_network(config)
    try:
        net = make(**_known_shape(make, config), **config.args)
    except Exception as error:
        raise ConfigError(f"{where}: does not take these args ({_reason(error)}); check network.args") from error
    if not isinstance(net, nn.Module):
        raise ConfigError(f"{where}: returned {type(net).__name__}, needed a torch.nn.Module")
    _check_shapes(net, config, where)
    return net


def import_user_network(config: NetworkConfig) -> Callable[..., Any]:
    """The function that `module` names."""
    assert config.module is not None
    module, _, function = config.module.partition(":")
    try:
        return getattr(importlib.import_module(module), function)  # type: ignore[no-any-return]
    except Exception as error:  # somebody else's file: whatever is wrong with it
        raise ConfigError(
            f"network.module: {config.module}: cannot be imported ({_reason(error)}); "
            "needed 'file:function' beside pipeline.yaml"
        ) from error


def _known_shape(make: Callable[..., Any], config: NetworkConfig) -> dict[str, Any]:
    """`input_shape` and `classes` for a function that takes them and was not given them as arguments."""
    try:
        taken = inspect.signature(make).parameters.keys() - config.args.keys()
    except ValueError:  # a builtin
        return {}
    known = {"input_shape": config.input_shape, "classes": config.classes}
    return {key: value for key, value in known.items() if key in taken and value is not None}


def _check_shapes(net: nn.Module, config: NetworkConfig, where: str) -> None:
    if config.input_shape is None or config.classes is None:
        raise ConfigError(
            f"{where}: its input shape and classes are not known before the data are prepared; "
            "give network.input_shape and network.classes"
        )
    height, width, channels = config.input_shape
    was_training = net.training
    try:
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            logits = net.eval()(torch.zeros(1, channels, height, width))
            state = {name: tensor.clone() for name, tensor in net.state_dict().items()}
            in_training = net.train()(torch.zeros(2, channels, height, width))
            net.load_state_dict(state)  # batch normalisation had moved its statistics
    except Exception as error:
        raise ConfigError(
            f"{where}: does not take an input of {config.input_shape} (height, width, channels), which the data or "
            f"network.input_shape ask for: {_reason(error)}; change the network, or data.image_px for pictures"
        ) from error
    finally:
        net.train(was_training)
    if type(in_training) is not type(logits):
        raise ConfigError(
            f"{where}: delivers a {type(in_training).__name__} in training mode; return only the logits there, too"
        )
    if not isinstance(logits, torch.Tensor):
        raise ConfigError(f"{where}: delivers a {type(logits).__name__}, needed one tensor; return only the logits")
    if tuple(logits.shape) != (1, config.classes):
        raise ConfigError(
            f"{where}: delivers {tuple(logits.shape)}, needed (1, {config.classes}) for {config.classes} classes; "
            "let the function take a parameter 'classes', or change network.args"
        )


def _reason(error: Exception) -> str:
    """The first line of what a foreign error says, with its kind where that alone tells little."""
    said = str(error).partition("\n")[0]
    return said if isinstance(error, ImportError | AttributeError | TypeError) else f"{type(error).__name__}: {said}"


def source_digest(config: NetworkConfig) -> str | None:
    """sha256 of the file that makes a user's network; None for one of ours, or where there is no file."""
    if config.module is None:
        return None
    try:
        spec = importlib.util.find_spec(config.module.partition(":")[0])
    except (ImportError, ValueError):
        return None
    if spec is None or spec.origin is None or not Path(spec.origin).is_file():
        return None
    return hashlib.sha256(Path(spec.origin).read_bytes()).hexdigest()
