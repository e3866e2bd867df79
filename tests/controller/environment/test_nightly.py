"""vLLM by commit, from a loopback server laid out as its index is, with small real wheels (BR-20, BR-25)."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from ansible.module_utils.aerie.environment import vllm_wheel, wheel_compatibility
from ansible.module_utils.aerie.environment.converge import converge
from ansible.module_utils.aerie.environment.demand import Demand
from ansible.module_utils.aerie.environment.file_digest import file_digest
from ansible.module_utils.aerie.environment.network import WheelRefusal
from ansible.module_utils.aerie.shared.refusal import Refusal

from .servers import COMMIT, TAG, VERSION, Server, publish
from .test_build import names, snapshot

OTHER = "b" * 40
FILE = f"vllm-{VERSION}-{TAG}.whl"
Make = Callable[..., Demand]


@pytest.fixture
def index(tmp_path: Path) -> Iterator[Server]:
    with Server(tmp_path / "index").running() as server:
        yield server


@pytest.fixture
def nightly(index: Server, demand: Make, lock_text: str) -> Make:
    """A demand for the published wheel; its digest is in the lock."""

    def make(sha256: str, **changes: str) -> Demand:
        source = vllm_wheel.Source("nightly", machine=TAG.rpartition("17_")[2], cuda="12.8", index_url=index.url,
                              commit=COMMIT, variant="cu129", sha256=sha256)  # fmt: skip
        made = demand(lock_text + vllm_wheel.pin_line("vllm", VERSION, sha256), wheel=replace(source, **changes))
        made.variables = {**made.variables, "UV_HTTP_TIMEOUT": "20"}
        return made

    return make


def reaching(made: Demand) -> Demand:
    """The demand without the offline switch that the others of these tests have."""
    made.variables = {name: value for name, value in made.variables.items() if name != "UV_OFFLINE"}
    return made


def test_br20_the_wheel_of_the_commit_is_installed_by_hash_and_kept_for_a_rebuild(
    nightly: Make, index: Server, tmp_path: Path
) -> None:
    digest = publish(index.root, COMMIT, ["cu129"])
    done = converge(reaching(nightly(digest)), check_mode=False)
    assert done.after == {"alpha": "1.0", "beta": "2.0", "vllm": VERSION}
    assert FILE in names(tmp_path / "wheels")
    assert not converge(reaching(nightly(digest)), check_mode=False).changed
    # Built anew without a network: the wheel with the recorded digest is there.
    index.asked.clear()
    shutil.rmtree(tmp_path / "env.d")
    assert converge(nightly(digest), check_mode=False).changed
    assert index.asked == []


def test_the_wheel_of_another_commit_replaces_the_one_that_was_kept(
    nightly: Make, index: Server, demand: Make, lock_text: str, tmp_path: Path
) -> None:
    digest = publish(index.root, COMMIT, ["cu129"])
    converge(reaching(nightly(digest)), check_mode=False)
    version = f"0.16.0rc2.dev400+g{OTHER[:9]}"
    newer = publish(index.root, OTHER, ["cu129"], version)
    made = reaching(nightly(newer, commit=OTHER))
    made.lock = lock_text + vllm_wheel.pin_line("vllm", version, newer)
    done = converge(made, check_mode=False)
    assert done.after["vllm"] == version
    assert [one for one in names(tmp_path / "wheels") if "vllm" in one] == [f"vllm-{version}-{TAG}.whl"]


FAULTS = [
    pytest.param({"metadata.json": "404", f"{COMMIT}/": "404"}, "nothing for this commit", id="404"),
    pytest.param({"metadata.json": "403", f"{COMMIT}/": "403"}, "nothing for this commit", id="403-of-storage"),
    pytest.param({FILE: "404"}, "HTTP 404", id="404-of-the-wheel"),
    pytest.param({FILE: "500"}, "HTTP 500", id="500"),
    pytest.param({"metadata.json": "html"}, "no list of wheels, it begins with '<!DOCTYPE html>'", id="html-list"),
    pytest.param({FILE: "html"}, "text/html, beginning with '<!DOCTYPE html>'", id="html-wheel"),
    pytest.param({FILE: "cut"}, "cut after", id="cut"),
    pytest.param({"metadata.json": "hang"}, "no answer for 1 s", id="hang"),
    pytest.param({FILE: "cut and hang"}, "no answer for 1 s", id="hang-in-the-body"),
]


def refused(made: Demand, index: Server, faults: dict[str, str]) -> WheelRefusal:
    """What a run with faults ends with."""
    index.faults.update(faults)
    # A second must do for an answer only where none is meant to come.
    made.variables = {**made.variables, "UV_HTTP_TIMEOUT": "1" if "hang" in str(faults) else "20"}
    with pytest.raises(WheelRefusal) as caught:
        converge(reaching(made), check_mode=False)
    index.faults.clear()
    return caught.value


@pytest.mark.parametrize(("faults", "cause"), FAULTS)
def test_br25_each_fault_is_named_and_leaves_the_environment_as_it_was(
    nightly: Make, demand: Make, index: Server, tmp_path: Path, faults: dict[str, str], cause: str
) -> None:
    digest = publish(index.root, COMMIT, ["cu129"])
    converge(demand(), check_mode=False)
    before, link = snapshot(tmp_path / "env.d"), (tmp_path / "env").readlink()
    error = refused(nightly(digest), index, faults)
    assert cause in error.found
    assert error.remedy
    assert (snapshot(tmp_path / "env.d"), (tmp_path / "env").readlink()) == (before, link)
    assert [p.name for p in (tmp_path / "wheels").iterdir() if "vllm" in p.name or p.name.startswith(".")] == []
    done = converge(reaching(nightly(digest)), check_mode=False)
    assert (done.after["vllm"], done.notes) == (VERSION, [])


def test_br25_a_fault_on_a_clean_host_leaves_no_environment(nightly: Make, index: Server, tmp_path: Path) -> None:
    digest = publish(index.root, COMMIT, ["cu129"])
    assert "cut after" in refused(nightly(digest), index, {FILE: "cut"}).found
    assert not (tmp_path / "env").exists()
    assert names(tmp_path / "env.d") == []
    assert converge(reaching(nightly(digest)), check_mode=False).notes == []


def test_another_wheel_under_the_same_name_is_refused(nightly: Make, index: Server, tmp_path: Path) -> None:
    digest = publish(index.root, COMMIT, ["cu129"])
    converge(reaching(nightly(digest)), check_mode=False)
    changed = publish(index.root, COMMIT, ["cu129"], content="VERSION = 'another'\n")
    shutil.rmtree(tmp_path / "wheels")
    before = snapshot(tmp_path / "env.d")
    # On the host that has it there is nothing to do; where it must be fetched again the digest decides.
    assert not converge(reaching(nightly(digest)), check_mode=False).changed
    with pytest.raises(WheelRefusal, match=changed):
        vllm_wheel.obtain(nightly(digest).wheel, tmp_path / "wheels", VERSION, {})
    assert snapshot(tmp_path / "env.d") == before


def test_br20_only_another_variant_is_refused_with_those_that_there_are(nightly: Make, index: Server) -> None:
    digest = publish(index.root, COMMIT, ["cu130", "cpu"], f"{VERSION}.cu130")
    with pytest.raises(WheelRefusal, match=r"has the variants cpu, cu130") as caught:
        converge(reaching(nightly(digest)), check_mode=False)
    assert "vllm_variant" in caught.value.remedy


@pytest.mark.parametrize("version", ["0.16.0", f"0.16.0rc2.dev388+g{OTHER[:9]}", f"{VERSION}.cu130"])
def test_br20_a_stable_wheel_or_another_build_in_the_commit_s_folder_is_not_taken(
    nightly: Make, index: Server, version: str
) -> None:
    digest = publish(index.root, COMMIT, ["cu129"], version)
    with pytest.raises(WheelRefusal, match=r"lists vllm-0\.16\.0") as caught:
        converge(reaching(nightly(digest)), check_mode=False)
    assert "g7291d1b28 for cu129" in caught.value.wanted


def test_a_wheel_under_a_wrong_name_is_refused(nightly: Make, index: Server) -> None:
    publish(index.root, COMMIT, ["cu129"], "0.16.0")
    digest = publish(index.root, COMMIT, ["cu129"])
    (index.root / COMMIT / f"vllm-0.16.0-{TAG}.whl").replace(index.root / COMMIT / FILE)
    digest = file_digest(index.root / COMMIT / FILE)
    with pytest.raises(WheelRefusal, match=r"holds vllm 0\.16\.0"):
        converge(reaching(nightly(digest)), check_mode=False)


def test_a_mirror_is_the_whole_of_the_address(nightly: Make, index: Server) -> None:
    (index.root / "mirror").mkdir()
    digest = publish(index.root / "mirror", COMMIT, ["cu129"])
    done = converge(reaching(nightly(digest, index_url=f"{index.url}/mirror")), check_mode=False)
    assert done.after["vllm"] == VERSION
    assert all(path.startswith(f"/mirror/{COMMIT}/") for path in index.asked)


def test_a_list_that_leads_elsewhere_is_refused(nightly: Make, index: Server) -> None:
    digest = publish(index.root, COMMIT, ["cu129"])
    page = index.root / COMMIT / "cu129" / "vllm" / "metadata.json"
    page.write_text(page.read_text().replace("../../", f"http://127.0.0.1:9/{COMMIT}/"))
    with pytest.raises(WheelRefusal, match="lists"):
        converge(reaching(nightly(digest)), check_mode=False)


def test_offline_is_told_before_anything_is_asked(nightly: Make, index: Server) -> None:
    digest = publish(index.root, COMMIT, ["cu129"])
    with pytest.raises(WheelRefusal, match="offline"):
        converge(nightly(digest), check_mode=False)
    assert index.asked == []


@pytest.mark.parametrize("how", ["path", "address"])
def test_the_channel_wheel_takes_a_file_or_an_address(nightly: Make, index: Server, tmp_path: Path, how: str) -> None:
    digest = publish(index.root, COMMIT, [])
    place = index.root / COMMIT / FILE
    location = str(place) if how == "path" else f"{index.url}/{COMMIT}/{FILE.replace('+', '%2B')}"
    made = nightly(digest, channel="wheel", location=location, commit="", variant="")
    done = converge(reaching(made) if how == "address" else made, check_mode=False)
    assert done.after["vllm"] == VERSION
    with pytest.raises(WheelRefusal, match=r"no-such\.whl"):
        vllm_wheel.obtain(vllm_wheel.Source("wheel", location="/no-such.whl"), tmp_path, "", {})


def test_the_wheel_s_own_demands_are_held_against_the_lock(nightly: Make, index: Server, tmp_path: Path) -> None:
    requires = ("alpha==1.0+cpu", "beta==2.1", "gamma==9 ; extra == 'more'")
    digest = publish(index.root, COMMIT, ["cu129"], requires=requires)
    with pytest.raises(Refusal, match=r"beta is 2\.0; wanted .* beta 2\.1, which vllm requires") as caught:
        converge(reaching(nightly(digest)), check_mode=False)
    assert "1 differences" in str(caught.value)
    assert names(tmp_path / "env.d") == []


def binaries_of(tmp_path: Path, library: str) -> Path:
    """An environment whose vLLM has a small real binary that asks for a library, beside a torch for CUDA 12."""
    import subprocess

    site = tmp_path / "lib" / "python3.12" / "site-packages"
    (site / "vllm").mkdir(parents=True)
    (site / "torch").mkdir()
    (site / "torch" / "version.py").write_text("__version__ = '2.10.0'\ncuda: Optional[str] = '12.8'\nhip = None\n")
    (tmp_path / "c.c").write_text("int f(void) { return 1; }\n")
    stub, binary = str(tmp_path / library), str(site / "vllm" / "_C.abi3.so")
    subprocess.run(["gcc", "-shared", f"-Wl,-soname,{library}", "-o", stub, str(tmp_path / "c.c")], check=True)
    subprocess.run(["gcc", "-shared", "-Wl,--no-as-needed", "-o", binary, str(tmp_path / "c.c"), stub], check=True)
    return tmp_path


@pytest.mark.parametrize(
    ("library", "cuda", "says"),
    [
        ("libcudart.so.12", "12.8", ""),
        ("libcudart.so.13", "12.8", "vllm/_C.abi3.so wants CUDA 13: CUDA 12, which torch brings"),
        ("libm.so.6", "12.8", "vllm/_C.abi3.so wants CUDA none: CUDA 12, which torch brings"),
        ("libm.so.6", "", ""),
        ("libcudart.so.12", "", "vllm/_C.abi3.so wants CUDA 12: CUDA none"),
    ],
)
def test_br20_binaries_ask_for_the_cuda_that_torch_brings(tmp_path: Path, library: str, cuda: str, says: str) -> None:
    source = vllm_wheel.Source("wheel", cuda=cuda)
    found = wheel_compatibility.misfits(binaries_of(tmp_path, library), source, {"vllm": "0.16.0"}, "3.12.1")
    assert [f"{one.name} {one.found}: {one.wanted}" for one in found] == ([says] if says else [])


def test_another_version_than_the_named_wheel_s_is_a_misfit(tmp_path: Path) -> None:
    source = vllm_wheel.Source("wheel", location="https://h.org/vllm-0.17.0%2Bcu129-cp38-abi3-linux_x86_64.whl")
    (one,) = wheel_compatibility.misfits(tmp_path, source, {"vllm": "0.16.0"}, "3.12.1")
    assert (one.found, one.wanted) == ("0.16.0", "0.17.0+cu129, as the name of its wheel says")
    assert wheel_compatibility.misfits(tmp_path, source, {"vllm": "0.17.0+cu129"}, "3.12.1") == []


def test_br20_a_vllm_without_compiled_operators_is_a_misfit(tmp_path: Path) -> None:
    root = binaries_of(tmp_path, "libcudart.so.12")
    next(root.glob("lib/python*/site-packages/vllm/_C.*")).unlink()
    (one,) = wheel_compatibility.misfits(root, vllm_wheel.Source("wheel", cuda="12.8"), {"vllm": "0.16.0"}, "3.12.1")
    assert (one.name, one.wanted) == ("vllm/_C", "CUDA 12, which torch brings")


def test_br20_a_plain_release_in_the_place_of_the_nightly_is_a_misfit(tmp_path: Path) -> None:
    source = vllm_wheel.Source("nightly", commit=COMMIT, variant="cu129")
    for version in ("0.16.0", "0.16.1+cu129", f"0.16.0rc2.dev388+g{OTHER[:9]}"):
        (one,) = wheel_compatibility.misfits(tmp_path, source, {"vllm": version}, "3.12.1")
        assert (one.name, one.found) == ("vllm", version)
    assert wheel_compatibility.misfits(tmp_path, source, {"vllm": VERSION}, "3.12.1") == []


MACHINE = TAG.rpartition("17_")[2]
GIVEN = {"channel": "nightly", "commit": COMMIT, "variant": "cu129", "cuda": "12.8", "machine": MACHINE}


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"channel": "weekly"}, "vllm_channel: weekly"),
        ({"channels": ["release"]}, "vllm_channel: nightly"),
        ({"channel": "release", "channels": ["nightly", "wheel"]}, "vllm_channel: release"),
        ({"commit": "7291d1b28"}, "vllm_commit: 7291d1b28"),
        ({"commit": ""}, "vllm_commit: not set"),
        ({"variant": "cu130"}, "vllm_variant: cu130"),
        ({"variant": "cpu"}, "vllm_variant: cpu"),
        ({"variant": "cu129", "cuda": ""}, "vllm_variant: cu129"),
        ({"sha256": "abc"}, "vllm_sha256: abc"),
        ({"channel": "wheel", "location": "/x/vllm.whl", "sha256": "a" * 64}, "vllm_wheel: /x/vllm.whl"),
        ({"channel": "wheel", "location": f"/x/{FILE}"}, "vllm_sha256: not set"),
        ({"channel": "wheel", "location": f"/x/{FILE}", "python": ">=3.6,<3.8"}, "vllm_wheel: /x/vllm"),
        ({"channel": "wheel", "location": f"/x/{FILE}", "machine": "riscv64"}, "vllm_wheel: /x/vllm"),
    ],
)
def test_a_request_that_cannot_be_met_is_refused_by_the_variable_s_name(changes: dict[str, object], says: str) -> None:
    with pytest.raises(WheelRefusal, match=says):
        vllm_wheel.source_of({**GIVEN, **changes})


def test_a_release_needs_no_source() -> None:
    assert vllm_wheel.source_of({}) is None
    made = vllm_wheel.source_of({**GIVEN, "index_url": ""})
    assert made is not None
    assert made.index_url == vllm_wheel.INDEX
