"""The one place that writes: it makes all changes to the distributions of an environment, or none.

The steps, in order: remember the pristine files, save the digests to come, commit the files, settle what is left.
A failure before the last file is in place undoes all steps.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Mapping, Sequence

from ansible.module_utils.aerie.distributions import written
from ansible.module_utils.aerie.distributions.written import Memories, Memory, Written
from ansible.module_utils.aerie.patching import commit, pristine_copies
from ansible.module_utils.aerie.shared.durable import read_or_none, write_durably

if TYPE_CHECKING:
    from pathlib import Path

    from ansible.module_utils.aerie.patching.decide import Decision


def carry_out(root: Path, recorded: Memories, decisions: Sequence[Decision], missing: Sequence[str]) -> None:
    """Make every change of ``decisions``, and forget the distributions that are ``missing``. Call with the hold taken.

    Raises ``OSError`` when nothing was changed, ``NotPutBackError`` when some files are new and some old.
    """
    before = recorded.by_distribution
    decided = {name: Memory() for name in missing}
    decided.update({decision.observation.name: decision.memory_after for decision in decisions})
    changes = [change for decision in decisions for change in decision.changes]
    pristine_copies.folder_of(root).mkdir(parents=True, exist_ok=True)
    _clear(root, {decision.observation.distribution.site_packages for decision in decisions})
    try:
        for decision in decisions:
            _remember(root, decision)
        if changes:
            # The digests to come are on record before any file has them: a crash leaves nothing unknown.
            _save(root, {**before, **{name: _both(recorded.of(name), memory) for name, memory in decided.items()}})
            commit.commit(root, changes)
    except commit.NotPutBackError:
        raise  # with the digests of both on record, so that the next run knows all files as ours
    except BaseException:
        with contextlib.suppress(OSError):
            _settle_memory(root, before)
        raise
    for decision in decisions:
        _settle_files(decision)
    _settle_memory(root, {**before, **decided})


def tidy(root: Path, recorded: Memories) -> None:
    """Remove the leftovers of a run that was killed before it recorded anything. Call with the hold taken."""
    if written.folder_of(root).is_dir():
        _clear(root, set())
        _settle_memory(root, recorded.by_distribution)


def _clear(root: Path, sites: set[Path]) -> None:
    """Remove the unfinished files of a killed run."""
    commit.clear_stages(root, sites)
    for folder in (written.folder_of(root), pristine_copies.folder_of(root)):
        # Files that were never renamed into place; earlier versions called them `.tmp`.
        for leftover in [*folder.glob(".*.partial"), *folder.glob(".*.tmp")]:
            leftover.unlink()


def _remember(root: Path, decision: Decision) -> None:
    for file in decision.files:
        if file.pristine is not None and file.target_digest != file.pristine_digest:
            pristine_copies.keep(root, file.pristine)
    if decision.memory_after.record:
        pristine_copies.keep(root, decision.observation.record.content)


def _both(before: Memory, after: Memory) -> Memory:
    """A memory in which the digests of both count as ours."""
    files = {**before.files}
    for path, later in after.files.items():
        files[path] = _both_written(before.files.get(path), later)
    record = _both_written(before.record, after.record) if after.record else before.record
    return Memory(files, record, after.version)


def _both_written(before: Written | None, after: Written) -> Written:
    same = before is not None and before.pristine == after.pristine
    digests = [*before.digests, *after.digests] if same and before else after.digests
    return Written(after.pristine, tuple(dict.fromkeys(digests)))


def _save(root: Path, memories: Mapping[str, Memory]) -> None:
    content = written.content_of(memories)
    if read_or_none(written.file_of(root)) != content:
        write_durably(written.file_of(root), content)


def _settle_files(decision: Decision) -> None:
    """Remove stale bytecode, and the folders that only held files of ours."""
    for copy in decision.stale_bytecode:
        copy.unlink(missing_ok=True)
    for file in decision.files:
        if file.target is None:
            commit.remove_empty_parents(decision.observation.distribution.site_packages, file.path)


def _settle_memory(root: Path, memories: Mapping[str, Memory]) -> None:
    """Record ``memories`` and drop the copies that none of them needs; leave nothing where nothing is patched."""
    if any(not memory.is_empty for memory in memories.values()):
        _save(root, memories)
        pristine_copies.prune(root, {digest for memory in memories.values() for digest in memory.pristine_digests})
        return
    written.file_of(root).unlink(missing_ok=True)
    if pristine_copies.folder_of(root).is_dir():
        pristine_copies.prune(root, set())
        pristine_copies.folder_of(root).rmdir()
        written.folder_of(root).rmdir()
