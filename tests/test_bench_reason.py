"""The benchmark of Learning to Reason's reward still runs what it means to measure."""

from pathlib import Path

import pytest

pytestmark = pytest.mark.assets


def test_relevance_costs_the_benchmark_one_call_a_response(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parent / "benchmarks"))
    import bench_reason

    batch = bench_reason.ReasonedBatch(3)
    with bench_reason.veriscore.endpoint(0.0) as url:
        calls = {
            arm: batch.run(arm, url, 3)[2].calls for arm in ("fact", "fact_relevance")
        }
    assert calls["fact_relevance"] - calls["fact"] == 3
