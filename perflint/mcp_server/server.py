"""The tools: their names, their parameters, and what an agent is told about them."""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Callable, Sequence
from importlib.metadata import version
from typing import Annotated, Any, Literal, ParamSpec, TypeVar

from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import ToolAnnotations
from pydantic import Field

from perflint.mcp_server.verifying import verify
from perflint.mcp_server.workspace import Refused, Workspace
from perflint.report.explain import listing_json, other_pages, page
from perflint.rule.finding import Severity
from perflint.rule.registry import all_rules

INSTRUCTIONS = """\
perflint finds what makes PyTorch training and evaluation code slow. `check` reports findings; a fix is `safe` (the program
computes the same with it), `assuming` (it does if the named assumptions about the project hold), or `unsafe` (read
`missing_proofs` and the rule's page before you apply one). `fix` shows a patch, and writes only with `apply`. No tool runs the
user's code but `verify`."""

Paths = Annotated[Sequence[str], Field(description="Files and folders, relative to the workspace's root.")]
Select = Annotated[Sequence[str], Field(description="Only these rules or groups; all that run by default if empty.")]
Severities = Literal["error", "warning", "info"]
Given = ParamSpec("Given")
Answer = TypeVar("Answer")

_READS = ToolAnnotations(read_only_hint=True, open_world_hint=False)
_WRITES = ToolAnnotations(read_only_hint=False, destructive_hint=True, idempotent_hint=True, open_world_hint=False)
_RUNS = ToolAnnotations(read_only_hint=False, destructive_hint=True, idempotent_hint=False, open_world_hint=True)


def serve(root: str, python: str | None, *, may_run: bool) -> None:
    """Serve an agent over standard input and output.

    root: the folder outside of which nothing is read or written. python: the interpreter that `verify` runs scripts with.
    may_run: whether there is a tool that runs code.
    """
    make(Workspace(root, all_rules()), python, may_run=may_run).run("stdio")


def make(workspace: Workspace, python: str | None, *, may_run: bool) -> MCPServer[Any]:
    """The server with its tools."""
    server: MCPServer[Any] = MCPServer(
        "perflint", instructions=INSTRUCTIONS, version=version("perflint-torch"), log_level="WARNING"
    )
    rules, others = {rule.name: rule for rule in workspace.rules}, other_pages(workspace.rules)

    def served(tool: Callable[Given, Answer]) -> Callable[Given, Answer]:
        """A tool that says what it refuses."""

        @functools.wraps(tool)
        def call(*args: Given.args, **kwargs: Given.kwargs) -> Answer:
            try:
                return tool(*args, **kwargs)
            except Refused as reason:
                raise ToolError(str(reason)) from None

        return call

    @server.tool(annotations=_READS)
    @served
    def check(
        paths: Paths = (".",),
        select: Select = (),
        least_severity: Annotated[Severities, Field(description="Leave out findings below it.")] = "info",
        limit: Annotated[int, Field(ge=1, le=1000, description="At most so many findings, the worst first.")] = 100,
    ) -> dict[str, Any]:
        """Report what is slow. Nothing is run or written.

        Each finding has the keys of `perflint check --output-format json`. `fix.edits` are all edits of the file that the fix
        needs, imports included: `start_byte` and `end_byte` are offsets in the file's bytes, rows and columns count from 1 in
        characters, `content` is the new text. They hold for the file whose digest is `fix.sha256`; apply those of one finding,
        then check again. `fix.edits` is null where only `fix` can write: in notebooks, and where the text cannot be rewritten.
        """
        return workspace.check(paths, select, Severity(least_severity), limit)

    @server.tool(annotations=_WRITES)
    @served
    def fix(
        paths: Paths = (".",),
        select: Select = (),
        assume: Annotated[
            Sequence[str],
            Field(description="Also apply fixes that rest on these assumptions; only what the user has confirmed."),
        ] = (),
        unsafe: Annotated[bool, Field(description="Also apply unsafe fixes; ask the user first.")] = False,
        apply: Annotated[bool, Field(description="Write the files; otherwise only the patch is returned.")] = False,
    ) -> dict[str, Any]:
        """Fix what is slow: safe fixes, and those that rest on assumptions which the project's configuration declares.

        Returns the patch, which `git apply` takes. Files are written only with `apply`, and only inside of the workspace.
        """
        return workspace.fix(paths, select, assume, unsafe=unsafe, apply=apply)

    @server.tool(annotations=_READS)
    @served
    def explain(name: Annotated[str, Field(description="A rule, a group or an assumption.")]) -> str:
        """The page of a rule, group or assumption: what it finds, why that is slow, what to write, when its fix is safe."""
        if name in rules:
            return page(rules[name])
        if name in others:
            return others[name]
        raise Refused(f"there is no rule or assumption named {name!r}; the tool `rules` lists the rules")

    @server.tool(name="rules", annotations=_READS)
    @served
    def list_rules() -> dict[str, Any]:
        """All rules: name, group, severity, whether a rule runs by default and offers fixes, what it finds."""
        return {"rules": json.loads(listing_json(workspace.rules))}

    if may_run:

        @server.tool(name="verify", annotations=_RUNS)
        @served
        def verify_script(
            script: Annotated[str, Field(description="A training script, relative to the workspace's root.")],
            arguments: Annotated[Sequence[str], Field(description="What the script is called with.")] = (),
            max_steps: Annotated[int, Field(ge=1, description="Stop each run after so many optimizer steps.")] = 50,
            repeats: Annotated[int, Field(ge=2, le=50, description="Timed runs of each version; 6 say a speed.")] = 2,
            unsafe: Annotated[bool, Field(description="Apply unsafe fixes, too.")] = False,
            timeout_s: Annotated[float, Field(gt=0, le=3600, description="Give up after so long.")] = 600,
        ) -> dict[str, Any]:
            """RUNS the user's script, as it is and with the fixes, in copies of the workspace; compares results and speed.

            The only tool that runs code, with all rights of the user: ask before you call it. The workspace's own files stay as
            they are.
            """
            path = workspace.path(script)
            if not os.path.isfile(path):
                raise Refused(f"{script!r} is no file")
            options = ["--max-steps", str(max_steps), "--repeats", str(repeats)]
            options += ["--unsafe-fixes"] if unsafe else []
            options += ["--python", python] if python is not None else []
            return verify(workspace.root, path, arguments, options, timeout_s)

    return server
