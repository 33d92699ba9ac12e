"""Calls are found by what they call, whatever the code names it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from conftest import Project

from perflint.api import Code, Finding, Severity, rule
from perflint.project.project import Project as Files
from perflint.run.engine import check_bytes
from perflint.run.session import Session


@rule(category="autograd", severity=Severity.WARNING, calls=["torch.cuda.empty_cache"])
def check(code: Code) -> Iterator[Finding]:
    """Report each call."""
    for call in code.calls_to("torch.cuda.empty_cache"):
        yield code.finding(call, "called")


@pytest.mark.parametrize(
    "text",
    [
        "import torch\n\ndef f():\n    torch.cuda.empty_cache()\n",
        "from torch.cuda import empty_cache\n\ndef f():\n    empty_cache()\n",
        "from torch.cuda import empty_cache as ec\n\ndef f():\n    ec()\n",
        "from torch.cuda import (\n    empty_cache  # frees\n    as ec,\n)\n\ndef f():\n    def g():\n        ec()\n",
        "import torch\n\nec = torch.cuda.empty_cache\n\ndef f():\n    ec()\n",
        "import torch as t\n\nfree = t . cuda . empty_cache\nec = free\n\ndef f():\n    ec()\n",
    ],
)
def test_a_call_is_found_under_any_name(project: Project, text: str) -> None:
    assert found(project, text) == 1


@pytest.mark.parametrize(
    "text",
    [
        "import torch\nfrom mine import empty_cache as ec\n\ndef f():\n    ec()\n",
        "import torch\n\ndef empty_cache():\n    pass\n\ndef f():\n    empty_cache()\n",
        "import torch\n\nec = torch.cuda.empty_cache()\n\ndef f(ec):\n    ec()\n",
    ],
)
def test_what_only_shares_the_name_is_not(project: Project, text: str) -> None:
    assert found(project, text) == text.count("torch.cuda.empty_cache()")


def found(project: Project, text: str) -> int:
    path = project.root / "train.py"
    path.write_text(text, encoding="utf-8")
    session = Session(Files(str(project.root), [str(path)]), [check])
    return len(check_bytes(session, str(path), "train.py", text.encode()).findings)
