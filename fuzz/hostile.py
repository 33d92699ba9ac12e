"""Runs the cases of tests/test_hostile.py and records how many kinds of hostile input there are, and which got through.

python fuzz/hostile.py [--json FILE]
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree

from surroundings import record, write

ROOT = Path(__file__).resolve().parent.parent


def main() -> int:
    """Run the tests, print the counts, write the record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="write the record here")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        pytest = [sys.executable, "-m", "pytest", "-q", "tests/test_hostile.py", f"--junitxml={report}"]
        subprocess.run(pytest, cwd=ROOT, check=False, stdout=subprocess.DEVNULL)
        cases = list(ElementTree.parse(report).iter("testcase"))
    ended = Counter(next((part.tag for part in case if part.tag in ("failure", "error", "skipped")), "held") for case in cases)
    kinds = {(case.get("name") or "").partition("[")[0] for case in cases}
    figures = {
        "kinds": len(kinds),
        "inputs": len(cases) - ended["skipped"],
        "not_run": ended["skipped"],
        "escapes": ended["failure"] + ended["error"],
    }
    print(figures)
    if options.json is not None:
        write(options.json, record("python fuzz/hostile.py", figures, ["escapes"], ["pytest"]))
    return 1 if figures["escapes"] else 0


if __name__ == "__main__":
    sys.exit(main())
