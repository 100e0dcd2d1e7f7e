"""pipeline.yaml -> the configuration of one experiment, checked before any step runs.

The layers are merged in this order, later ones win: `defaults`, what the experiment `extends`, `experiments.NAME`, then
with --quick the top-level `quick` and those of the same experiments, then each --set. Where nobody wrote an overlay,
--quick lowers the values that `quick_at_most` lists to what it allows. A file without `steps` builds on
the experiments that come with the package, and a folder without a file has these alone. Every value remembers where it
was written, so that an error names the file and line. YAML is read here and nowhere else.
"""

from __future__ import annotations

import difflib
import functools
import importlib
import site
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ValidationError

from pipeline.errors import ConfigError
from pipeline.stage import Answer, Config

Key = tuple[str, ...]
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # the same safe loader in C where it is built
_TOP_LEVEL = (
    *("steps", "model_steps", "tools", "bench", "known_boards", "show", "programs", "least_versions", "ci"),
    *("defaults", "quick", "quick_at_most", "experiments", "seeds", "sweeps", "studies", "store", "resources"),
)
_EXPERIMENT_ONLY = ("description", "boards", "quick", "extends")
_NOT_INHERITED = ("ci",)  # of the built-in file: its baseline lies in the repository
_SHARED = "share/tinyml-pipeline"  # as in pyproject.toml
PROJECT_FILE = "pipeline.yaml"


@dataclass(frozen=True)
class Origin:
    """Where a key was written: 'pipeline.yaml:12' and its full path there."""

    where: str
    path: Key

    def __str__(self) -> str:
        return f"{self.where}: {'.'.join(self.path)}"


@dataclass(frozen=True)
class Layer:
    """A mapping from YAML with the origin of each of its keys, nested keys included."""

    values: Mapping[str, Any]
    origins: Mapping[Key, Origin]
    _below: dict[Key, Layer] = field(default_factory=dict, init=False, repr=False, compare=False)

    def below(self, *path: str) -> Layer:
        """The mapping at `path`, empty where there is none."""
        if path not in self._below:
            self._below[path] = self._found(path)
        return self._below[path]

    def _found(self, path: Key) -> Layer:
        values: Any = self.values
        for part in path:
            values = values.get(part) or {}
            if not isinstance(values, Mapping):
                raise ConfigError(f"{self.origins[path]}: found {values!r}, needed a mapping of keys to values")
        start = len(path)
        return Layer(values, {key[start:]: origin for key, origin in self.origins.items() if key[:start] == path})

    def overlaid(self, upper: Layer) -> Layer:
        """This layer with the values of `upper` on top, mapping by mapping."""
        return Layer(_merge(self.values, upper.values), {**self.origins, **upper.origins})


@dataclass(frozen=True)
class Experiment:
    """One experiment, merged and checked."""

    name: str
    quick: bool
    description: str
    boards: tuple[str, ...]
    sections: Mapping[str, Config]
    raw: Mapping[str, Mapping[str, Any]]  # what the worker validates again: units are still written out
    derived: tuple[str, ...] = ()  # what --quick lowered for want of an overlay, such as 'qat.epochs=2'

    @functools.cached_property
    def flat_sections(self) -> Mapping[str, Mapping[str, Any]]:
        """Section -> dotted key -> plain value, defaults included."""
        return {name: dict(_flat(section.model_dump(mode="json"))) for name, section in self.sections.items()}

    @property
    def run_name(self) -> str:
        return f"{self.name}-quick" if self.quick else self.name


@dataclass(frozen=True)
class Project:
    """pipeline.yaml as read."""

    file: Path
    document: Layer

    @property
    def root(self) -> Path:
        return self.file.parent

    @property
    def steps(self) -> Mapping[str, str]:
        """Step name -> dotted name of the module that declares it."""
        return self.document.below("steps").values

    @property
    def model_steps(self) -> Mapping[str, str]:
        """The same for `pipeline measure MODEL`: the steps behind a network that somebody brings along."""
        return self.document.below("model_steps").values

    def tool(self, name: str) -> Callable[..., Answer]:
        """The function behind a command that is no step, such as `inspect`."""
        return self.function(name)

    def function(self, name: str) -> Callable[..., Any]:
        """A function of `tools`: imported when it is asked for."""
        dotted = self.document.below("tools").values.get(name)
        if dotted is None:
            raise ConfigError(f"{self.file.name}: tools.{name}: missing, needed 'module:function' for this command")
        return _imported(f"tools.{name}", dotted)

    def has_tool(self, name: str) -> bool:
        return name in self.document.below("tools").values

    @property
    def forecast(self) -> Callable[..., Answer] | None:
        """What tells the cost of a run before it starts, where the project has it."""
        return self.tool("forecast") if "forecast" in self.document.below("tools").values else None

    def attached_boards(self) -> frozenset[str] | None:
        """Names of the boards that are attached; None when the project has no bench."""
        dotted = self.document.values.get("bench")
        return None if dotted is None else frozenset(_imported("bench", dotted)())

    def refuse_unknown_board(self, where: str, name: str) -> None:
        """ConfigError for a board that nobody described, where the project can tell."""
        dotted = self.document.values.get("known_boards")
        known = () if dotted is None else tuple(_imported("known_boards", dotted)())
        if known and name not in known:
            raise ConfigError(f"{where}: {name}: unknown board, known are {', '.join(known)}")

    @property
    def show(self) -> Mapping[str, str]:
        """Artifacts to print when a run is done: `table` as text, `rows` with --json."""
        return {key: value for key, value in self.document.below("show").values.items() if isinstance(value, str)}

    @property
    def files_worth_opening(self) -> tuple[str, ...]:
        """Artifacts to name when a run is done."""
        return tuple(self.document.below("show").values.get("files", ()))

    @property
    def least_versions(self) -> Mapping[str, str]:
        """Oldest version of programs that a user may have; what is absent is not asked for."""
        return {name: str(version) for name, version in self.document.below("least_versions").values.items()}

    @property
    def programs(self) -> Mapping[str, str]:
        """Executable -> how to get it."""
        return self.document.below("programs").values

    @property
    def seeds(self) -> tuple[str, ...]:
        """What --seeds of a sweep sets: 'section.key'."""
        return tuple(self.document.values.get("seeds") or ())

    @property
    def sweeps(self) -> Mapping[str, Any]:
        return self.document.below("sweeps").values

    @property
    def studies(self) -> Mapping[str, Any]:
        return self.document.below("studies").values

    @property
    def experiments(self) -> Mapping[str, Any]:
        return self.document.below("experiments").values


def _imported(key: str, dotted: str) -> Callable[..., Any]:
    module, _, function = dotted.partition(":")
    try:
        found: Callable[..., Any] = getattr(importlib.import_module(module), function)
    except (ModuleNotFoundError, AttributeError) as error:
        raise ConfigError(f"{key}: cannot import {dotted} ({error}); needed 'module:function'") from error
    return found


def built_in_file() -> Path:
    """The pipeline.yaml that comes with us: beside the packages in a clone, below `share` of an installation."""
    home = Path(__file__).resolve().parent.parent
    shared = (base / _SHARED for base in (home, Path(sys.prefix), Path(site.getuserbase())))  # --target, venv, --user
    places = [folder / PROJECT_FILE for folder in (home, *shared)]
    found = next((file for file in places if file.exists()), None)
    if found is None:
        looked = ", ".join(map(str, places))
        raise ConfigError(
            f"{PROJECT_FILE} of the package: not in {looked}, needed for its experiments; install it again"
        )
    return found


def load_project(file: Path) -> Project:
    """What `file` says; on top of what is built in, unless it names its own steps."""
    is_there = file.exists() or file != Path(PROJECT_FILE)
    document = _read_layer(file) if is_there else Layer({}, {})
    for key in document.values:
        if key not in _TOP_LEVEL:
            raise ConfigError(f"{document.origins[(key,)]}: {_unknown(key, _TOP_LEVEL)}")
    if "steps" not in document.values:
        built_in = _read_layer(built_in_file())
        kept = {key: value for key, value in built_in.values.items() if key not in _NOT_INHERITED}
        document = Layer(kept, built_in.origins).overlaid(document)
    return Project(file, document)


def load_section(project: Project, name: str, model: type[Config]) -> Config:
    """A section at the top level, or `sweeps.NAME` below one, checked like those of an experiment."""
    return _checked(name, project.document.below(*name.split(".")), model)


def load_experiment(
    project: Project, name: str, *, quick: bool, settings: Sequence[str], models: Mapping[str, type[Config]]
) -> Experiment:
    """Merge the layers of an experiment and check each section against its model."""
    if name not in project.experiments:
        raise ConfigError(
            f"{project.file.name}: experiments.{name}: {_unknown(name, project.experiments, 'experiment')}"
        )
    document, family = project.document, _family(project, name)
    layers = [document.below("defaults"), *(document.below("experiments", member) for member in family)]
    overlays = [document.below("quick"), *(document.below("experiments", member, "quick") for member in family)]
    asked = [_setting_layer(setting) for setting in settings]
    if not quick or any(overlay.values for overlay in overlays):
        return _experiment(name, quick, _stacked(*layers, *(overlays if quick else ()), *asked), models)
    usual = _experiment(name, quick, _stacked(*layers, *asked), models)
    lowered = _lowered(document.below("quick_at_most"), usual, _stacked(*asked))
    derived = tuple(
        f"{section}.{key}={value}" for section, keys in lowered.values.items() for key, value in keys.items()
    )
    return replace(_experiment(name, quick, _stacked(*layers, lowered, *asked), models), derived=derived)


def _stacked(*layers: Layer) -> Layer:
    stack = Layer({}, {})
    for layer in layers:
        stack = stack.overlaid(layer)
    return stack


def _lowered(most: Layer, usual: Experiment, asked: Layer) -> Layer:
    """The limits that the experiment exceeds and the user did not ask for; a value that is None has no limit yet."""
    found: dict[str, dict[str, Any]] = {}
    for section in most.values.keys() & usual.sections.keys():
        for key, limit in most.below(section).values.items():
            value = getattr(usual.sections[section], key, None)
            if key not in asked.below(section).values and (value is None or value > limit):
                found.setdefault(section, {})[key] = limit
    return Layer({section: found[section] for section in most.values if section in found}, most.origins)


def _family(project: Project, name: str) -> list[str]:
    """The experiment and those that it extends, the most general one first."""
    family = [name]
    while (general := project.document.below("experiments", family[0]).values.get("extends")) is not None:
        origin = project.document.origins[("experiments", family[0], "extends")]
        if general not in project.experiments:
            raise ConfigError(f"{origin}: {general}: {_unknown(str(general), project.experiments, 'experiment')}")
        if general in family:
            raise ConfigError(f"{origin}: {general} extends {family[0]} already, needed one that stands alone")
        family.insert(0, general)
    return family


def model_experiment(
    project: Project, name: str, brought: Mapping[str, Any], settings: Sequence[str], models: Mapping[str, type[Config]]
) -> Experiment:
    """An experiment of `model_steps`: the defaults that concern them, what is brought along, and each --set."""
    defaults = project.document.below("defaults")
    concerned = Layer({key: value for key, value in defaults.values.items() if key in models}, defaults.origins)
    asked = [_setting_layer(setting) for setting in settings]
    return _experiment(name, False, _stacked(concerned, Layer(brought, {}), *asked), models)


def _experiment(name: str, quick: bool, merged: Layer, models: Mapping[str, type[Config]]) -> Experiment:
    if name.startswith(".") or "/" in name or "\0" in name:
        raise ConfigError(f"{name!r}: is no name for a folder of runs; leave out slashes and a dot at the start")
    known = (*_EXPERIMENT_ONLY, *models)
    for key in merged.values:
        if key not in known:
            raise ConfigError(f"{merged.origins[(key,)]}: {_unknown(key, known)}")
    written = {section: merged.below(section) for section in models}
    values = {section: layer.values for section, layer in written.items()}
    sections = {
        section: Layer(models[section].completed(layer.values, values), layer.origins)
        for section, layer in written.items()
    }
    return Experiment(
        name=name,
        quick=quick,
        description=str(merged.values.get("description", "")),
        boards=_board_list(merged),
        sections={section: _checked(section, layer, models[section]) for section, layer in sections.items()},
        raw={section: layer.values for section, layer in sections.items()},
    )


def _read_layer(file: Path) -> Layer:
    try:
        text = file.read_text()
    except OSError as error:
        raise ConfigError(
            f"{file}: cannot be read ({error.strerror}); run from the folder that holds it or give --file"
        ) from error
    try:
        node = yaml.compose(text, Loader=_LOADER)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f":{mark.line + 1}" if mark else ""
        raise ConfigError(f"{file.name}{line}: not valid YAML ({getattr(error, 'problem', error)})") from error
    if not isinstance(node, yaml.MappingNode):
        raise ConfigError(f"{file.name}: found no keys, needed at least 'steps' and 'experiments'")
    origins: dict[Key, Origin] = {}
    _collect_origins(node, file.name, (), origins)
    return Layer(yaml.load(text, Loader=_LOADER), origins)


def _collect_origins(node: yaml.Node, file: str, path: Key, origins: dict[Key, Origin]) -> None:
    if not isinstance(node, yaml.MappingNode):
        return
    for key_node, value_node in node.value:
        key = (*path, str(key_node.value))
        origin = Origin(f"{file}:{key_node.start_mark.line + 1}", key)
        if key in origins:
            raise ConfigError(f"{origin}: given twice, first at {origins[key].where}; remove one")
        origins[key] = origin
        _collect_origins(value_node, file, key, origins)


@functools.lru_cache(maxsize=1024)  # the points of a sweep share most of theirs
def _setting_layer(setting: str) -> Layer:
    """'prune.rate=0.1' as a layer of one value."""
    dotted, equals, text = setting.partition("=")
    path = tuple(part.strip() for part in dotted.split("."))
    if not equals or not all(path):
        raise ConfigError(f"--set {setting}: found no key=value, needed such as --set prune.rate=0.1")
    try:
        value = yaml.load(text, Loader=_LOADER)
    except yaml.YAMLError as error:
        raise ConfigError(
            f"--set {setting}: the value is not valid YAML ({getattr(error, 'problem', error)})"
        ) from error
    for part in reversed(path):
        value = {part: value}
    origins = {path[: end + 1]: Origin(f"--set {setting}", path[: end + 1]) for end in range(len(path))}
    return Layer(value, origins)


def _flat(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _merge(lower: Mapping[str, Any], upper: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(lower)
    for key, value in upper.items():
        old = merged.get(key)
        merged[key] = _merge(old, value) if isinstance(old, Mapping) and isinstance(value, Mapping) else value
    return merged


def _board_list(merged: Layer) -> tuple[str, ...]:
    boards = merged.values.get("boards", [])
    if not isinstance(boards, list) or not all(isinstance(board, str) for board in boards):
        raise ConfigError(f"{merged.origins[('boards',)]}: found {boards!r}, needed a list of board names")
    return tuple(dict.fromkeys(boards))


def _checked(section: str, layer: Layer, model: type[Config]) -> Config:
    try:
        return model.model_validate(layer.values)
    except ValidationError as error:
        # A misspelt key is the cause of the missing one beside it: name it first.
        first = min(error.errors(), key=lambda item: item["type"] != "extra_forbidden")
        path = tuple(str(part) for part in first["loc"])
        origin = _origin(section, path, layer)
        if first["type"] == "extra_forbidden":
            raise ConfigError(f"{origin}: {_unknown(path[-1], _fields_at(model, path[:-1]))}") from error
        if first["type"] == "missing":
            raise ConfigError(f"{origin}: missing; add it to the experiment or its defaults") from error
        reason = first["msg"].removeprefix("Value error, ")
        found = reason if reason.startswith("found ") else f"found {first['input']!r}, {reason[0].lower()}{reason[1:]}"
        raise ConfigError(f"{origin}: {found}") from error


def _origin(section: str, path: Key, layer: Layer) -> str:
    """Where the key stands, or the nearest mapping around it where it does not stand anywhere."""
    for end in range(len(path), 0, -1):
        if path[:end] in layer.origins:
            origin = layer.origins[path[:end]]
            return ".".join([str(origin), *path[end:]])
    return ".".join([section, *path])


def _fields_at(model: type[BaseModel], path: Key) -> Iterable[str]:
    for part in path:
        field = model.model_fields.get(part)
        if field is None or not (isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel)):
            return ()
        model = field.annotation
    return model.model_fields


def _unknown(key: str, known: Iterable[str], what: str = "key") -> str:
    near = difflib.get_close_matches(str(key), list(known), n=1, cutoff=0.5)
    hint = f"did you mean '{near[0]}'?" if near else f"known are {', '.join(known) or 'none'}"
    return f"unknown {what}; {hint}"
