"""resources: the unpruned network beside its budget."""

from __future__ import annotations

from stages.nets.config import BudgetConfig, NetworkConfig
from stages.tools.resource_table import resources


def test_resources_are_a_record_and_a_table():
    answer = resources(NetworkConfig(name="res15"), BudgetConfig(size_bytes="117KB", macs="15.58M"))
    assert answer.record == {
        "unpruned": {"size_bytes": 240438, "peak_bytes": 66150, "peak_bytes_imprecise": 44100, "macs": 116446590},
        "budget": {"size_bytes": 117000, "macs": 15580000},
    }
    assert answer.text.splitlines() == [
        "res15                      unpruned      budget  unpruned / budget",
        "size                      240,438 B   117,000 B               2.06",
        "peak memory                66,150 B           -                  -",
        "peak memory, imprecise     44,100 B           -                  -",
        "MACs                    116,446,590  15,580,000               7.47",
    ]
