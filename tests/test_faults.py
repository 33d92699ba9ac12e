"""What `fix` leaves behind when something goes wrong in its middle. The long run is fuzz/faults.py."""

from __future__ import annotations

import io
import os
import stat
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import BAD, GOOD, Project, in_process, in_subprocess

if sys.platform == "win32":
    pytest.skip("needs fork and signals", allow_module_level=True)

import perflint.__main__
from fuzz.fault_runs import FIX, Tree, old, run, scratch
from fuzz.faults import FAULTS, HARMLESS, injected, interrupted_at, lines_run
from perflint.fix.fixer import LEFTOVER, WriteError, remove_leftovers, uninterrupted, write
from perflint.project.files import MAX_FILE_BYTES, read_file
from perflint.project.project import Project as Known

NOBODY = 65534


@pytest.fixture
def here(project: Project, monkeypatch: pytest.MonkeyPatch) -> Project:
    """An empty project as the working directory."""
    monkeypatch.chdir(project.root)
    return project


@pytest.mark.slow
@pytest.mark.parametrize("kind", FAULTS)
def test_no_file_is_torn_or_lost(kind: str) -> None:
    counts = injected(kind, count=2, seed=1)
    assert counts["faults"] > 0
    assert {what: count for what, count in counts.items() if what not in HARMLESS and count} == {}


def test_a_ctrl_c_is_heeded_from_the_first_to_the_last_line() -> None:
    with scratch() as tree:
        lines = [line for line in lines_run(tree) if line[0] == perflint.__main__.__file__]
        assert len(lines) > 8
        for line in lines[1:]:  # on the first one, nothing is set up yet
            outcome, came = interrupted_at(tree, line, 1)
            assert (outcome.code, came) == (130, True), line
            assert "Traceback" not in outcome.output


@pytest.mark.parametrize(
    "swallowed", ["class C:\n def __del__(self): kill()\nC()", "import weakref\nclass C: pass\nr = weakref.ref(C(), kill)"]
)
def test_a_ctrl_c_that_python_would_forget_ends_the_run(here: Project, swallowed: str) -> None:
    here.write({"a.py": BAD})
    code = f"""
import os, signal, sys, time
import perflint.run.engine
from perflint.__main__ import main
def kill(*given): os.kill(os.getpid(), signal.SIGINT); time.sleep(0)
def check(*a, **k):
    exec({swallowed!r}, {{"kill": kill}})
    [time.sleep(0.01) for _ in range(100_000)]
perflint.run.engine.check_file = check
main()
"""
    done = in_subprocess("check", "--isolated", cwd=here.root, code=code)
    assert (done.returncode, done.stdout, done.stderr.strip()) == (130, b"", b"")


def test_a_ctrl_c_that_becomes_another_exception_is_one(here: Project) -> None:
    here.write({"a.py": BAD})
    code = """
import os, signal
import perflint.run.engine
from perflint.__main__ import main
def check(*a, **k):
    try:
        os.kill(os.getpid(), signal.SIGINT)
        pass
    except KeyboardInterrupt:
        raise SyntaxError("can't load unicodedata module") from None
perflint.run.engine.check_file = check
main()
"""
    done = in_subprocess("check", "--isolated", cwd=here.root, code=code)
    assert (done.returncode, done.stdout, done.stderr.strip()) == (130, b"", b"")


def test_the_harness_sees_a_torn_file(monkeypatch: pytest.MonkeyPatch) -> None:
    def in_place(target: str, expected: bytes, data: bytes) -> None:
        with open(target, "wb") as handle:
            handle.write(data[:20])
            handle.flush()
            os.chmod(target, 0o644)
            handle.write(data[20:])

    monkeypatch.setattr("perflint.fix.fixer._replace", in_place)
    monkeypatch.setattr("fuzz.fault_runs.STEPS", {"os.chmod"})
    assert injected("kills at steps", count=2, seed=1)["files torn or lost"] == 2


# -- writing -------------------------------------------------------------------------------------------------------------


def test_an_edit_between_the_check_and_the_fix_is_kept(here: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    from perflint.run import engine

    here.write({"a.py": BAD})

    def and_edit(check: Callable[..., Any]) -> Callable[..., Any]:
        def check_and_edit(*arguments: Any, **options: Any) -> Any:
            checked = check(*arguments, **options)
            with open("a.py", "a") as file:
                file.write("# an edit\n")
            return checked

        return check_and_edit

    monkeypatch.setattr(engine, "check_file", and_edit(engine.check_file))
    result = in_process("fix", "--isolated", "--output-format", "concise")
    assert Path("a.py").read_text() == BAD + "# an edit\n"
    assert "changed while it was being fixed; run perflint again" in result.stdout
    result = in_process("check", "--isolated", "--add-ignores")
    assert result.exit_code == 2
    assert "changed while it was being fixed" in result.stderr
    assert Path("a.py").read_text() == BAD + 2 * "# an edit\n"


def test_an_edit_while_the_new_text_is_written_is_kept(here: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    here.write({"a.py": BAD})
    monkeypatch.setattr(os, "fsync", lambda number: Path("a.py").write_text("an edit\n"))
    with pytest.raises(WriteError, match="changed while it was being fixed"):
        write("a.py", BAD.encode(), GOOD.encode())
    assert Path("a.py").read_text() == "an edit\n"
    assert os.listdir() == ["a.py"]


def test_what_a_killed_run_was_writing_is_removed_by_the_next_one_but_not_what_a_live_one_writes(here: Project) -> None:
    import fcntl

    here.write({"a.py": BAD, f"{LEFTOVER}dead": "half", f"{LEFTOVER}live": "half"})
    with open(f"{LEFTOVER}live", "rb") as live:
        fcntl.flock(live, fcntl.LOCK_EX)
        assert in_process("fix", "--isolated").exit_code == 0
        assert sorted(os.listdir()) == [f"{LEFTOVER}live", "a.py"]
    remove_leftovers(str(here.root))
    assert os.listdir() == ["a.py"]


def test_a_ctrl_c_while_a_file_is_written_comes_after_it() -> None:
    import signal

    done = []

    def interrupted() -> None:
        with uninterrupted():
            os.kill(os.getpid(), signal.SIGINT)
            done.append(True)

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert done
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_attributes_are_kept_and_the_time_is_now(here: Project) -> None:
    here.write({"a.py": BAD})
    path = here.root / "a.py"
    try:
        os.setxattr(path, "user.note", b"kept")
    except OSError:
        pytest.skip("the file system has no extended attributes")
    os.utime(path, (1, 1))
    write(str(path), BAD.encode(), GOOD.encode())
    assert os.getxattr(path, "user.note") == b"kept"
    assert path.stat().st_mtime > 1


def test_another_hard_link_keeps_the_old_text(here: Project) -> None:
    here.write({"a.py": BAD})
    os.link("a.py", "backup")
    assert in_process("fix", "--isolated").exit_code == 0
    assert (Path("a.py").read_text(), Path("backup").read_text()) == (GOOD, BAD)


def test_a_link_out_of_the_tree_is_not_followed_unless_it_is_named(here: Project) -> None:
    here.write({"outside/a.py": BAD, "tree/perflint.toml": ""})
    Path("tree/link.py").symlink_to("../outside/a.py")
    Path("tree/folder").symlink_to("../outside")
    assert in_process("fix", "tree").exit_code == 0
    assert Path("outside/a.py").read_text() == BAD
    assert in_process("fix", "tree/link.py").exit_code == 0
    assert Path("outside/a.py").read_text() == GOOD
    assert Path("tree/link.py").is_symlink()


# -- other users ---------------------------------------------------------------------------------------------------------

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root may act as another user")


@pytest.fixture
def shared() -> Iterator[Tree]:
    """A tree that another user may enter."""
    with scratch() as tree:
        tree.root.parent.chmod(0o755)
        tree.write()
        yield tree


def as_nobody() -> None:
    os.setgroups([])
    os.setgid(NOBODY)
    os.setuid(NOBODY)


@as_root
def test_a_fix_by_root_leaves_the_owner(shared: Tree) -> None:
    path = shared.files[0]
    os.chown(path, NOBODY, NOBODY)
    path.chmod(0o640)
    assert run(shared.root).code == 0
    about = path.stat()
    assert (about.st_uid, about.st_gid, stat.S_IMODE(about.st_mode)) == (NOBODY, NOBODY, 0o640)


@as_root
@pytest.mark.parametrize(
    ("mode", "folder_mode", "owner", "message"),
    [
        (0o444, 0o777, NOBODY, "the file is read-only"),
        (0o666, 0o555, NOBODY, "the file cannot be written: Permission denied"),
        (0o666, 0o777, 0, "the file belongs to another user or group and would become yours; let its owner fix it"),
        (0o600, 0o777, 0, "the file cannot be read; check that it exists and that you may read it"),
    ],
)
def test_what_may_not_be_written_is_reported_and_stays(
    shared: Tree, mode: int, folder_mode: int, owner: int, message: str
) -> None:
    path = shared.files[0]
    os.chown(path, owner, owner)
    path.chmod(mode)
    shared.root.chmod(folder_mode)
    before = path.stat()
    outcome = run(shared.root, *FIX, "a.py", prepare=as_nobody)
    assert outcome.code == 1
    assert message in outcome.output
    after = path.stat()
    assert (after.st_ino, after.st_uid, after.st_mode) == (before.st_ino, before.st_uid, before.st_mode)
    assert path.read_text() == old(path)
    assert shared.strangers() == []


# -- what is no ordinary file --------------------------------------------------------------------------------------------


def test_pipes_sockets_devices_and_directories_are_never_waited_for(here: Project) -> None:
    import socket

    here.write({"a.py": BAD, "d.py/x.py": BAD})
    for name in ("pipe.py", ".gitignore", "requirements.txt", "setup.cfg"):
        os.mkfifo(name)
    with socket.socket(socket.AF_UNIX) as end:
        end.bind("socket.py")
    result = in_process("fix", "--isolated", "-q", "pipe.py", "socket.py", "/dev/zero", "--output-format", "concise")
    assert result.exit_code == 1
    assert [line.split(" ", 1)[1] for line in result.stdout.splitlines()] == [
        "unreadable-file this is no regular file; `-` reads from standard input"
    ] * 3
    assert in_process("fix").exit_code == 0
    assert (Path("a.py").read_text(), Path("d.py/x.py").read_text()) == (GOOD, GOOD)


def test_a_file_that_is_too_large_is_skipped(here: Project) -> None:
    here.write({"a.py": BAD})
    os.truncate("a.py", MAX_FILE_BYTES + 1)
    assert read_file("a.py") is None
    result = in_process("check", "--isolated", "--output-format", "concise")
    assert "a.py:1:1: unreadable-file the file is larger than 8 MiB; leave it out with `exclude`" in result.stdout


def test_a_long_name_with_spaces_and_newlines_is_fixed(here: Project) -> None:
    name = "a b\n" + "n" * 248 + ".py"
    Path(name).write_text(BAD)
    assert in_process("fix", "--isolated").exit_code == 0
    assert Path(name).read_text() == GOOD


def test_a_file_that_vanishes_before_it_is_read_is_reported(here: Project) -> None:
    known = Known(str(here.root), [str(here.root / "gone.py")])
    assert known.read(str(here.root / "gone.py")) is None


# -- surroundings --------------------------------------------------------------------------------------------------------


def test_a_full_disk_behind_the_output_is_one_line(here: Project) -> None:
    here.write({"a.py": BAD})
    if not os.path.exists("/dev/full"):
        pytest.skip("needs /dev/full")
    for arguments in (("check",), ("fix", "--diff"), ("check", "--output-format", "json")):
        outcome = run(here.root, *arguments, prepare=_output_to_full_disk)
        assert outcome.code == 2
        assert outcome.output == "Error: the output cannot be written: No space left on device\n"


def _output_to_full_disk() -> None:
    sys.stdout = io.TextIOWrapper(io.FileIO("/dev/full", "w"))


def test_closed_streams_are_no_error(here: Project) -> None:
    here.write({"a.py": BAD})
    code = "import os, sys; os.closerange(0, 3); sys.stdin = sys.stdout = sys.stderr = None; sys.argv = ['perflint', 'fix']\n"
    code += "from perflint.cli import main; main()"
    assert in_subprocess(code=code, cwd=here.root).returncode == 0
    assert Path("a.py").read_text() == GOOD


def test_a_reader_that_leaves_early_is_no_error(here: Project) -> None:
    here.write({"a.py": BAD * 2000})
    reading, writing = os.pipe()
    os.close(reading)

    def prepare() -> None:
        sys.stdout = io.TextIOWrapper(io.FileIO(writing, "w"))

    outcome = run(here.root, "check", prepare=prepare)
    os.close(writing)
    assert (outcome.code, outcome.output) == (1, "")


def test_a_working_directory_that_is_gone_is_one_line() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "gone"
        folder.mkdir()
        outcome = run(folder, "check", prepare=folder.rmdir)
    assert (outcome.code, outcome.output) == (
        2,
        "Error: the working directory does not exist any more; change to another one\n",
    )


def test_no_home_is_needed(here: Project) -> None:
    here.write({"a.py": BAD})
    code = "import os, sys; [os.environ.pop(n, None) for n in ('HOME', 'USER')]; sys.argv = ['perflint', 'check']\n"
    code += "from perflint.cli import main; main()"
    assert in_subprocess(code=code, cwd=here.root).returncode == 1
