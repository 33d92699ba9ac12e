"""The command line of the probe: run a script as `python SCRIPT ARGS` would, then write the record."""

import argparse
import json
import os
import runpy
import sys
import time
import traceback
from pathlib import Path
from types import TracebackType

HERE = Path(__file__).resolve().parent
if __package__ in (None, ""):  # started by its path, from another environment
    sys.path[0] = str(HERE.parent)

from perflint_probe.compilation import Compilation  # noqa: E402
from perflint_probe.notebook import run_notebook  # noqa: E402
from perflint_probe.profiling import Profiling  # noqa: E402
from perflint_probe.recorder import Limit, Recorder, Stopped, after_import_of_torch  # noqa: E402


def main() -> int:
    """Run the script under a recorder. The exit code is the script's own."""
    parser = argparse.ArgumentParser(prog="perflint_probe", description=__doc__)
    parser.add_argument("--record", required=True, type=Path)
    parser.add_argument("--mode", required=True, choices=["time", "count", "profile", "compile"])
    parser.add_argument("--project", type=Path, help="the folder whose loaded modules are listed")
    parser.add_argument("--not-from", type=Path, help="a folder from which nothing should be loaded")
    parser.add_argument("--steps", type=int, default=20, help="how many steps torch's profiler records in a profile")
    parser.add_argument("--max-steps", type=int, help="after how many optimizer steps the script is stopped")
    parser.add_argument("--max-seconds", type=float, help="it is stopped with the first step that ends after so long")
    parser.add_argument("--text", type=Path, help="the Python text of the script, which is a notebook")
    parser.add_argument("--keep", type=Path, help="a file for the final parameters and the optimizers' state")
    parser.add_argument("script")
    parser.add_argument("args", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    profiling = Profiling(options.project, options.steps) if options.mode == "profile" else None
    limit = Limit(options.max_steps, options.max_seconds)
    compiles = options.mode == "compile"
    recorder = Compilation(options.project, True, limit) if compiles else Recorder(options.mode, profiling, limit)
    after_import_of_torch(recorder.install)
    sys.argv = [options.script, *options.args]
    sys.path[0] = str(Path(options.script).resolve().parent)
    process = os.getpid()
    status, error = 0, None
    started = time.perf_counter()
    try:
        if options.text is not None:
            run_notebook(options.text.read_text(encoding="utf-8"), options.script)
        else:
            runpy.run_path(options.script, run_name="__main__")
    except Stopped:
        pass
    except SystemExit as end:
        status, error = _exit_status(end)
    except BaseException as problem:  # a KeyboardInterrupt of the script's is its end, too
        status, error = 1, "".join(traceback.format_exception_only(type(problem), problem)).strip()
        traceback.print_exception(type(problem), problem, _of_script(problem.__traceback__, options.script))
    if os.getpid() != process:  # a child that the script forked: not the run that is recorded
        return status
    sys.stdout.flush()
    record = recorder.finish(time.perf_counter() - started)
    if options.keep is not None and isinstance(recorder, Recorder):
        recorder.keep(options.keep)
    record |= {
        "exit_status": status,
        "error": error,
        "modules": _loaded_from(options.project, options.script),
        "foreign": _loaded_from(options.not_from, None),
    }
    options.record.write_text(json.dumps(record), encoding="utf-8")
    return status


def _loaded_from(folder: Path | None, script: str | None) -> list[str]:
    """The source files below a folder that the run loaded; the probe and the runtime are not the project's."""
    if folder is None:
        return []
    names: list[str | None] = [script]
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] not in ("perflint_probe", "perflint_runtime", "__main__"):
            names.append(getattr(module, "__file__", None))
    root = folder.resolve()
    paths = {Path(name).resolve() for name in names if name is not None}
    # torch.classes says that its file is `_classes.py`
    inside = {path.relative_to(root) for path in paths if path.suffix in (".py", ".ipynb") and root in path.parents}
    inside = {path for path in inside if (root / path).is_file()}
    return sorted(str(path) for path in inside if "site-packages" not in path.parts)


def _exit_status(end: SystemExit) -> tuple[int, str | None]:
    if end.code is None:
        return 0, None
    if isinstance(end.code, int):
        return end.code, None if end.code == 0 else f"the script ended with exit code {end.code}"
    print(end.code, file=sys.stderr)
    return 1, str(end.code)


def _of_script(frames: TracebackType | None, script: str) -> TracebackType | None:
    """The traceback from the script's first frame on; if there is none, without the probe's and runpy's frames."""
    first = frames
    while first is not None and first.tb_frame.f_code.co_filename != script:
        first = first.tb_next
    if first is not None:
        return first
    ours = {str(HERE / "__main__.py"), str(HERE / "notebook.py"), __file__, runpy.__file__, "<frozen runpy>"}
    while frames is not None and frames.tb_frame.f_code.co_filename in ours:
        frames = frames.tb_next
    return frames


if __name__ == "__main__":
    sys.exit(main())
