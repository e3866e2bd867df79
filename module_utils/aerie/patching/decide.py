"""The state machine: what is on disk, what should be, and what therefore has to happen. Writes nothing."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ansible.module_utils.aerie.distributions import installed
from ansible.module_utils.aerie.distributions.installed import read_or_none
from ansible.module_utils.aerie.distributions.written import Memory, Written
from ansible.module_utils.aerie.patching import diff, fold, refusals
from ansible.module_utils.aerie.patching.bytecode import stale_copies
from ansible.module_utils.aerie.patching.commit import Change
from ansible.module_utils.aerie.patching.refusals import Problem

if TYPE_CHECKING:
    from pathlib import Path

    from ansible.module_utils.aerie.patching.pristine_copies import Store
    from ansible.module_utils.aerie.patching.series import Series, SeriesPatch

OK, PRISTINE, OURS, DRIFTED, MISSING = "ok", "pristine", "written before", "drifted", "missing target"


@dataclass
class FileState:
    """One file of a series. Digests and bytes are ``None`` where the file is not to exist."""

    path: str
    pristine_digest: str | None
    pristine: bytes | None
    # False when no bytes with the pristine digest can be had: then nothing can be computed.
    pristine_known: bool
    current: bytes | None
    target: bytes | None = None
    state: str = OK

    @property
    def current_digest(self) -> str | None:
        """The digest of what is on disk."""
        return None if self.current is None else installed.sha256(self.current)

    @property
    def target_digest(self) -> str | None:
        """The digest of what should be on disk."""
        return None if self.target is None else installed.sha256(self.target)


@dataclass
class PatchState:
    """The state of one patch."""

    series: str
    patch: SeriesPatch
    state: str
    note: str = ""


@dataclass
class DistPlan:
    """All that is to be known and done about one distribution."""

    name: str
    series: list[Series]
    distribution: installed.Distribution | None = None
    files: list[FileState] = field(default_factory=list)
    patches: list[PatchState] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    changes: list[Change] = field(default_factory=list)
    stale_bytecode: list[Path] = field(default_factory=list)
    record_before: bytes = b""
    record_pristine: bytes = b""
    memory_after: Memory = field(default_factory=Memory)


def make(root: Path, name: str, series: list[Series], store: Store, absent: bool, restore: bool) -> DistPlan:
    """Plan one distribution.

    ``absent`` asks for the pristine files; ``restore`` allows drifted files to be overwritten.
    Raises ``UnfitEnvironmentError`` where the environment cannot be judged at all.
    """
    plan = DistPlan(name, series, installed.find(root, name))
    if plan.distribution is None:
        return plan
    memory = store.memory(name)
    if not absent:
        plan.problems += refusals.other_versions(plan)
    record = _read_record(plan, memory, store)
    fits = [one for one in series if one.version == plan.distribution.version]
    # Rolling back another version touches only what is recorded; a series for it says nothing about it.
    _read_files(plan, record, memory, store, fits if absent else series)
    pristine = {file.path: file.pristine for file in plan.files if file.pristine_known}
    after, outcomes = _fold(plan, pristine)
    modules = {module.target: module.content for one in fits for module in one.modules}
    after.update(modules)
    _classify(plan, after, memory, absent, restore)
    _set_patch_states(plan, outcomes, absent)
    if plan.problems:
        return plan
    _plan_changes(plan, {} if absent else modules, absent)
    return plan


def _read_record(plan: DistPlan, memory: Memory, store: Store) -> installed.Record:
    """RECORD as the wheel delivered it: the kept copy if what is there is ours, else without our lines."""
    assert plan.distribution is not None  # noqa: S101  (for the type checker: make() returned before)
    content = read_or_none(plan.distribution.site_packages / plan.distribution.record_path)
    if content is None:
        raise installed.UnfitEnvironmentError(
            f"{plan.name} has no RECORD in {plan.distribution.dist_info}, so what the wheel delivered is unknown",
            f"reinstall {plan.name} from a wheel; an editable install cannot be patched",
        )
    plan.record_before = content
    if memory.record and memory.record.pristine and installed.sha256(content) in memory.record.digests:
        kept = store.kept(memory.record.pristine)
        if kept is not None:
            plan.record_pristine = kept
            return installed.Record.parse(kept)
    record = installed.Record.parse(content)
    ours: dict[str, set[str | None]] = {
        path: set(written.digests) for path, written in memory.files.items() if written.pristine is None
    }
    for one in plan.series:
        for module in one.modules:
            ours.setdefault(module.target, set()).add(installed.sha256(module.content))
    added = {path for path, digests in ours.items() if record.digests.get(path) in digests}
    record = record.without(added) if added else record
    plan.record_pristine = record.content
    return record


def _read_files(plan: DistPlan, record: installed.Record, memory: Memory, store: Store, series: list[Series]) -> None:
    assert plan.distribution is not None  # noqa: S101
    site = plan.distribution.site_packages
    version = plan.distribution.version
    declared = {path: (one, digest) for one in series for path, digest in one.files.items()}
    added = {module.target for one in series if one.version == version for module in one.modules}
    for path in sorted({*declared, *added, *memory.files}):
        current = read_or_none(site / path)
        digest = record.digests.get(path)
        if path in added and path in record.digests:
            plan.problems.append(
                Problem(
                    f"file {path}",
                    "the wheel delivers a file of this name itself",
                    "no such file, since the series adds it",
                    "give the module of the series another name",
                    path,
                )
            )
        elif path in declared and declared[path][0].version == version:
            digest = _declared_digest(plan, path, declared[path][1], record)
        elif path in memory.files and path not in added and path not in record.digests:
            # Another release may lack the file; then the wheel delivers none.
            digest = memory.files[path].pristine if memory.version == version else None
        pristine = None if digest is None else _pristine_bytes(plan, path, digest, current, store)
        plan.files.append(FileState(path, digest, pristine, digest is None or pristine is not None, current))


def _declared_digest(plan: DistPlan, path: str, declared: str, record: installed.Record) -> str:
    recorded = record.digests.get(path)
    if path in record.digests and recorded not in (None, declared):
        plan.problems.append(
            Problem(
                f"file {path}",
                f"RECORD says sha256 {recorded}",
                f"sha256 {declared}, the file of the release that the series was made for",
                f"reinstall {plan.name} from the released wheel; this is another build or an edited RECORD",
                path,
            )
        )
    return recorded or declared


def _pristine_bytes(plan: DistPlan, path: str, digest: str, current: bytes | None, store: Store) -> bytes | None:
    if current is not None and installed.sha256(current) == digest:
        return current
    kept = store.kept(digest)
    if kept is not None or current is None:
        return kept
    # No copy, as after a patch by hand: take our own edits back and believe the result by its digest.
    edits = [
        one for series in plan.series for patch in series.patches for one in patch.parsed.files if one.path == path
    ]
    recovered = diff.recover(current, edits)
    return recovered if installed.sha256(recovered) == digest else None


def _fold(plan: DistPlan, pristine: dict[str, bytes | None]) -> tuple[dict[str, bytes | None], list[PatchState]]:
    unknown = {file.path: file for file in plan.files if not file.pristine_known}
    states = []
    now = pristine
    for series in plan.series:
        for patch in series.patches:
            lost = [path for path in patch.paths if path in unknown]
            if lost:
                gone = all(unknown[path].current is None for path in lost)
                note = f"the pristine bytes of {', '.join(lost)} cannot be had"
                states.append(PatchState(series.name, patch, MISSING if gone else DRIFTED, note))
                continue
            now, outcomes = fold.fold([patch], now)
            states.append(PatchState(series.name, patch, outcomes[0].state, outcomes[0].note))
    return dict(now), states


def _classify(plan: DistPlan, after: dict[str, bytes | None], memory: Memory, absent: bool, restore: bool) -> None:
    for file in plan.files:
        desired = after.get(file.path)
        file.target = file.pristine if absent else desired
        known: set[str | None] = {None if desired is None else installed.sha256(desired)}
        written = memory.files.get(file.path)
        if written is not None and written.pristine == file.pristine_digest:
            known.update(written.digests)
        if not file.pristine_known:
            file.state = MISSING if file.current is None else DRIFTED
            plan.problems.append(refusals.no_pristine(plan, file))
        elif file.current_digest == file.target_digest:
            file.state = OK
        elif file.current_digest == file.pristine_digest:
            file.state = PRISTINE
        elif file.current_digest in known:
            file.state = OURS
        else:
            file.state = DRIFTED
            if not restore:
                plan.problems.append(refusals.drift(plan, file))


def _set_patch_states(plan: DistPlan, outcomes: list[PatchState], absent: bool) -> None:
    states = {file.path: file.state for file in plan.files}
    for outcome in outcomes:
        if outcome.state == fold.FITS:
            paths = [*outcome.patch.paths, *(grep.file for grep in outcome.patch.greps)]
            seen = {states.get(path, OK) for path in paths}
            if DRIFTED in seen:
                outcome.state = "drifted"
            elif absent:
                outcome.state = "not applied" if seen == {OK} else "applied"
            else:
                outcome.state = "applied" if seen == {OK} else "would apply"
        bad = outcome.state in (fold.CONFLICTS, fold.MISSING) or (
            outcome.state == fold.OBSOLETE and not outcome.patch.keep_when_obsolete
        )
        if bad and not absent:
            plan.problems.append(refusals.misfit(outcome))
        plan.patches.append(outcome)


def _plan_changes(plan: DistPlan, modules: dict[str, bytes], absent: bool) -> None:
    assert plan.distribution is not None  # noqa: S101
    site = plan.distribution.site_packages
    pristine = installed.Record.parse(plan.record_pristine)
    record = pristine.with_files(modules) if modules else plan.record_pristine
    writes = [Change(site, f.path, f.target) for f in plan.files if f.state != OK and f.target is not None]
    removals = [Change(site, f.path, None) for f in plan.files if f.state != OK and f.target is None]
    plan.changes = writes + removals
    if record != plan.record_before:
        # RECORD names a file of ours before it is there and after it is gone: uninstalling never misses one.
        change = Change(site, plan.distribution.record_path, record)
        plan.changes = [*plan.changes, change] if absent else [change, *plan.changes]
    files: dict[str, Written] = {}
    for file in plan.files:
        if file.state == OK and file.target is not None:
            plan.stale_bytecode += stale_copies(site / file.path, file.target)
        if file.target_digest != file.pristine_digest:
            files[file.path] = Written(file.pristine_digest, (file.target_digest,))
    written = None
    if record != plan.record_pristine:
        written = Written(installed.sha256(plan.record_pristine), (installed.sha256(record),))
    plan.memory_after = Memory(files, written, plan.distribution.version)
