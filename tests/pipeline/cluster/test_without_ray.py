"""What can be said of clusters without one: resources of steps, likeness of machines, and Ray that is not installed."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pipeline.cluster.connection import ClusterNode
from pipeline.cluster.executor import RayExecutor
from pipeline.cluster.likeness import differences_here
from pipeline.cluster.resources import StepResources, declared_resources, needs_of
from pipeline.config import load_project
from pipeline.engine.worker import Job
from pipeline.errors import ConfigError
from pipeline.stage import Target
from tests.pipeline.conftest import ToyProject


def job_of(toy: ToyProject, module: str, target: Target | None = None) -> Job:
    return Job(
        root=toy.root,
        module=module,
        artifacts={},
        sections={},
        experiment="bread",
        target=target,
        out_dir=toy.root,
        checkpoint_dir=toy.root,
    )


@pytest.fixture
def importable(toy: ToyProject, monkeypatch: pytest.MonkeyPatch) -> ToyProject:
    monkeypatch.syspath_prepend(str(toy.root))
    for name in ("toy_grow", "toy_bake", "toy_helper"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return toy


def test_without_ray_one_sentence_names_the_extra(toy: ToyProject, monkeypatch: pytest.MonkeyPatch) -> None:
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *more: None if name == "ray" else found(name, *more))
    for command in (("run", "bread", "--executor", "ray"), ("sweep", "bread", "--executor", "ray")):
        done = toy.run(*command, check=2)
        assert done.stderr == (
            "--executor ray: Ray is not installed; install it with: pip install 'tinyml-pipeline[ray]'\n"
        )
    toy.edit("pipeline.yaml", "bench: toy_bench:attached", "tools: {offer: hil.bench.offering:Offering}")
    done = toy.run("worker", "--address", "127.0.0.1:1", check=2)
    assert "pipeline worker: Ray is not installed" in done.stderr
    assert "belongs to --executor ray" in toy.run("run", "bread", "--address", "127.0.0.1:1", check=2).stderr


def test_resources_are_read_from_the_project(toy: ToyProject) -> None:
    toy.edit(
        "pipeline.yaml", "steps:", "resources:\n  mill: {cpus: 4, gpus: 1, memory: 8GB, custom: {fast: 1}}\nsteps:"
    )
    declared = declared_resources(load_project(toy.root / "pipeline.yaml"))
    assert {step: one.model_dump() for step, one in declared.items()} == {
        "mill": {"cpus": 4, "gpus": 1, "memory": 8_000_000_000, "custom": {"fast": 1}}
    }
    toy.edit("pipeline.yaml", "  mill: {cpus", "  milk: {cpus")
    with pytest.raises(ConfigError, match="resources.milk: no such step; known are grow, mill, bake, sell"):
        declared_resources(load_project(toy.root / "pipeline.yaml"))


@pytest.mark.parametrize(
    ("target", "probe", "offered", "amounts"),
    [
        (Target("stove", "hardware"), "", (), {"board:stove": 1}),
        (Target("stove", "hardware"), "0a", (), {"board:stove": 1, "probe:0A": 1}),
        (Target("stove", "virtual"), "", ("board:stove",), {"CPU": 1}),
        (Target("stove", "virtual"), "", ("twin:stove",), {"twin:stove": 1}),
    ],
)
def test_a_step_on_a_board_needs_that_board(
    importable: ToyProject, target: Target, probe: str, offered: tuple[str, ...], amounts: dict[str, float]
) -> None:
    needs = needs_of(job_of(importable, "toy_bake", target), StepResources(), probe, lambda: offered)
    assert needs.amounts == amounts
    assert needs.met_by({**amounts, "CPU": 2}) and not needs.met_by({"memory": 1})
    assert needs_of(job_of(importable, "toy_grow"), StepResources(gpus=1), "", lambda: ()).options() == {
        "num_cpus": 1,
        "num_gpus": 1,
        "resources": {},
    }


def test_a_machine_with_other_code_or_tools_is_told_apart(importable: ToyProject) -> None:
    root, job = importable.root, job_of(importable, "toy_grow")
    code = {name: importlib.util.find_spec(name) for name in ("toy_grow", "toy_helper")}
    from pipeline.digest import file_digest
    from pipeline.engine.tool_versions import package_version

    made_of = {f"code.{name}": file_digest(Path(str(spec and spec.origin))) for name, spec in code.items()}
    made_of |= {"version.pydantic": package_version("pydantic"), "config.grains": 5, "step": "grow"}
    assert differences_here(made_of, job) == []
    assert differences_here({**made_of, "version.pydantic": "0.1"}, job) == [
        f"version.pydantic: 0.1 -> {package_version('pydantic')}"
    ]
    (root / "toy_helper.py").write_text("GRAIN = 'rye'\n")
    assert [line.partition(":")[0] for line in differences_here(made_of, job)] == ["code.toy_helper"]
    (root / "toy_helper.py").unlink()
    assert differences_here(made_of, job)[0].endswith("-> (none)")


class PretendedRay:
    """A cluster whose only twin vanishes once a step waits for it; whatever asks for a processor runs."""

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []
        self.cancelled = 0
        self.exceptions = SimpleNamespace(RayError=OSError, TaskCancelledError=EOFError, RayTaskError=EOFError)
        self.ray = self

    def nodes(self) -> list[ClusterNode]:
        return [ClusterNode("1", "host", {"CPU": 2.0, **({} if self.asked else {"twin:stove": 1.0})})]

    def offered(self) -> frozenset[str]:
        return frozenset(name for node in self.nodes() for name in node.resources)

    def remote(self, function: Any) -> Any:
        return SimpleNamespace(options=self.options)

    def options(self, **asked: Any) -> Any:
        self.asked.append(asked)
        return SimpleNamespace(remote=lambda _: iter([[{"event": "done", "outputs": {"bread": "bread.txt"}}]]))

    def wait(self, tasks: list[Iterator[Any]], timeout: float | None) -> tuple[list[Iterator[Any]], list[Any]]:
        return (tasks if self.asked[-1]["num_cpus"] else []), []

    def get(self, events: Any) -> Any:
        return events

    def cancel(self, task: Any, force: bool) -> None:
        self.cancelled += 1


def test_a_step_that_waits_for_a_twin_runs_anywhere_once_nobody_offers_it(importable: ToyProject) -> None:
    ray, told = PretendedRay(), list[str]()
    project = load_project(importable.root / "pipeline.yaml")
    executor = RayExecutor(ray, project, told.append, patience_s=0)  # type: ignore[arg-type]
    job = job_of(importable, "toy_bake", Target("stove", "virtual"))
    log = importable.root / "bake.log"
    assert executor.run("bake[stove]", job, lock=0, log=log, on_event=lambda _: None) == {"bread": "bread.txt"}
    assert [(one["num_cpus"], one["resources"]) for one in ray.asked] == [(0, {"twin:stove": 1.0}), (1.0, {})]
    assert (ray.cancelled, told) == (1, [])
