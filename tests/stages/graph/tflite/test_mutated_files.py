"""A sample of the damaged and hostile files; all 20,000: python -m tests.benchmarks.mutated_files"""

from __future__ import annotations

from tests.benchmarks.mutated_files import LIMIT_BYTES, LIMIT_S, base_models, mutated, summarise


def test_mutated_files_are_read_or_refused_within_a_second_and_a_gigabyte() -> None:
    found = summarise(600)
    assert found.files == 600 and found.read + found.refused == 600
    assert found.read > 60 and found.refused > 300 and found.inspected > 20  # both ways are really tried
    assert found.largest_s < LIMIT_S and found.largest_rss_bytes < LIMIT_BYTES


def test_the_same_number_gives_the_same_file() -> None:
    models = base_models()
    assert mutated(17, models) == mutated(17, models) != mutated(18, models)
