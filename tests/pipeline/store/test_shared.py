"""Entries through a store that two machines share: whole, verified, rebuilt when spoilt, swept when nobody works."""

from __future__ import annotations

import concurrent.futures
import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pipeline.engine.cache import Cache
from pipeline.errors import ConfigError
from pipeline.stage import Checkpoint
from pipeline.store.bucket import Bucket, StoreError
from tests.pipeline.conftest import ToyProject, make_toy
from tests.pipeline.store.conftest import (
    FaultProxy,
    Lab,
    free_port,
    make_bucket,
    make_entry,
    set_s3_environment,
    set_sftp_environment,
)

KEY = "0123abcd" * 8
FILES = {"a.bin": b"weights" * 1000, "below/b.txt": b"notes", "empty": b""}


def found(lab: Lab, machine: str, key: str = KEY) -> dict[str, bytes] | None:
    entry = lab.machine(machine).lookup("prune", key)
    return None if entry is None else {name: (entry.folder / name).read_bytes() for name in entry.files}


def test_what_one_machine_made_another_one_finds(lab: Lab) -> None:
    assert found(lab, "second") is None
    make_entry(lab.machine("first"), "prune", KEY, FILES)
    assert found(lab, "second") == FILES
    assert lab.told == []


def test_a_spoilt_object_is_never_used_and_sent_again_by_whoever_makes_it(lab: Lab) -> None:
    make_entry(lab.machine("first"), "prune", KEY, FILES)
    store = lab.store()
    [large] = [one.name for one in store.bucket.names("objects") if one.size_bytes == 7000]
    store.bucket.write(large, b"veights" * 1000)
    assert found(lab, "second") is None
    assert any("a.bin is missing or damaged; the entry is removed and the step runs again" in text for text in lab.told)
    make_entry(lab.machine("second"), "prune", KEY, FILES)
    assert found(lab, "third") == FILES


@pytest.mark.parametrize("spoil", ["half", "flipped", "hostile", "lost object"])
def test_a_torn_or_hostile_entry_counts_as_none(lab: Lab, spoil: str) -> None:
    make_entry(lab.machine("first"), "prune", KEY, FILES)
    bucket, name = lab.store().bucket, f"entries/prune/{KEY}.json"
    text = bucket.read(name) or b""
    if spoil == "half":
        bucket.write(name, text[: len(text) // 2])
    elif spoil == "flipped":
        bucket.write(name, text[:-3] + bytes([text[-3] ^ 1]) + text[-2:])
    elif spoil == "hostile":
        from pipeline.store.manifest import sealed_text

        files = {"../../../escaped": "0" * 64}
        bucket.write(name, sealed_text({"files": files, "outputs": {}, "ingredients": {}})[0].encode())
    else:
        bucket.remove(next(iter(bucket.names("objects"))).name)
    assert found(lab, "second") is None
    assert len(lab.told) == 1 and KEY in lab.told[0] and "the step runs again" in lab.told[0]
    assert not (lab.root / "escaped").exists()


def test_two_writers_of_one_key_leave_one_valid_entry(lab: Lab) -> None:
    """Trainings on two machines differ in their bytes: either result is right, a mixture is not."""
    versions = [{"a.bin": bytes([number]) * 5000, "b.bin": bytes([number])} for number in range(4)]
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda one: make_entry(lab.machine(f"m{one}"), "prune", KEY, versions[one]), range(4)))
    assert found(lab, "reader") in versions
    assert lab.told == []


def test_a_checkpoint_moves_to_another_machine(lab: Lab) -> None:
    first, second = lab.machine("first"), lab.machine("second")
    for text in ("epoch 1", "epoch 2"):
        Checkpoint(first.checkpoint_folder(KEY)).save(lambda path, text=text: path.write_text(text))
        lab.store().push_checkpoint(KEY, first.checkpoint_folder(KEY))
    assert lab.store().status().checkpoints == 1
    second.take_up_checkpoint(KEY)
    saved = Checkpoint(second.checkpoint_folder(KEY)).saved()
    assert saved is not None and saved.read_text() == "epoch 2"


def test_nothing_is_swept_while_somebody_works(tmp_path: Path) -> None:
    lab = Lab(f"file://{tmp_path}/lab", tmp_path)
    worker = lab.store()
    machine = lab.machine("first")
    make_entry(machine, "prune", KEY, FILES)
    assert machine.remote is not None
    machine.remote.release()
    worker.bucket.write("objects/ff/orphan", b"left by a killed writer")
    with worker.working():
        with pytest.raises(StoreError, match=f"in use by .*-{os.getpid()}-.*; sweep it when they have ended"):
            lab.store().sweep(0.0)
        assert worker.bucket.size_bytes("objects/ff/orphan") == 23
    worker.release()
    swept = lab.store().sweep(3600.0)
    assert (swept.removed, swept.freed_bytes, swept.kept_bytes) == (0, 23, 7005)
    assert found(lab, "second") == FILES
    assert lab.store().sweep(-1.0).removed == 1
    assert lab.store().status().objects == 0


def test_a_lease_of_a_killed_run_runs_out_and_nobody_begins_during_a_sweep(tmp_path: Path) -> None:
    lab, now = Lab(f"file://{tmp_path}/lab", tmp_path), [time.time()]
    killed, other = lab.store(), lab.store()
    killed._clock = other._clock = lambda: now[0]
    with killed.working():
        pass
    now[0] += 4000
    other.sweep(1e9)
    assert other.status().leases == ()
    other.bucket.write("sweeping.json", b'{"who": "gc", "until": %d}' % (now[0] + 100))
    with pytest.raises(StoreError, match="is being swept just now"), lab.store().working():
        pass
    with pytest.raises(StoreError, match="gc is sweeping it already"):
        other.sweep(1e9)


def test_a_store_that_does_not_answer_costs_a_sentence_not_the_run(tmp_path: Path) -> None:
    (tmp_path / "lab").write_text("a file where the folder should be")
    lab = Lab(f"file://{tmp_path}/lab", tmp_path)
    machine = lab.machine("first")
    make_entry(machine, "prune", KEY, FILES)
    make_entry(machine, "prune", KEY[::-1], FILES)
    assert len(lab.told) == 1, "once, then it is left alone for a while"
    assert "cannot" in lab.told[0] and "goes on with the local cache alone" in lab.told[0]
    assert machine.lookup("prune", KEY) is not None


@pytest.mark.parametrize(
    ("url", "sentence"),
    [
        ("sftp://me:hunter2@host/x", "holds a password, needed a URL without"),
        ("gopher://host/x", "cannot be opened|install"),
    ],
)
def test_an_address_that_will_not_do_is_a_mistake_of_usage(url: str, sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence) as told:
        Bucket(url)
    assert "hunter2" not in str(told.value)


def test_no_credential_gets_into_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "verysecretverysecret")
    bucket = Bucket(f"file://{tmp_path}", sleep=lambda _: None)

    def refused() -> None:
        raise OSError("signature of verysecretverysecret refused")

    with pytest.raises(StoreError, match=r"cannot read entries/x \(OSError: signature of … refused\); check") as told:
        bucket._tried("read", "entries/x", refused)
    assert told.value.__cause__ is None


def test_a_project_with_a_store_serves_another_one(tmp_path: Path) -> None:
    first, second = (make_toy(tmp_path / name) for name in ("first", "second"))
    for toy in (first, second):
        toy.environment["PIPELINE_STORE"] = f"file://{tmp_path}/lab"
    first.run("run", "bread")
    second.run("run", "bread")
    assert (sorted(first.executed()), second.executed()) == (["bake-kiln", "bake-stove", "grow", "mill", "sell"], [])
    assert first.artifacts() == second.artifacts()
    status = first.run("store", "status").stdout
    assert "entries" in status and "nobody" in status
    assert "0 entries sent" in first.run("push").stdout
    third = make_toy(tmp_path / "third")
    third.environment["PIPELINE_STORE"] = f"file://{tmp_path}/lab"
    assert third.run("pull", "bread").stdout == "5 of 5 steps are in the local cache now\n"
    assert "removed 0 entries" in first.run("store", "gc").stdout


def test_a_store_that_is_not_named_is_asked_for(toy: ToyProject) -> None:
    assert "pipeline.yaml: store: missing, needed a URL" in toy.run("store", "status", check=2).stderr


def exercised(lab: Lab, operations: int, rng: random.Random) -> dict[str, int]:
    """Write and read entries at random; every one that is read must be exactly what was written."""
    counts = {"written": 0, "read": 0, "absent": 0}
    written: dict[str, dict[str, bytes]] = {}
    store = lab.store()  # one for all: each would load botocore's tables again
    for number in range(operations):
        machine = Cache(lab.root / f"m{number}", lab.told.append, store)
        if not written or rng.random() < 0.5:
            key = rng.randbytes(32).hex()
            written[key] = {"a.bin": rng.randbytes(rng.randrange(1, 20000)), "b.txt": rng.randbytes(10)}
            make_entry(machine, "prune", key, written[key])
            counts["written"] += 1
        else:
            key = rng.choice(sorted(written))
            entry = machine.lookup("prune", key)
            if entry is None:
                counts["absent"] += 1
                continue
            assert {name: (entry.folder / name).read_bytes() for name in entry.files} == written[key]
            counts["read"] += 1
    return counts


def test_faults_on_the_way_spoil_nothing(s3_port: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    proxy = FaultProxy(s3_port, 0.2, random.Random(24))
    make_env = f"http://127.0.0.1:{s3_port}"
    set_s3_environment(monkeypatch.setenv, make_env)
    make_bucket(make_env, "faulty")
    with proxy.serving() as endpoint:
        monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
        lab = Lab("s3://faulty/lab", tmp_path)
        counts = exercised(lab, 24, random.Random(1))
    assert counts["written"] + counts["read"] + counts["absent"] == 24
    assert counts["read"] > counts["absent"], counts
    assert len(proxy.told) == 5, "every kind of fault was met"
    assert not any("verysecret" in text for text in lab.told)


def test_a_line_that_is_cut_is_opened_again(
    sftp_port: tuple[int, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tests.pipeline.store.sftp_server import LineProxy

    port, home = sftp_port
    set_sftp_environment(monkeypatch, home)
    proxy = LineProxy(port, 0.04, random.Random(24))
    with proxy.serving() as spoilt:
        lab = Lab(f"sftp://lab@127.0.0.1:{spoilt}{tmp_path}/lab", tmp_path)
        counts = exercised(lab, 24, random.Random(1))
    assert counts["written"] + counts["read"] + counts["absent"] == 24
    assert counts["read"] > counts["absent"], (counts, lab.told)
    assert len(proxy.told) == 3, "every kind of fault was met"


def test_an_sftp_host_that_does_not_answer_costs_a_sentence_not_the_run(tmp_path: Path) -> None:
    pytest.importorskip("paramiko")
    lab = Lab(f"sftp://lab@127.0.0.1:{free_port()}/lab", tmp_path)
    make_entry(lab.machine("first"), "prune", KEY, FILES)
    assert found(lab, "first") == FILES
    assert f"cannot read entries/prune/{KEY}.json (" in lab.told[0]
    assert "check the address, the network and your rights" in lab.told[0]


@pytest.mark.parametrize(("url", "package"), [("s3://bucket/lab", "s3fs"), ("sftp://host/lab", "paramiko")])
def test_without_the_back_end_the_extra_is_named(url: str, package: str) -> None:
    """In a process of its own: fsspec remembers what it has imported."""
    program = (
        f"import sys; sys.modules[{package!r}] = None\n"
        f"from pipeline.store.bucket import Bucket\n"
        f"from pipeline.errors import ConfigError\n"
        f"try:\n    Bucket({url!r})\nexcept ConfigError as error:\n    sys.exit(str(error))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert package in done.stderr and "pip install 'tinyml-pipeline[store]'" in done.stderr
