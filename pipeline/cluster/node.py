"""What a node does with an order: the step in a process of its own, as the local executor has it; events come back.

A node that sees the cache of whoever asks works in it. Another one keeps a cache of its own: what a step reads comes
from the shared store, every byte verified, and what it made goes there, checkpoints too. Either way the node must have
the code and the tools that the step's key stands for.
"""

from __future__ import annotations

import contextlib
import fcntl
import importlib
import os
import platform
import queue
import shutil
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline.cluster.likeness import differences_here
from pipeline.cluster.order import Files, Order, digests_below, with_paths
from pipeline.digest import value_digest
from pipeline.engine.executor import LocalExecutor, OnEvent, StepFailed
from pipeline.engine.worker import Job
from pipeline.errors import PipelineError, StageError
from pipeline.store.shared import SharedStore

Event = Mapping[str, Any]
PLACED, UNSEEN, UNLIKE, DONE, ERROR = "placed", "unseen", "unlike", "done", "error"
THREAD_VARIABLES = ("OMP_", "MKL_", "OPENBLAS_", "KMP_", "GOMP_")
OFFERS = "PIPELINE_NODE_OFFERS"  # environment of a node that a board worker started
_EVERY_S = 0.2  # events are sent together
_MOST_LOG_BYTES = 1 << 20
_INPUTS_KEPT_S = 7 * 86400.0
_local = LocalExecutor()
_devices = ""  # what the fork server may see


def perform(order: Order) -> Iterator[list[Event]]:
    """A Ray task: lists of events, the last one says how it ended."""
    node = str(importlib.import_module("ray").get_runtime_context().get_node_id())
    where = {"node": node, "host": platform.node()}
    yield [{"event": PLACED}]
    _take_over(order)
    job = Job.model_validate_json(order.job)
    shared = _shares_cache(order)
    if not shared and order.inputs is None:
        yield [{"event": UNSEEN}]
        return
    if not job.root.is_dir():
        job = job.model_copy(update={"root": _home()})
    if unlike := differences_here(order.made_of, job):
        yield [{"event": UNLIKE, "what": unlike, **where}]
        return
    events: queue.SimpleQueue[Event] = queue.SimpleQueue()

    def work() -> None:
        try:
            run = _in_cache if shared else _away
            events.put({"event": DONE, **run(order, job, node, events.put)})
        except PipelineError as error:
            events.put(_told(error))
        except BaseException as error:  # noqa: BLE001 - the other end would wait for ever
            events.put(_told(StageError(f"{order.name}: on {platform.node()}: {type(error).__name__}: {error}")))

    threading.Thread(target=work, daemon=True).start()
    yield from _together(events)


def _together(events: queue.SimpleQueue[Event]) -> Iterator[list[Event]]:
    sent = 0.0
    while True:
        batch = [events.get()]
        while batch[-1]["event"] not in (DONE, ERROR) and (wait_s := sent + _EVERY_S - time.monotonic()) > 0:
            try:
                batch.append(events.get(timeout=wait_s))
            except queue.Empty:
                break
        sent = time.monotonic()
        yield batch
        if batch[-1]["event"] in (DONE, ERROR):
            return


def _take_over(order: Order) -> None:
    """Folder and threads as where the command runs; a fork server that saw other devices is of no use."""
    global _devices
    if order.folder.is_dir():
        os.chdir(order.folder)
    for name in [name for name in os.environ if name.startswith(THREAD_VARIABLES)]:
        del os.environ[name]
    os.environ |= dict(order.environment)
    home = str(_home())
    if home not in os.environ.get("PYTHONPATH", "").split(os.pathsep):
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [home, os.environ.get("PYTHONPATH", "")]))
    devices = str(sorted((k, v) for k, v in os.environ.items() if k.endswith("_VISIBLE_DEVICES")))
    if devices != _devices:
        _local.stop()
        _devices = devices


def _home() -> Path:
    """Where our packages are."""
    return Path(__file__).resolve().parents[2]


def _own_cache() -> Path | None:
    named = os.environ.get("PIPELINE_CACHE")
    return Path(named).resolve() if named else None


def _shares_cache(order: Order) -> bool:
    return _own_cache() in (None, order.cache) and order.sign.is_file()


def _executed(order: Order, job: Job, log: Path, node: str, on_event: OnEvent) -> dict[str, str]:
    """By the local executor, under a lock that the step's process inherits: one left by a lost driver goes first."""

    def progress(event: Event) -> None:
        if event["event"] not in (DONE, ERROR):
            on_event(event)

    locks = job.out_dir.parent.parent / "locks"
    locks.mkdir(parents=True, exist_ok=True)
    with (locks / f"{job.checkpoint_dir.name}.node").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            return _local.run(order.name, job, lock=lock.fileno(), log=log, on_event=progress)
        finally:
            with contextlib.suppress(OSError), log.open("a") as file:
                file.write(f"[ran on {platform.node()}, node {node[:12]}{os.environ.get(OFFERS, '')}]\n")


def _in_cache(order: Order, job: Job, node: str, on_event: OnEvent) -> dict[str, Any]:
    return {"outputs": _executed(order, job, order.log, node, on_event)}


def _away(order: Order, job: Job, node: str, on_event: OnEvent) -> dict[str, Any]:
    """In a cache of this node's own."""
    assert order.store is not None and order.inputs is not None
    root = (_own_cache() or Path.home() / ".cache" / "tinyml-pipeline") / "away"
    key, notes = job.checkpoint_dir.name, list[str]()
    store = SharedStore.at(order.store, notes.append)
    out_dir, checkpoints = root / "tmp" / f"{key}.{os.getpid()}", root / "checkpoints" / key
    shutil.rmtree(out_dir, ignore_errors=True)
    out_dir.mkdir(parents=True)
    log = root / "logs" / f"{key}.{os.getpid()}.log"
    inputs = _Inputs(root / "inputs", store)
    places = {path: inputs.at(path, files) for path, files in order.inputs.items()}
    artifacts = with_paths(job, lambda path: places[str(path)])
    job = job.model_copy(update={"artifacts": artifacts, "out_dir": out_dir, "checkpoint_dir": checkpoints})
    if not checkpoints.is_dir():
        store.fetch_checkpoint(key, checkpoints)

    def advanced(event: Event) -> None:
        on_event(event)
        store.checkpoint_advanced(key, checkpoints)

    try:
        outputs = _executed(order, job, log, node, advanced)
        files = digests_below(out_dir)
        with store.working():
            for name, digest in files.items():
                store.send_object(out_dir / name, digest)
        store.drop_checkpoint(key)
        shutil.rmtree(checkpoints, ignore_errors=True)
        return {"outputs": outputs, "files": dict(files)}
    finally:
        on_event({"event": "log", "text": _tail(log)})
        for note in notes:
            on_event({"event": "note", "text": note})
        shutil.rmtree(out_dir, ignore_errors=True)
        log.unlink(missing_ok=True)
        store.release()


@dataclass
class _Inputs:
    """Artifacts from the store, kept for a while under the digest of what they consist of."""

    folder: Path
    store: SharedStore

    def at(self, path: str, files: Files) -> Path:
        """Where the artifact lies now, verified; it keeps its name, which tells its kind."""
        place = self.folder / value_digest(dict(files))
        artifact = place / Path(path).name
        if not artifact.exists() or digests_below(artifact) != dict(files):
            self._forget_old()
            shutil.rmtree(place, ignore_errors=True)
            fresh = place.with_name(f"{place.name}.{os.getpid()}.{threading.get_ident()}")
            for name, digest in files.items():
                target = fresh / Path(path).name / name if name else fresh / Path(path).name
                target.parent.mkdir(parents=True, exist_ok=True)
                if not self.store.fetch_object(digest, target):
                    shutil.rmtree(fresh, ignore_errors=True)
                    raise StageError(f"{target.name}: object {digest[:12]} is not in the store; run it again")
            with contextlib.suppress(OSError):  # another step was faster
                fresh.rename(place)
            shutil.rmtree(fresh, ignore_errors=True)
        os.utime(place)
        return artifact

    def _forget_old(self) -> None:
        for old in self.folder.glob("*"):
            with contextlib.suppress(OSError):
                if time.time() - old.stat().st_mtime > _INPUTS_KEPT_S:
                    shutil.rmtree(old, ignore_errors=True)


def _tail(log: Path) -> str:
    try:
        return log.read_bytes()[-_MOST_LOG_BYTES:].decode(errors="replace")
    except OSError:
        return ""


def _told(error: PipelineError) -> Event:
    trace = error.trace if isinstance(error, StepFailed) else None
    bench = error.infrastructure if isinstance(error, StepFailed) else False
    told = {"event": ERROR, "message": str(error), "exit_code": error.exit_code}
    return {**told, "trace": trace, "infrastructure": bench, "failed": isinstance(error, StepFailed)}
