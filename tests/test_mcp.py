"""`perflint mcp`, called by the client of the protocol's own SDK over standard input and output."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import sys
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from conftest import BAD, FIXTURES, GOOD, HANG_S, TRACE, Project, in_process
from mcp import Client, StdioServerParameters

RULE = "no-grad-without-call"
PROGRAM = FIXTURES / "programs" / "lstm"
TOOLS = ["check", "explain", "fix", "rules", "verify"]


class Agent:
    """An agent that calls the tools."""

    def __init__(self, client: Client) -> None:
        self.client = client

    async def call(self, tool: str, **arguments: Any) -> Any:
        """What a tool answers."""
        answer = await asyncio.wait_for(self.client.call_tool(tool, arguments), HANG_S)
        assert not answer.is_error, answer.content
        return answer.structured_content

    async def refusal(self, tool: str, **arguments: Any) -> str:
        """Why a tool does not do what it is asked."""
        answer = await asyncio.wait_for(self.client.call_tool(tool, arguments), HANG_S)
        assert answer.is_error
        (said,) = answer.content
        return str(said.text)  # type: ignore[union-attr]


def ask(root: Path, scenario: Callable[[Agent], Awaitable[None]], *arguments: str, here: Path | None = None) -> None:
    """Run what a test does with a server for a folder."""
    command = ["-m", "perflint", "mcp", *(arguments if here is None else ("--root", str(root), *arguments))]
    server = StdioServerParameters(command=sys.executable, args=command, cwd=here or root, env=dict(os.environ))

    async def served() -> None:
        async with Client(server) as client:
            await scenario(Agent(client))

    asyncio.run(served())


def texts(root: Path) -> dict[str, bytes]:
    """All files below a folder."""
    return {str(path.relative_to(root)): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}


def applied(data: bytes, edits: Sequence[dict[str, Any]]) -> bytes:
    for edit in sorted(edits, key=lambda e: int(e["start_byte"]), reverse=True):
        data = data[: edit["start_byte"]] + edit["content"].encode() + data[edit["end_byte"] :]
    return data


def test_the_tools_and_what_they_may_do(tmp_path: Path) -> None:
    async def scenario(agent: Agent) -> None:
        tools = {tool.name: tool for tool in (await agent.client.list_tools()).tools}
        assert sorted(tools) == TOOLS
        reading = [name for name, tool in sorted(tools.items()) if tool.annotations and tool.annotations.read_only_hint]
        assert reading == ["check", "explain", "rules"]
        listed = (await agent.call("rules"))["rules"]
        assert RULE in [rule["name"] for rule in listed]
        assert "## Fix safety" in (await agent.call("explain", name=RULE))["result"]
        assert "one-stream" in (await agent.call("explain", name="ordinary"))["result"]
        assert "item-every-step" in (await agent.call("explain", name="device-sync"))["result"]
        assert "no rule or assumption" in await agent.refusal("explain", name="no-such-rule")

    ask(tmp_path, scenario)


def test_a_finding_carries_all_that_is_needed_to_apply_its_fix(project: Project) -> None:
    """A file with a mark, CRLF and letters of several bytes, and a fix that needs an import."""
    loop = "def train(model, loader):\r\n    # é😀\r\n    for x in loader:\r\n        y = model(x.to('cuda'))\r\n"
    evaluate = "def evaluate(model, x):\r\n    model.eval()\r\n    with no_grad:\r\n        return model(x)\r\n"
    text = f"\ufefffrom torch import no_grad\r\nname = 'é😀'\r\n{evaluate}{loop}"
    project.write({"a.py": text, "perflint.toml": ""})
    data = (project.root / "a.py").read_bytes()

    async def scenario(agent: Agent) -> None:
        answer = await agent.call("check", paths=["a.py"])
        assert answer["files_checked"] == 1
        fixable = [finding for finding in answer["findings"] if finding["fix"] is not None]
        assert fixable
        for finding in fixable:
            fix = finding["fix"]
            assert fix["sha256"] == hashlib.sha256(data).hexdigest()
            assert fix["applicability"] in ("safe", "assuming", "unsafe")
            after = applied(data, fix["edits"])
            assert after.startswith(data[:3])
            assert after.count(b"\n") == after.count(b"\r\n")
            (project.root / "a.py").write_bytes(after)
            left = (await agent.call("check", paths=["a.py"]))["findings"]
            assert len(left) < len(answer["findings"])
            (project.root / "a.py").write_bytes(data)
            for edit in fix["edits"]:
                row, column = edit["location"]["row"], edit["location"]["column"]
                lines = data.decode("utf-8-sig").split("\n")
                before = "\n".join([*lines[: row - 1], lines[row - 1][: column - 1]])
                assert len(before.encode()) + 3 == edit["start_byte"]

    ask(project.root, scenario)


def test_edits_of_a_notebook_are_those_of_its_json(project: Project) -> None:
    cell = {"cell_type": "code", "metadata": {}, "outputs": [], "execution_count": None}
    cells = [cell | {"source": "s = '\u00e9'"}, cell | {"source": ["import torch\n", "with torch.no_grad:\n", "    x = 1"]}]
    data = json.dumps(
        {"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}, indent=1, ensure_ascii=False
    ).encode()
    (project.root / "a.ipynb").write_bytes(data)

    async def scenario(agent: Agent) -> None:
        (finding,) = (await agent.call("check", paths=["a.ipynb"]))["findings"]
        fixed = applied(data, finding["fix"]["edits"])
        await agent.call("fix", paths=["a.ipynb"], apply=True)
        assert (project.root / "a.ipynb").read_bytes() == fixed != data

    ask(project.root, scenario)


def test_edits_bring_the_imports_that_they_need(project: Project) -> None:
    project.write(
        {"a.py": "from torch import ones, zeros\n\n\ndef f(model, x):\n    model.eval()\n    return model(x).item()\n"}
    )

    async def scenario(agent: Agent) -> None:
        (finding,) = (await agent.call("check", select=["eval-without-no-grad"]))["findings"]
        fixed = applied((project.root / "a.py").read_bytes(), finding["fix"]["edits"]).decode()
        assert "import torch\n" in fixed or "no_grad" in fixed.splitlines()[0]
        assert "no_grad()" in fixed

    ask(project.root, scenario)


def test_nothing_is_written_before_it_is_asked_for(project: Project) -> None:
    project.write({"a.py": BAD, "b.py": "x = 1\n", "perflint.toml": "unsafe-fixes = true\n"})
    before = texts(project.root)

    async def scenario(agent: Agent) -> None:
        shown = await agent.call("fix")
        assert texts(project.root) == before
        assert not shown["applied"]
        assert "+with torch.no_grad():\n" in shown["patch"]
        written = await agent.call("fix", paths=["a.py", "b.py"], apply=True)
        assert written["patch"] == shown["patch"]
        (changed,) = written["changed"]
        assert changed["filename"] == "a.py"
        assert changed["fixed"] == {RULE: 1}
        assert changed["sha256_after"] == hashlib.sha256(GOOD.encode()).hexdigest()
        assert (await agent.call("check"))["total"] == 0

    ask(project.root, scenario)
    assert texts(project.root) == before | {"a.py": GOOD.encode()}


def test_only_what_is_asked_for_is_applied(project: Project) -> None:
    project.write({"perflint.toml": "runtime = false", "training.py": (PROGRAM / "training.py").read_text()})
    unsafe = "import gc\n\n\ndef f(model, loader, o):\n    for x in loader:\n        model(x.cuda()).sum().backward()\n"
    project.write({"unsafe.py": f"import torch\n{unsafe}        o.step()\n        gc.collect()\n", "trace.py": TRACE})

    async def scenario(agent: Agent) -> None:
        safe = await agent.call("fix", select=["item-every-step"])
        assert (safe["changed"], safe["left"]["assuming"]) == ([], 1)
        assuming = await agent.call("fix", select=["item-every-step"], assume=["memory-to-spare"])
        assert [changed["fixed"] for changed in assuming["changed"]] == [{"item-every-step": 1}]
        assert (await agent.call("fix", select=["memory"]))["left"]["unsafe"] >= 1
        assert (await agent.call("fix", select=["memory"], unsafe=True))["left"]["unsafe"] == 0
        only = await agent.call("fix", select=["duplicate-item-read"])
        assert [set(changed["fixed"]) for changed in only["changed"]] == [{"duplicate-item-read"}]
        assert "no assumption is named" in await agent.refusal("fix", assume=["memory"])
        assert "no rule or group is named" in await agent.refusal("check", select=["no-such-rule"])

    ask(project.root, scenario)


def test_nothing_outside_of_the_workspace_is_read_or_written(tmp_path: Path) -> None:
    """Not by `..`, symbolic links, imports, configuration, or a repository that the workspace is part of."""
    root, outside = tmp_path / "repository" / "work", tmp_path / "outside"
    for folder in (root, outside, tmp_path / "repository" / ".git"):
        folder.mkdir(parents=True)
    (outside / "secret.py").write_text(BAD)
    (tmp_path / "repository" / "pyproject.toml").write_text("[tool.perflint]\nselect = ['no-such-rule']\n")
    (root / "link.py").symlink_to(outside / "secret.py")
    (root / "folder").symlink_to(outside)
    (root / "inner").mkdir()
    (root / "inner" / "a.py").write_text(BAD)
    (root / "inside.py").symlink_to(root / "inner" / "a.py")
    (root / "absolute").symlink_to("/")
    before = texts(tmp_path)

    async def scenario(agent: Agent) -> None:
        ways = [
            "../../outside/secret.py",
            str(outside / "secret.py"),
            "link.py",
            "folder",
            "folder/secret.py",
            "..",
            "absolute",
        ]
        for way in ways:
            for tool in ("check", "fix"):
                assert "outside of the workspace" in await agent.refusal(
                    tool, paths=[way], **({"apply": True} if tool == "fix" else {})
                )
            assert "outside of the workspace" in await agent.refusal("verify", script=way)
        assert "no such file" in await agent.refusal("check", paths=["absent.py"])
        assert [f["filename"] for f in (await agent.call("check"))["findings"]] == [os.path.join("inner", "a.py")]
        assert (await agent.call("check", paths=["inside.py"]))["total"] == 1
        (root / "perflint.toml").symlink_to(tmp_path / "repository" / "pyproject.toml")
        assert "outside of" in await agent.refusal("check")

    ask(root, scenario, here=outside)
    (root / "perflint.toml").unlink()
    assert texts(tmp_path) == before


def test_what_an_import_leads_to_outside_is_not_looked_at(tmp_path: Path) -> None:
    """The helper says that its result is on the CPU: with it there is no wait, without it nobody knows."""
    root, outside = tmp_path / "work", tmp_path / "outside"
    for folder in (root, outside):
        folder.mkdir()
    caller = (
        "import torch\nfrom helper import measure\n\ndef train(model, optimizer, loader):\n    for batch in loader:\n"
        "        loss = measure(model, batch.cuda())\n        loss.backward()\n        optimizer.step()\n"
        "        print(loss.item())\n"
    )
    (root / "train.py").write_text(caller)
    (root / "perflint.toml").write_text('extend-select = ["item-every-step"]\n')
    helper = "def measure(model, batch):\n    return model(batch).sum().cpu()\n"

    def findings(way: Callable[[Path], object]) -> list[str]:
        found: list[str] = []

        async def scenario(agent: Agent) -> None:
            way(root / "helper.py")
            found.extend(f["message"] for f in (await agent.call("check", paths=["train.py"]))["findings"])
            (root / "helper.py").unlink(missing_ok=True)

        ask(root, scenario)
        return found

    (outside / "helper.py").write_text(helper)
    absent = findings(lambda path: None)
    assert findings(lambda path: path.write_text(helper)) != absent
    assert findings(lambda path: path.symlink_to(outside / "helper.py")) == absent


def test_verify_can_be_left_out(tmp_path: Path) -> None:
    async def scenario(agent: Agent) -> None:
        assert sorted(tool.name for tool in (await agent.client.list_tools()).tools) == [
            name for name in TOOLS if name != "verify"
        ]

    ask(tmp_path, scenario, "--no-run")


SCRIPT = """
import sys
import torch
from torch.utils.checkpoint import checkpoint

torch.manual_seed(0)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for step in range(6):
    optimizer.zero_grad()
    loss = checkpoint(model, torch.ones(2, 4, requires_grad=True)).sum()
    loss.backward()
    optimizer.step()
    print(sys.argv[1], loss.item())
"""


@pytest.mark.slow
def test_verify_runs_the_script_in_a_copy_for_a_limited_time(project: Project) -> None:
    hangs = "import time\nimport torch\nopen('mark', 'w').close()\ntime.sleep(1000)\n"
    project.write({"train.py": SCRIPT, "hangs.py": hangs, "fails.py": "raise SystemExit('no data')\n"})
    project.write({"perflint.toml": 'extend-select = ["checkpoint-without-use-reentrant"]\n'})
    before = texts(project.root)

    async def scenario(agent: Agent) -> None:
        answer = await agent.call("verify", script="train.py", arguments=["--name"])
        assert answer["same_results"]
        assert answer["record"]["script"] == "train.py"
        assert answer["record"]["fixed_by_rule"] == {"checkpoint-without-use-reentrant": 1}
        assert "longer than 2 s" in await agent.refusal("verify", script="hangs.py", timeout_s=2)
        assert "no data" in await agent.refusal("verify", script="fails.py")

    ask(project.root, scenario)
    assert texts(project.root) == before


def test_without_its_extra_the_command_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith(("mcp", "perflint.mcp_server"))]:
        monkeypatch.delitem(sys.modules, name)
    for name in ("mcp", "mcp.server", "mcp.server.mcpserver"):
        monkeypatch.setitem(sys.modules, name, None)
    run = in_process("mcp")
    assert run.exit_code == 2
    (line,) = run.stderr.splitlines()
    assert "extra `mcp`" in line
