"""Runs each step as a Ray task, on a node that has what the step asks for; a step on a lost node is tried again.

The driver keeps what it keeps locally: keys and their locks, the cache, records. A node only executes, so a result is
published once, here, whoever made it.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from pipeline.cluster.connection import Cluster, ClusterError
from pipeline.cluster.node import DONE, ERROR, PLACED, THREAD_VARIABLES, UNLIKE, UNSEEN, perform
from pipeline.cluster.order import Files, Order, artifact_paths, digests_below
from pipeline.cluster.resources import Needs, StepResources, declared_resources, needs_of
from pipeline.config import Project
from pipeline.digest import file_digest
from pipeline.engine.assembly import cache_root, shared_store
from pipeline.engine.executor import LocalExecutor, OnEvent, StepFailed
from pipeline.engine.worker import Job
from pipeline.errors import StageError

Event = Mapping[str, Any]
_MOST_LOSSES = 5  # of one step, with the node that it ran on
_LOOK_EVERY_S = 2.0


class _Unmet(Exception):
    """No node has what it was to wait for, and by now it would ask for something else."""


class _Lost(Exception):
    """The node, or the process of Ray's that had the step, is gone."""


class RayExecutor:
    """An `Executor` on a cluster."""

    def __init__(
        self, cluster: Cluster, project: Project, report: Callable[[str], None], patience_s: float = 6.0
    ) -> None:
        """`patience_s`: how long a step waits for a node before it looks whether there will be one."""
        self._cluster, self._ray, self._report, self._patience_s = cluster, cluster.ray, report, patience_s
        self._project, self._declared = project, declared_resources(project)
        self._cache, self._store = cache_root(project), shared_store(project, report)
        self._sign = self._cache / "tmp" / f"sign.{uuid.uuid4().hex}"
        self._task = self._ray.remote(perform)
        self._mutex = threading.Lock()
        self._running: dict[int, Any] = {}
        self._stops = 0
        self._unlike: dict[str, dict[str, str]] = {}  # step -> node -> why it is passed over
        self._some_are_away = False
        self._digests: dict[tuple[int, ...], str] = {}  # of files, by what tells whether they changed
        self._here = LocalExecutor()

    def run(self, name: str, job: Job, *, lock: int, log: Path, on_event: OnEvent) -> dict[str, str]:
        if job.check is not None:  # no step: a look at the user's code before the first one
            return self._here.run(name, job, lock=lock, log=log, on_event=on_event)
        log.parent.mkdir(parents=True, exist_ok=True)
        order, losses, stops = self._order(name, job, log), 0, self._stops
        while True:
            try:
                last = self._asked(order, job, log, on_event, stops)
            except _Unmet:
                continue
            except _Lost as lost:
                losses += 1
                if losses > _MOST_LOSSES:
                    raise StageError(f"{name}: lost {losses} times with its node, the last time: {lost}") from lost
                self._report(f"{name}: its node was lost ({lost}); it is tried again from its checkpoint")
                continue
            if last["event"] == UNSEEN:
                order = self._with_inputs(order, job)
            elif last["event"] == UNLIKE:
                self._pass_over(name, last)
            elif last["event"] == ERROR:
                raise _failure(name, last)
            elif self._took_over(last, job, name):
                return dict(last["outputs"])

    def stop(self) -> None:
        with self._mutex:
            self._stops += 1
            running = list(self._running.values())
        for task in running:
            self._cancel(task)
        self._here.stop()
        self._sign.unlink(missing_ok=True)

    def _cancel(self, task: Any) -> None:
        with contextlib.suppress(self._ray.exceptions.RayError, ValueError, TypeError):  # ended, or not even begun
            self._ray.cancel(task, force=True)

    def _order(self, name: str, job: Job, log: Path) -> Order:
        self._sign.parent.mkdir(parents=True, exist_ok=True)
        self._sign.touch()
        order = Order(
            name=name,
            job=job.model_dump_json(),
            made_of=job.made_of,
            log=log,
            cache=self._cache,
            sign=self._sign,
            folder=Path.cwd(),
            environment={name: os.environ[name] for name in os.environ if name.startswith(THREAD_VARIABLES)},
            store=None if self._store is None else self._store.bucket.url,
        )
        return self._with_inputs(order, job) if self._some_are_away else order

    def _needs(self, name: str, job: Job) -> Needs:
        step, probe = name.partition("[")[0], ""
        if job.target is not None and job.target.source == "hardware" and self._project.has_tool("probe_of"):
            probe = self._project.function("probe_of")(job.artifacts, job.sections)
        return needs_of(job, self._declared.get(step, StepResources()), probe, self._cluster.offered)

    def _asked(self, order: Order, job: Job, log: Path, on_event: OnEvent, stops: int) -> Event:
        """Have a node perform it; returns its closing event."""
        step, needs = order.name.partition("[")[0], self._needs(order.name, job)
        options = {**needs.options(), "max_retries": 0, "num_returns": "streaming", "name": order.name}
        if passed_over := self._unlike.get(step):
            options["label_selector"] = {"ray.io/node-id": f"!in({','.join(passed_over)})"}
            if not any(needs.met_by(one.resources) for one in self._cluster.nodes() if one.id not in passed_over):
                raise StageError(f"{order.name}: no node is like this machine: {'; '.join(passed_over.values())}")
        errors = self._ray.exceptions
        task: Any = None
        try:
            with self._mutex:
                if self._stops != stops:
                    raise StageError(f"{order.name}: interrupted")
                task = self._task.options(**options).remote(order)
                self._running[id(task)] = task
            return self._relayed(task, self._while_waiting(order.name, job, needs), log, on_event)
        except (KeyboardInterrupt, _Unmet):
            self._cancel(task)
            raise
        except errors.TaskCancelledError as error:
            raise StageError(f"{order.name}: interrupted") from error
        except errors.RayTaskError as error:
            raise ClusterError(
                f"{order.name}: a node could not begin ({str(error.cause).strip().splitlines()[-1]}); "
                "needed the same tinyml-pipeline installed there"
            ) from error
        except errors.RayError as error:
            if self._stops != stops:
                raise StageError(f"{order.name}: interrupted") from error
            raise _Lost(str(error).strip().partition(".")[0]) from error
        finally:
            with self._mutex:
                self._running.pop(id(task), None)

    def _relayed(self, task: Any, while_waiting: Callable[[], None], log: Path, on_event: OnEvent) -> Event:
        placed = False
        while True:
            ready, _ = self._ray.wait([task], timeout=None if placed else _LOOK_EVERY_S)
            if not ready:
                while_waiting()
                continue
            for event in self._ray.get(next(task)):
                placed = True
                if event["event"] in (DONE, ERROR, UNSEEN, UNLIKE):
                    return dict(event)
                if event["event"] == "log":
                    log.write_text(event["text"])
                elif event["event"] == "note":
                    self._report(event["text"])
                elif event["event"] != PLACED:
                    on_event(event)

    def _while_waiting(self, name: str, job: Job, needs: Needs) -> Callable[[], None]:
        """What to do now and then until a node begins with it."""
        begin, is_told = time.monotonic(), False

        def look() -> None:
            nonlocal is_told
            is_early = time.monotonic() - begin < self._patience_s
            if is_early or any(needs.met_by(node.resources) for node in self._cluster.nodes()):
                return  # it waits for its turn
            if self._needs(name, job) != needs:
                raise _Unmet  # whoever offered the twin is gone, and so it runs anywhere
            if not is_told:
                self._report(f"{name}: waits for a node with {needs}; the cluster has none now")
                is_told = True

        return look

    def _pass_over(self, name: str, event: Event) -> None:
        what = event["what"]
        more = f" and {len(what) - 1} more" if len(what) > 1 else ""
        why = f"{event['host']}: {what[0]}{more}"
        self._unlike.setdefault(name.partition("[")[0], {})[event["node"]] = why
        self._report(f"{name}: a node is passed over, it would make something else: {why}")

    def _with_inputs(self, order: Order, job: Job) -> Order:
        """For a node that does not see the cache: what the step reads is in the store, and called by its digests."""
        if self._store is None:
            raise ClusterError(
                f"{order.name}: a node sees neither {self._cache} nor a shared store; put the cache where every node "
                "has it at the same path (PIPELINE_CACHE), or name a store: in pipeline.yaml"
            )
        self._some_are_away = True
        inputs: dict[str, Files] = {}
        with self._store.working():
            for path in artifact_paths(job):
                inputs[str(path)] = files = digests_below(path, self._digest)
                for name, digest in files.items():
                    self._store.send_object(path / name if name else path, digest)
        return replace(order, inputs=inputs)

    def _digest(self, file: Path) -> str:
        """Read once: the runs of a sweep hold links to the same files."""
        seen = file.stat()
        state = (seen.st_dev, seen.st_ino, seen.st_size, seen.st_mtime_ns)
        if state not in self._digests:
            self._digests[state] = file_digest(file)
        return self._digests[state]

    def _took_over(self, last: Event, job: Job, name: str) -> bool:
        """What a node without our cache made, from the store, verified; False if it is not to be had any more."""
        for path, digest in last.get("files", {}).items():
            assert self._store is not None
            target = job.out_dir / path
            target.parent.mkdir(parents=True, exist_ok=True)
            if not self._store.fetch_object(digest, target):
                self._report(f"{name}: {path} did not arrive in the store; the step runs again")
                return False
        return True


def _failure(name: str, event: Event) -> Exception:
    if event["failed"]:
        return StepFailed(event["message"], event["exit_code"], event["trace"], event["infrastructure"])
    return StageError(event["message"])
