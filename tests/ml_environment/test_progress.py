"""What an extraction says of itself while it runs."""

from __future__ import annotations

import json

import pytest
from prometheus_client.parser import text_string_to_metric_families

from aerie_host.shared.refusal import Refusal
from tests.refusals import refused, usage_refused


def test_an_extraction_writes_metrics_that_prometheus_reads(extraction, tmp_path):
    file = tmp_path / "metrics" / "aerie.prom"
    file.parent.mkdir()
    extraction.run(prometheus_file=str(file), progress=str(tmp_path / "progress.json"))
    found = {family.name: family for family in text_string_to_metric_families(file.read_text())}
    values = {name: family.samples[0].value for name, family in found.items() if len(family.samples) == 1}
    assert values["aerie_extraction_samples"] == values["aerie_extraction_samples_wanted"] == 7
    assert values["aerie_extraction_tokens"] == values["aerie_extraction_tokens_wanted"] > 0
    assert values["aerie_extraction_written_bytes"] == sum(p.stat().st_size for p in extraction.folder.training_files())
    assert values["aerie_extraction_tokens_per_second"] <= values["aerie_extraction_ceiling_tokens_per_second"]
    phases = {sample.labels["phase"]: sample.value for sample in found["aerie_extraction_phase"].samples}
    assert [name for name, value in phases.items() if value] == ["finished"]
    assert {family.type for family in found.values()} == {"gauge"}
    # Nothing is left beside it that the collector could read half-written.
    assert [path.name for path in file.parent.iterdir()] == ["aerie.prom"]
    lines = (tmp_path / "progress.jsonl").read_text().splitlines()
    assert json.loads(lines[-1])["phase"] == "finished"


def test_a_job_that_fails_says_so_in_its_progress(extraction, tmp_path):
    def broken(job):
        raise Refusal("model", "no model")

    extraction.engine = broken
    with refused(match="no model"):
        extraction.run(progress=str(tmp_path / "progress.json"))
    assert json.loads((tmp_path / "progress.json").read_text())["phase"] == "failed"


@pytest.mark.parametrize("name", ["aerie.prom", "/tmp/aerie.txt"])
def test_a_metrics_file_that_no_collector_would_read_is_refused(extraction, name):
    with usage_refused(match=r"wanted an absolute path that ends in \.prom"):
        extraction.run(check=True, prometheus_file=name)
