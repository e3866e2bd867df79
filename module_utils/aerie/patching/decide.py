"""The state machine: compare what is on disk with what the series make of it, and decide what to do. Computes only."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Mapping, Sequence

from ansible.module_utils.aerie.distributions.installed import sha256
from ansible.module_utils.aerie.distributions.written import Memory, Written
from ansible.module_utils.aerie.patching import bytecode, fold, refusals
from ansible.module_utils.aerie.patching.states import (
    APPLIED,
    DRIFTED,
    MISSING,
    NOT_APPLIED,
    OK,
    OURS,
    PRISTINE,
    WOULD_APPLY,
    Change,
    FileState,
    PatchState,
)

if TYPE_CHECKING:
    from pathlib import Path

    from ansible.module_utils.aerie.patching.observe import Observation, ObservedFile
    from ansible.module_utils.aerie.shared.checks import Check


@dataclass(frozen=True)
class Goal:
    """What a run is to reach: ``rollback`` asks for the pristine files; ``restore`` overwrites drifted files."""

    rollback: bool = False
    restore: bool = False


@dataclass(frozen=True)
class Decision:
    """All that follows for one distribution.

    Attributes:
        observation: what the decision is about.
        files: the state of every file, by path.
        patches: the state of every patch, in the order of the series.
        refusals: why nothing may be written; with any, the attributes below are empty.
        changes: the files to write and to remove, in order.
        stale_bytecode: compiled copies that must go although their source is as it should be.
        memory_after: what is to be recorded when all changes are made.

    """

    observation: Observation
    files: tuple[FileState, ...]
    patches: tuple[PatchState, ...]
    refusals: tuple[Check, ...] = ()
    changes: tuple[Change, ...] = ()
    stale_bytecode: tuple[Path, ...] = ()
    memory_after: Memory = field(default_factory=Memory)


def decide(observation: Observation, goal: Goal) -> Decision:
    """Decide about one distribution."""
    pristine = {file.path: file.pristine for file in observation.files if file.pristine_known}
    unknown = {file.path for file in observation.files if not file.pristine_known}
    patches = [patch for series in observation.series for patch in series.patches]
    folded = fold.fold(patches, pristine, unknown)
    modules = observation.declared.modules
    desired = {**folded.files, **modules}
    files = tuple(_file_state(file, desired.get(file.path), observation.memory, goal) for file in observation.files)
    states = _patch_states(observation, folded.outcomes, files, goal)
    refused = [*_record_refusals(observation, goal), *_file_refusals(observation, files, goal)]
    refused += [] if goal.rollback else [refusals.misfit(state) for state in states if _is_misfit(state)]
    refused = refused or _bytecode_refusals(files)
    if refused:
        return Decision(observation, files, states, tuple(refused))
    record = observation.record.content
    record = observation.record.with_files(dict(modules)) if modules and not goal.rollback else record
    return Decision(
        observation,
        files,
        states,
        changes=_changes(observation, files, record, goal),
        stale_bytecode=_stale_bytecode(files),
        memory_after=_memory_after(observation, files, record),
    )


def _digest(content: bytes | None) -> str | None:
    return None if content is None else sha256(content)


def _file_state(file: ObservedFile, desired: bytes | None, memory: Memory, goal: Goal) -> FileState:
    target = file.pristine if goal.rollback else desired
    target_digest = _digest(target)
    known = {_digest(desired)}
    written = memory.files.get(file.path)
    if written is not None and written.pristine == file.pristine_digest:
        known.update(written.digests)
    if not file.pristine_known:
        state = MISSING if file.current is None else DRIFTED
    elif file.current_digest == target_digest:
        state = OK
    elif file.current_digest == file.pristine_digest:
        state = PRISTINE
    else:
        state = OURS if file.current_digest in known else DRIFTED
    return FileState(**vars(file), target=target, target_digest=target_digest, state=state)


def _patch_states(
    observation: Observation, outcomes: Sequence[fold.Outcome], files: Sequence[FileState], goal: Goal
) -> tuple[PatchState, ...]:
    by_path = {file.path: file for file in files}
    names = [series.name for series in observation.series for _ in series.patches]
    return tuple(
        PatchState(name, outcome.patch, _patch_state(outcome, by_path, goal), outcome.note)
        for name, outcome in zip(names, outcomes)
    )


def _patch_state(outcome: fold.Outcome, files: Mapping[str, FileState], goal: Goal) -> str:
    if outcome.state == fold.UNKNOWN:
        lost = [files[path] for path in outcome.patch.paths if path in files and not files[path].pristine_known]
        return MISSING if all(file.current is None for file in lost) else DRIFTED
    if outcome.state != fold.FITS:
        return outcome.state
    paths = [*outcome.patch.paths, *(grep.file for grep in outcome.patch.greps)]
    states = {files[path].state if path in files else OK for path in paths}
    if DRIFTED in states:
        return DRIFTED
    if goal.rollback:
        return NOT_APPLIED if states == {OK} else APPLIED
    return APPLIED if states == {OK} else WOULD_APPLY


def _is_misfit(state: PatchState) -> bool:
    obsolete = state.state == fold.OBSOLETE and not state.patch.keep_when_obsolete
    return obsolete or state.state in (fold.CONFLICTS, fold.MISSING)


def _record_refusals(observation: Observation, goal: Goal) -> list[Check]:
    """Series for another version, and files about which RECORD and a series disagree."""
    version = observation.distribution.version
    refused = []
    if not goal.rollback:
        unfit = [series for series in observation.series if series.version != version]
        refused += [refusals.other_version(series, version) for series in unfit]
    recorded, declared = observation.record.digests, observation.declared
    for path in (file.path for file in observation.files):
        if path in declared.modules and path in recorded:
            refused.append(refusals.occupied(path))
        elif path in declared.files and recorded.get(path) not in (None, declared.files[path]):
            refused.append(refusals.other_build(observation.name, path, recorded[path], declared.files[path]))
    return refused


def _file_refusals(observation: Observation, files: Sequence[FileState], goal: Goal) -> list[Check]:
    refused = []
    for file in files:
        if not file.pristine_known:
            refused.append(refusals.no_pristine(observation.name, file))
        elif file.state == DRIFTED and not goal.restore:
            refused.append(refusals.drift(observation.name, file, observation.series))
    return refused


def _in_order(files: Sequence[FileState]) -> list[tuple[FileState, bytes]]:
    """The files that are as they should be, with their bytes."""
    return [(file, file.target) for file in files if file.state == OK and file.target is not None]


def _bytecode_refusals(files: Sequence[FileState]) -> list[Check]:
    copies = [copy for file, _ in _in_order(files) for copy in file.compiled]
    return [refusals.unreadable_bytecode(copy.path) for copy in copies if copy.header is None]


def _stale_bytecode(files: Sequence[FileState]) -> tuple[Path, ...]:
    return tuple(
        copy.path for file, content in _in_order(files) for copy in file.compiled if bytecode.is_stale(copy, content)
    )


def _changes(observation: Observation, files: Sequence[FileState], record: bytes, goal: Goal) -> tuple[Change, ...]:
    site = observation.distribution.site_packages
    wrong = [Change(site, file.path, file.target) for file in files if file.state != OK]
    changes = [change for change in wrong if change.content is not None]
    changes += [change for change in wrong if change.content is None]
    if record != observation.record_content:
        # RECORD names a file of ours before it is there and after it is gone: uninstalling never misses one.
        change = Change(site, observation.distribution.record_path, record)
        changes = [*changes, change] if goal.rollback else [change, *changes]
    return tuple(changes)


def _memory_after(observation: Observation, files: Sequence[FileState], record: bytes) -> Memory:
    written = {
        file.path: Written(file.pristine_digest, (file.target_digest,))
        for file in files
        if file.target_digest != file.pristine_digest
    }
    pristine = observation.record.content
    written_record = Written(sha256(pristine), (sha256(record),)) if record != pristine else None
    return Memory(written, written_record, observation.distribution.version)
