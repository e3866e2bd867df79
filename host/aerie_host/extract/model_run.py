"""One run of the target model over the samples that are still to be done."""

from __future__ import annotations

import contextlib
import dataclasses
import time
from typing import TYPE_CHECKING

from aerie_host.extract import schedule
from aerie_host.extract.disk import require_disk
from aerie_host.extract.progress import SAY_EVERY_SECONDS, Progress, Watch, say
from aerie_host.report.summaries import Throughput
from aerie_host.shared.progress import progress_line

if TYPE_CHECKING:
    from aerie_host.data.samples import Sample
    from aerie_host.extract.engine import StatesSource
    from aerie_host.extract.job import ExtractionJob
    from aerie_host.folder.layout import Folder
    from aerie_host.folder.record import SampleRecord


@dataclasses.dataclass
class ModelRun:
    """The samples that one run extracted, and the time that it took."""

    records: list[SampleRecord] = dataclasses.field(default_factory=list)
    start_seconds: float = 0.0
    seconds: float = 0.0
    waited_seconds: float = 0.0
    throughput: Throughput = dataclasses.field(default_factory=Throughput)
    _said: float = 0.0

    def count(self, records: list[SampleRecord], progress: Progress) -> None:
        """Take in finished samples; log the progress now and then."""
        tokens = sum(record.length for record in records)
        self.records += records
        progress.add(len(records), tokens, sum(record.bytes for record in records))
        self.throughput.add(progress.extracting_seconds, tokens)
        state = progress.state
        if time.monotonic() - self._said > SAY_EVERY_SECONDS or state["samples"] == state["total"]:
            self._said = time.monotonic()
            say(progress_line(state))


def load_source(job: ExtractionJob, folder: Folder) -> StatesSource:
    """Load the model and start the writers."""
    from aerie_host.extract.engine import StatesSource, VllmEngine
    from aerie_host.extract.generator import EngineLimits, make_generator
    from aerie_host.extract.writers import warm_up

    warm_up()
    generator = make_generator(
        job.model,
        job.layers,
        EngineLimits(job.max_length, job.token_budget),
        gpu_memory_utilization=job.gpu_memory_utilization,
        tensor_parallel_size=job.tensor_parallel_size,
        trust_remote_code=job.trust_remote_code,
    )
    return StatesSource(VllmEngine(generator), folder, job.layers, job.writers)


def run_model(job: ExtractionJob, folder: Folder, todo: list[Sample], watch: Watch) -> ModelRun:
    """Load the model and run it over ``todo``. The writers see to files and journal; here the samples are counted."""
    done, progress, watchdog = ModelRun(), watch.progress, watch.watchdog
    progress.phase("loading the model")
    began = time.monotonic()
    watchdog.expect("loading the model", job.start_timeout)
    source = load_source(job, folder)
    progress.waited_seconds = lambda: source.waited_seconds
    try:
        done.start_seconds = time.monotonic() - began
        say(f"model loaded in {done.start_seconds:.1f} s")
        progress.phase("extracting")
        watchdog.expect("one step", job.batch_timeout)
        with contextlib.closing(source.extract(schedule.order(todo, job.token_budget))) as finished:
            for records in finished:
                watchdog.expect("one step", job.batch_timeout)
                if records:
                    done.count(records, progress)
                    require_disk(job, [], "while running")
        done.seconds = progress.extracting_seconds
    except BaseException as error:
        # Logged now: should the engine not end, the exception would be lost.
        say(f"ending the engine, because of {type(error).__name__}: {error}")
        raise
    finally:
        watchdog.expect("ending the engine", job.batch_timeout)
        source.close()
        watchdog.rest()
    done.waited_seconds = source.waited_seconds
    return done
