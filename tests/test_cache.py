"""Remembered results: which files are checked again, and that nothing which happens to the cache changes a finding."""

from __future__ import annotations

import json
import os
import pickle
import shutil
import sqlite3
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from importlib.machinery import PathFinder
from pathlib import Path

import pytest
from cache_edits import TICK_NS, edit_and_compare, report
from conftest import BAD, FIXTURES, GOOD, in_process, in_subprocess

from perflint.project.discover import Found
from perflint.rule.registry import all_rules, announced
from perflint.run import cache, catalog, store
from perflint.run.result import Result
from perflint.run.run import Run

pytestmark = pytest.mark.usefixtures("waits_told")

TRAINER = {
    "pyproject.toml": "[project]\nname = 'x'\ndependencies = ['torch>=2.1']\n",
    "train.py": """
        import torch
        from model import Net
        from steps import train_step

        def main(loader):
            net = Net().cuda()
            optimizer = torch.optim.Adam(net.parameters())
            losses = []
            for x, y in loader:
                losses.append(train_step(net, optimizer, x, y))
    """,
    "steps.py": """
        import torch
        from losses import criterion

        def train_step(net, optimizer, x, y):
            optimizer.zero_grad()
            loss = criterion(net(x.cuda()), y.cuda())
            loss.backward()
            optimizer.step()
            return loss.item()

        def check(net, x):
            with torch.no_grad:
                return net(x)
    """,
    "losses.py": """
        import torch

        def criterion(x, y):
            return torch.nn.functional.mse_loss(x, y)
    """,
    "model.py": """
        import torch
        from torch import nn

        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.head = nn.Linear(2, 2)

            def forward(self, x):
                return self.head(x)
    """,
    "plots.py": """
        import torch

        def plot(points):
            with torch.no_grad:
                return points.numpy()
    """,
}
"""A project in which the loop of one file makes the function of another one hot; `plots.py` has nothing to do with them."""

NOTEBOOK = """
    {"cells": [{"cell_type": "code", "metadata": {}, "outputs": [], "execution_count": null, "source": ["print(1)"]}],
     "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
"""


@dataclass
class Seen:
    """What a run did: its report, the files that it checked and read, and how many results it remembered."""

    report: str
    checked: int
    remembered: int
    read: list[str]


@pytest.fixture
def check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Seen]:
    """Check the project in `tmp_path` with a cache. Files count as settled at once, for tests write them just before."""
    monkeypatch.setattr(cache, "SETTLED_NS", 0)

    def checked(*paths: Path, cached: bool = True, **overrides: object) -> Seen:
        run = Run(all_rules(), None, overrides, cached=cached)
        read: list[str] = []
        reader = run.read
        monkeypatch.setattr(run, "read", lambda path: (read.append(os.path.basename(path)), reader(path))[1])
        result: Result = run.check(run.find([str(path) for path in paths or (tmp_path,)]))
        counters = [session.counters for session in run.sessions]
        return Seen(report(result), sum(c.files for c in counters), sum(c.remembered for c in counters), sorted(read))

    return checked


def results_file(root: Path) -> Path:
    return root / store.FOLDER / store.FILE


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


# -- what is checked again -----------------------------------------------------------------------------------------------


def test_nothing_changed_nothing_is_checked_and_only_files_with_findings_are_read(project, check) -> None:
    project.write(TRAINER)
    first, second = check(), check()
    assert (first.checked, first.remembered) == (5, 0)
    assert (second.checked, second.remembered) == (0, 5)
    assert second.report == first.report
    assert second.read == ["plots.py", "steps.py"]  # their lines are shown


def test_a_change_checks_the_files_again_that_used_it(project, check, tmp_path: Path) -> None:
    project.write(TRAINER)
    check()
    edit(tmp_path / "plots.py", "points", "values")
    assert check().checked == 1
    edit(tmp_path / "train.py", "for x, y in loader", "for x, y in [loader]")
    again = check()
    assert 2 <= again.checked < 5  # steps.py is called from it; plots.py and losses.py do not know it
    assert again.report == check(cached=False).report


def test_a_fact_from_another_file_is_not_remembered_when_that_file_changes(project, check, tmp_path: Path) -> None:
    project.write(TRAINER)
    assert "steps.py" in check().report
    edit(tmp_path / "train.py", "train_step(net, optimizer, x, y)", "x")
    assert check().report == check(cached=False).report


def test_a_file_that_begins_to_import_another_one_matters(project, check, tmp_path: Path) -> None:
    project.write({**TRAINER, "train.py": "import torch\n"})
    before = check()
    project.write({"other.py": TRAINER["train.py"]})
    after = check()
    assert after.report == check(cached=False).report != before.report


def test_a_module_that_appears_in_the_place_of_another_one_matters(project, check, tmp_path: Path) -> None:
    project.write({"train.py": BAD, "pyproject.toml": ""})
    assert "no-grad-without-call" in check().report
    (tmp_path / "torch.py").write_text("class no_grad: pass\n")
    assert check().report == check(cached=False).report


def test_a_file_with_the_same_text_is_remembered_whatever_its_times(project, check, tmp_path: Path) -> None:
    project.write(TRAINER)
    check()
    for path in tmp_path.glob("*.py"):
        path.write_text(path.read_text())
        os.utime(path, ns=(0, 0))
    touched = check()
    assert (touched.checked, touched.remembered) == (0, 5)
    assert set(touched.read) == {path.name for path in tmp_path.glob("*.py")}
    assert check().read == ["plots.py", "steps.py"]


def test_a_fresh_checkout_uses_what_is_remembered(project, check, tmp_path: Path) -> None:
    project.write({**TRAINER, "pyproject.toml": "", "look.ipynb": NOTEBOOK})
    before = check()
    for path in tmp_path.iterdir():
        if path.is_file():
            text = path.read_bytes()
            path.unlink()
            path.write_bytes(text)
            os.utime(path, ns=(0, 0))
    again = check()
    assert (again.checked, again.report) == (0, before.report)
    edit(tmp_path / "look.ipynb", "print(1)", "train_step(1)")  # a notebook may call what nobody else does
    assert check().checked > 1


def test_a_cache_of_another_checkout_is_not_believed(project, check, tmp_path: Path) -> None:
    project.write({f"one/{name}": text for name, text in {**TRAINER, "pyproject.toml": ""}.items()})
    check()
    shutil.copytree(tmp_path / "one", tmp_path / "two")
    edit(tmp_path / "two" / "train.py", "train_step(net, optimizer, x, y)", "x")
    shutil.rmtree(tmp_path / "one")
    assert check().report == check(cached=False).report


def test_a_file_that_has_just_changed_is_not_trusted_by_its_times(project, check, tmp_path: Path, monkeypatch) -> None:
    project.write({"train.py": BAD, "pyproject.toml": ""})
    monkeypatch.setattr(cache, "SETTLED_NS", 10**12)
    check()
    assert check().read.count("train.py") >= 1
    assert check().remembered == 1


@pytest.mark.parametrize(
    "change",
    [
        {"requirements.txt": "torch>=1.5\n"},
        {"perflint.toml": 'target-versions = { torch = "1.5" }\n'},
        {"perflint.toml": "select = ['all']\n"},
        {"perflint.toml": "per-file-ignores = { 'plots.py' = ['all'] }\n"},
    ],
)
def test_configuration_and_requirements_matter(project, check, change: dict[str, str]) -> None:
    project.write(TRAINER)
    check()
    project.write(change)
    assert check().report == check(cached=False).report
    assert check().checked == 0


LOADS = """
    import argparse

    import torch
    from PIL import Image
    from torch.utils.data import DataLoader, Dataset
    from torchvision.transforms.functional import to_tensor

    class Images(Dataset):
        def __init__(self, paths):
            self.paths = paths

        def __len__(self):
            return len(self.paths)

        def __getitem__(self, index):
            return to_tensor(Image.open(self.paths[index]))

    def main(args, net, optimizer, paths):
        loader = DataLoader(Images(paths), batch_size=8, num_workers=args.num_workers)
        for x in loader:
            optimizer.zero_grad()
            net(x.cuda()).sum().backward()
            optimizer.step()

    if __name__ == "__main__":
        parser = argparse.ArgumentParser()
        parser.add_argument("--num_workers", type=int, default=0)
        main(parser.parse_args(), *torch.load("all.pt"))
"""


def test_texts_that_say_how_a_program_is_run_matter(project, check, tmp_path: Path) -> None:
    """They are no Python files, and an answer rests on them all the same."""
    asked = ["dataloader-no-workers"]
    project.write({"pyproject.toml": "", "train.py": LOADS, "plots.py": TRAINER["plots.py"]})
    assert "dataloader-no-workers" in check(select=asked).report
    for name, given, other in (
        ("run.sh", "python train.py --num_workers {}\n", "0"),
        ("configs/a.yaml", "num_workers: {}\n", "0"),
    ):
        project.write({name: given.format("4")})
        seen = check(select=asked)
        assert seen.report == check(select=asked, cached=False).report
        assert "dataloader-no-workers" not in seen.report
        project.write({name: given.format(other)})
        assert "dataloader-no-workers" in check(select=asked).report
    assert check(select=asked).checked == 0


def test_rules_and_python_matter(project, check, monkeypatch) -> None:
    project.write(TRAINER)
    check()
    assert check(select=("all",)).remembered == 0
    monkeypatch.setattr(sys, "version", "4.0")
    assert check().remembered == 0


def test_a_text_of_the_same_size_with_its_times_put_back_is_noticed(project, check, tmp_path: Path) -> None:
    """The time of the last change of a file's data can be set back, that of the last change of anything about it cannot."""
    project.write(TRAINER)
    before, path = check(), tmp_path / "plots.py"
    times = path.stat()
    time.sleep(TICK_NS / 1e9)
    edit(path, "torch.no_grad:", "torch.float16:")
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert path.stat().st_size == times.st_size
    assert path.stat().st_mtime_ns == times.st_mtime_ns
    after = check()
    assert after.report == check(cached=False).report != before.report


def test_after_a_change_only_results_that_name_the_file_are_looked_into(project, check, tmp_path: Path, monkeypatch) -> None:
    project.write({**TRAINER, **{f"more/module{n}.py": "import torch\nfrom torch import nn\n" for n in range(20)}})
    check()
    looked: list[str] = []
    facts = cache.ProjectCache._facts
    monkeypatch.setattr(cache.ProjectCache, "_facts", lambda self, *about: (looked.append(about[1]), facts(self, *about))[1])
    for _ in range(3):
        edit(tmp_path / "plots.py", "import torch\n", "import torch\n\n")
        looked.clear()
        assert check().checked == 1
        assert [os.path.basename(path) for path in looked] == ["plots.py"]
    connection = sqlite3.connect(results_file(tmp_path))
    assert connection.execute("SELECT count(*) FROM states").fetchone() == (1,)
    connection.close()


def test_files_that_are_checked_alone_leave_what_is_known_of_the_others(project, check, tmp_path: Path) -> None:
    project.write(TRAINER)
    check()
    edit(tmp_path / "train.py", "train_step(net, optimizer, x, y)", "x")
    check(tmp_path / "plots.py")
    assert check(tmp_path / "losses.py").report == check(tmp_path / "losses.py", cached=False).report
    again = check()
    assert again.report == check(cached=False).report
    assert 2 <= again.checked < 5


def test_a_run_that_another_one_overtakes_claims_nothing_for_its_results(project, check, tmp_path: Path) -> None:
    """What the other one has written rests on later texts than the first one knows."""
    project.write(TRAINER)
    check()
    edit(tmp_path / "plots.py", "points", "values")
    run = Run(all_rules(), None, {}, cached=True)
    overtaken = False

    def overtake(path: str) -> None:
        nonlocal overtaken
        if not overtaken:
            overtaken = True
            edit(tmp_path / "train.py", "train_step(net, optimizer, x, y)", "x")
            check()

    run.check(run.find([str(tmp_path)]), overtake)
    assert overtaken
    assert check().report == check(cached=False).report
    edit(tmp_path / "train.py", "losses.append(x)", "losses.append(train_step(net, optimizer, x, y))")
    assert check().report == check(cached=False).report


def test_one_file_alone(project, check, tmp_path: Path) -> None:
    project.write(TRAINER)
    check()
    alone = check(tmp_path / "steps.py")
    assert alone.remembered + alone.checked == 1
    assert alone.report == check(tmp_path / "steps.py", cached=False).report
    assert check(tmp_path / "steps.py").remembered == 1


def test_a_syntax_error_is_remembered(project, check) -> None:
    project.write({"pyproject.toml": "", "train.py": "import torch\nx = (\n"})
    first, second = check(), check()
    assert "invalid-syntax" in first.report
    assert (second.report, second.remembered) == (first.report, 1)


def test_fix_uses_what_check_remembers_and_the_other_way_round(project, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.delenv("PERFLINT_NO_CACHE")
    project.write({"pyproject.toml": "", "train.py": BAD, "other.py": "import torch\n"})
    assert in_process("check", str(tmp_path)).exit_code == 1
    assert in_process("fix", str(tmp_path)).exit_code == 0
    assert (tmp_path / "train.py").read_text() == GOOD
    assert in_process("check", str(tmp_path)).exit_code == 0
    (tmp_path / "train.py").write_text(BAD)
    assert in_process("check", str(tmp_path)).exit_code == 1


def test_a_patch_that_is_only_shown_is_not_remembered(project, check, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.delenv("PERFLINT_NO_CACHE")
    project.write(TRAINER)
    in_process("fix", "--diff", str(tmp_path))
    assert check().report == check(cached=False).report


def test_an_editor_may_give_one_run_text_after_text(project, tmp_path: Path) -> None:
    project.write(TRAINER)
    path, found, run = tmp_path / "steps.py", Found(), Run(all_rules())
    text = path.read_text()
    for changed in (
        text,
        f"# one more line\n{text}",
        text.replace("loss.item()", "loss"),
        text.replace("losses", "plots"),
        text,
    ):
        run.text(str(path), changed.encode(), found)
        fresh, alone = Run(all_rules()), Found()
        fresh.text(str(path), changed.encode(), alone)
        assert report(run.check(found)) == report(fresh.check(alone))


PACK = """
from perflint.api import Severity, rule

@rule(category="device-sync", severity=Severity.WARNING, needs=[("torch",)])
def check(code):
    \"\"\"Report the first statement.\"\"\"
    if code.scope.is_module:
        yield code.finding(code.scope.module.tree.body[0], "first; MESSAGE")
"""


def test_an_edited_rule_of_an_installed_pack_is_the_one_that_runs(project, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.delenv("PERFLINT_NO_CACHE")
    project.write({"linted/pyproject.toml": "", "linted/train.py": "import torch\n"})
    start = "import sys; sys.path.insert(0, '../site'); from perflint.__main__ import main; main()"

    def seen() -> str:
        return in_subprocess("check", "--output-format", "concise", cwd=tmp_path / "linted", code=start).stdout.decode()

    assert "All checks passed" in seen()
    project.write(
        {
            "site/pack/__init__.py": "",
            "site/pack/first_statement.py": PACK.replace("MESSAGE", "one"),
            "site/pack-1.dist-info/METADATA": "Metadata-Version: 2.1\nName: pack\nVersion: 1\n",
            "site/pack-1.dist-info/entry_points.txt": "[perflint.rules]\nstranger = pack\n",
        }
    )
    assert "first; one" in seen()
    assert "first; one" in seen()
    edit(tmp_path / "site/pack/first_statement.py", "; one", "; number two")
    assert "first; number two" in seen()
    shutil.rmtree(tmp_path / "site")
    assert "All checks passed" in seen()


def test_of_two_versions_of_a_pack_the_one_counts_that_python_imports(tmp_path: Path, monkeypatch) -> None:
    for folder, version in (("first", 2), ("second", 1)):
        about = tmp_path / folder / f"Pack-{version}.dist-info"
        about.mkdir(parents=True)
        (about / "entry_points.txt").write_text(f"[perflint.rules]\nstranger = pack{version}\n")
    monkeypatch.setattr(sys, "path", [str(tmp_path / "first"), str(tmp_path / "second")])
    monkeypatch.setattr(sys, "meta_path", [PathFinder])
    assert announced() == [("stranger", "pack2")]
    monkeypatch.setattr(sys, "path", [str(tmp_path / "pack.egg")])
    assert announced() is None


def test_standard_input_is_not_remembered(project, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.delenv("PERFLINT_NO_CACHE")
    project.write({"pyproject.toml": "", "train.py": GOOD})
    for text, code in ((GOOD, 0), (BAD, 1), (GOOD, 0)):
        done = in_process("check", "--stdin-filename", str(tmp_path / "train.py"), "-", stdin=text.encode())
        assert done.exit_code == code


def test_outcomes_of_other_processes_are_remembered(project, check, tmp_path: Path) -> None:
    """They come with their facts, so the process that writes the cache need not have read the files."""
    project.write(TRAINER)
    there, here = Run(all_rules()), Run(all_rules(), cached=True)
    outcomes = pickle.loads(pickle.dumps([replace(c, source=None) for c in there.check(there.find([str(tmp_path)])).checked]))
    found = here.find([str(tmp_path)])
    for path, checked in zip(found.files, outcomes, strict=True):
        here.remember(path, True, checked, found)
    here.save()
    assert check().remembered == 5
    edit(tmp_path / "losses.py", "mse", "l1")
    assert 0 < check().remembered < 5


# -- any edits -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(3))
def test_random_edits_leave_nothing_stale(tmp_path: Path, monkeypatch, seed: int) -> None:
    monkeypatch.setattr(cache, "SETTLED_NS", cache.SETTLED_NS)
    shutil.copytree(FIXTURES / "programs" / "spans", tmp_path / "project")
    remembered, _ = edit_and_compare(tmp_path / "project", tmp_path / "cache", seed, 8)
    assert remembered


# -- what may happen to the cache ----------------------------------------------------------------------------------------


def damaged(path: Path, kind: str) -> None:
    data = bytearray(path.read_bytes())
    match kind:
        case "empty":
            data.clear()
        case "no database":
            data[:] = b"x" * 10_000
        case "cut":
            del data[len(data) // 2 :]
        case "zeroed":
            data[4096:12_000] = bytes(12_000 - 4096)
    path.write_bytes(data)


@pytest.mark.parametrize("kind", ["empty", "no database", "cut", "zeroed"])
def test_a_damaged_cache_counts_as_empty_and_is_made_anew(project, check, tmp_path: Path, kind: str) -> None:
    project.write(TRAINER)
    first = check()
    damaged(results_file(tmp_path), kind)
    assert check().report == first.report
    check()
    again = check()
    assert (again.report, again.remembered) == (first.report, 5)


def test_a_flipped_bit_changes_no_finding(project, check, tmp_path: Path) -> None:
    project.write(TRAINER)
    first = check()
    path = results_file(tmp_path)
    whole = path.read_bytes()
    for at in range(0, len(whole), 1009):
        path.write_bytes(whole[:at] + bytes((whole[at] ^ 4,)) + whole[at + 1 :])
        assert check().report == first.report


def test_every_text_in_the_cache_is_sealed(project, check, tmp_path: Path) -> None:
    project.write(TRAINER)
    first = check()
    for table, column in [
        ("results", "outcome"),
        ("facts", "facts"),
        ("facts", "modules"),
        ("facts", "open"),
        ("files", "digest"),
        ("learned", "learned"),
    ]:
        connection = sqlite3.connect(results_file(tmp_path))
        connection.execute(f"UPDATE {table} SET {column} = replace({column}, 'e', 'f')")
        connection.commit()
        connection.close()
        assert check().report == first.report


def test_a_cache_of_another_version_is_made_anew(project, check, tmp_path: Path) -> None:
    project.write(TRAINER)
    check()
    connection = sqlite3.connect(results_file(tmp_path))
    connection.execute("PRAGMA user_version = 999")
    connection.execute("DROP TABLE files")
    connection.close()
    assert check().remembered == 0
    assert check().remembered == 5


def test_a_folder_that_cannot_be_written_costs_one_line(project, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.delenv("PERFLINT_NO_CACHE")
    project.write({"pyproject.toml": "", "train.py": BAD})
    (tmp_path / "taken").write_text("")
    done = in_process("check", "--cache-dir", str(tmp_path / "taken" / "cache"), str(tmp_path / "train.py"))
    assert done.exit_code == 1
    assert done.stderr.count("warning: no results are remembered") == 1


def test_a_locked_cache_is_left_alone(project, check, tmp_path: Path, monkeypatch) -> None:
    project.write(TRAINER)
    first = check()
    monkeypatch.setattr(store, "BUSY_S", 0.01)
    connection = sqlite3.connect(results_file(tmp_path), isolation_level=None)
    connection.execute("BEGIN EXCLUSIVE")
    assert check().report == first.report
    connection.execute("COMMIT")
    connection.close()
    assert check().remembered == 5


def test_several_processes_at_once(project, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.delenv("PERFLINT_NO_CACHE")
    project.write(TRAINER)
    with ThreadPoolExecutor() as pool:
        done = list(pool.map(lambda _: in_subprocess("check", "--output-format", "json", cwd=tmp_path), range(4)))
    assert len({(d.returncode, d.stdout, d.stderr) for d in done}) == 1, done
    connection = sqlite3.connect(results_file(tmp_path))
    assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    assert connection.execute("SELECT count(*) FROM results").fetchone() == (5,)
    connection.close()


def test_the_cache_stays_bounded(project, check, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(store, "MAX_SESSIONS", 3)
    project.write(TRAINER)
    for rule in all_rules()[:6]:
        check(select=(rule.name,))
    (tmp_path / "plots.py").unlink()
    check()
    connection = sqlite3.connect(results_file(tmp_path))
    assert connection.execute("SELECT count(*) FROM sessions").fetchone() == (3,)
    assert connection.execute("SELECT count(DISTINCT session) FROM results").fetchone() == (3,)
    assert connection.execute("SELECT count(*) FROM files").fetchone() == (4,)
    connection.close()
    assert check().remembered == 4


# -- where it is ---------------------------------------------------------------------------------------------------------


def test_where_the_cache_is(project, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.delenv("PERFLINT_NO_CACHE")
    project.write({"a/pyproject.toml": "", "a/train.py": GOOD, "b/perflint.toml": "cache-dir = 'kept'\n", "b/train.py": GOOD})
    in_process("check", str(tmp_path / "a"))
    assert (tmp_path / "a" / ".perflint_cache" / ".gitignore").read_text().endswith("*\n")
    assert (
        (tmp_path / "a" / ".perflint_cache" / "CACHEDIR.TAG")
        .read_text()
        .startswith("Signature: 8a477f597d28d172789f06886806bc55")
    )
    in_process("check", str(tmp_path / "b"))
    assert (tmp_path / "b" / "kept" / store.FILE).exists()
    in_process("check", "--cache-dir", str(tmp_path / "given"), str(tmp_path / "b"))
    assert (tmp_path / "given" / store.FILE).exists()
    monkeypatch.setenv("PERFLINT_CACHE_DIR", str(tmp_path / "named"))
    in_process("check", str(tmp_path / "b"))
    assert (tmp_path / "named" / store.FILE).exists()


def test_no_cache_leaves_nothing_behind(project, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.delenv("PERFLINT_NO_CACHE")
    project.write({"pyproject.toml": "", "train.py": GOOD})
    in_process("check", "--no-cache", str(tmp_path))
    assert not (tmp_path / ".perflint_cache").exists()


def test_clean_removes_the_cache_and_nothing_else(project, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.delenv("PERFLINT_NO_CACHE")
    project.write({"pyproject.toml": "", "train.py": GOOD})
    in_process("check", str(tmp_path))
    done = in_process("clean", str(tmp_path))
    assert (done.exit_code, done.stderr) == (0, f"Removed {tmp_path / '.perflint_cache'}\n")
    assert sorted(os.listdir(tmp_path)) == ["pyproject.toml", "train.py"]
    assert in_process("clean", str(tmp_path)).exit_code == 0
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("")
    in_process("clean", "--cache-dir", str(tmp_path / "mine"))
    assert (tmp_path / "mine" / "notes.txt").exists()


def test_a_remembered_rule_is_the_rule_but_for_its_code() -> None:
    """What a rule says of itself decides what is shown: none of it may be lost between two runs."""
    for rule in all_rules():
        told = json.loads(json.dumps(catalog._encoded(rule)))
        assert replace(catalog._decoded(told), check=rule.check) == rule
