"""What docs/generate.py writes about settings, assumptions and the runtime, from the code that has them."""

from __future__ import annotations

import ast
import dataclasses
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from perflint.interface import FORMATS
from perflint.project.config import Config
from perflint.project.settings import EXPECTED, SETTINGS, Kind, Setting
from perflint.report.explain import ASSUMPTION_PAGES, ENGINE_PAGES
from perflint.rule.assumptions import ASSUMPTIONS, ORDINARY
from perflint.rule.registry import all_rules

ROOT = Path(__file__).parent.parent
RUNTIME = ROOT / "runtime" / "perflint_runtime"

_STRINGS = {"type": "array", "items": {"type": "string"}}
_SHAPES: dict[Kind, dict[str, Any]] = {
    "names": _STRINGS,
    "flag": {"type": "boolean"},
    "text": {"type": "string"},
    "address": {"type": "string", "pattern": "^(https?|file)://[!-~]+$"},
    "table": {"type": "object", "additionalProperties": _STRINGS},
    "versions": {"type": "object", "additionalProperties": {"type": "string"}},
    "options": {"type": "object", "additionalProperties": {"type": "object"}},
}


def schema() -> str:
    """The JSON schema of `[tool.perflint]`, which is also that of perflint.toml."""
    rules = sorted({"all", *ENGINE_PAGES, *(name for rule in all_rules() for name in (rule.name, rule.category))})
    some_rules = {"type": "array", "items": {"anyOf": [{"enum": rules}, {"type": "string"}]}}
    special: dict[str, dict[str, Any]] = {
        **dict.fromkeys(("select", "extend-select", "ignore"), some_rules),
        "per-file-ignores": {"type": "object", "additionalProperties": some_rules},
        "assume": {"type": "array", "items": {"enum": [ORDINARY, *ASSUMPTIONS]}},
        "output-format": {"enum": list(FORMATS)},
        "options": {"type": "object", "additionalProperties": False, "properties": _options()},
    }
    properties = {
        name: {"description": _plain(setting.says), "default": _default(name), **special.get(name, _SHAPES[setting.kind])}
        for name, setting in SETTINGS.items()
    }
    whole = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "perflint",
        "description": "The table [tool.perflint] of a pyproject.toml, or the whole of a perflint.toml.",
        "type": "object",
        "additionalProperties": False,
        "properties": {
            name: {key: value for key, value in held.items() if key != "default" or value is not None}
            for name, held in properties.items()
        },
    }
    return json.dumps(whole, indent=2) + "\n"


def _options() -> dict[str, Any]:
    """What the options of each rule that has some take."""
    return {
        rule.name: {
            "type": "object",
            "additionalProperties": False,
            "properties": {
                option.name: {
                    "description": option.says,
                    **(_STRINGS if isinstance(option.default, tuple) else {"type": "integer", "minimum": 0}),
                }
                for option in rule.options
            },
        }
        for rule in all_rules()
        if rule.options
    }


def _plain(text: str) -> str:
    return re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text).replace("`", "")


def _default(name: str) -> Any:
    """The default of a setting, fit for JSON; None where there is none to name."""
    (field,) = (field for field in dataclasses.fields(Config) if field.name == name.replace("-", "_"))
    if name == "output-format":
        return FORMATS[0]
    if field.default is dataclasses.MISSING:
        return {}
    return list(field.default) if isinstance(field.default, tuple) else field.default


def configuration() -> str:
    """The reference of the settings."""
    head = """# Configuration

`[tool.perflint]` in the nearest `pyproject.toml`, or a `perflint.toml` without that name. The nearest file counts and is not
merged with others; unknown keys are errors, and so are both files in one folder. Options of the command line win: `--select`
starts anew, `--extend-select`, `--ignore`, `--exclude` and `--assume` add to what is configured. `--isolated` reads no file,
`--config FILE` reads this one for all.

Editors complete and check the table by [perflint.schema.json](perflint.schema.json), a JSON schema: in a `perflint.toml` by a
first line `#:schema PATH_OR_ADDRESS_OF_IT`, which TOML's language servers know.

"""
    rows = [f"| [`{name}`](#{name}) | {EXPECTED[setting.kind]} |" for name, setting in SETTINGS.items()]
    table = "\n".join(["| key | value |", "|---|---|", *rows])
    return head + "\n\n".join([table, *(_setting(name, setting) for name, setting in SETTINGS.items())]) + "\n"


def _setting(name: str, setting: Setting) -> str:
    default = _default(name)
    shown = f"`{json.dumps(default)}`" if default not in (None, [], {}) else "none"
    option = (
        f" On the command line: {' or '.join(f'`{part}`' for part in setting.option.split('/'))}." if setting.option else ""
    )
    example = f"```toml\n[tool.perflint]\n{name} = {setting.example}\n```"
    return f"## {name}\n\n{setting.says}\n\nBy default: {shown}.{option}\n\n{example}"


def assumptions() -> str:
    """The pages of all assumptions."""
    head = """# Assumptions

Some proofs are statements about a whole project that its owner can give in a word. A fix that rests on nothing else is marked
`assume` in reports, and is applied like a safe one where the assumptions are declared: in the configuration, or by `--assume`.

"""
    names = [ORDINARY, *ASSUMPTIONS]
    pages = [re.sub(r"^#", "##", ASSUMPTION_PAGES[name], flags=re.M) for name in names]
    return head + "\n\n".join(pages) + "\n"


def runtime() -> str:
    """The runtime's README, and a reference of all names that it exports."""
    text = (ROOT / "runtime" / "README.md").read_text(encoding="utf-8").rstrip()
    text = re.sub(r"\[([^\]]*)\]\((?!https?:|#)[^)]*\)", r"\1", text)
    entries = "\n\n".join(_name(name, node) for name, node in sorted(_exported(), key=lambda pair: pair[0].lower()))
    return f"{text}\n\n## All names\n\n{entries}\n"


def _exported() -> Iterator[tuple[str, ast.ClassDef | ast.FunctionDef]]:
    """The names that the runtime hands out, with their definitions; nothing is imported, so no torch is needed."""
    tree = ast.parse((RUNTIME / "__init__.py").read_text(encoding="utf-8"))
    wanted = {str(n.value) for n in ast.walk(tree) if isinstance(n, ast.Constant) and isinstance(n.value, str)}
    for path in sorted(RUNTIME.glob("*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, (ast.ClassDef, ast.FunctionDef)) and node.name in wanted:
                if not any(ast.unparse(decorator) == "overload" for decorator in node.decorator_list):
                    yield node.name, node


def _name(name: str, node: ast.ClassDef | ast.FunctionDef) -> str:
    made = node
    if isinstance(node, ast.ClassDef):
        made = next((m for m in node.body if isinstance(m, ast.FunctionDef) and m.name == "__init__"), node)
    arguments = ast.unparse(made.args) if isinstance(made, ast.FunctionDef) else ""
    arguments = re.sub(r"^self(?:, )?", "", arguments) if made is not node else arguments
    lines = [f"### {name}", "", f"```text\n{name}({arguments})\n```", "", _docstring(node)]
    if isinstance(node, ast.ClassDef):
        methods = [
            m for m in node.body if isinstance(m, ast.FunctionDef) and not m.name.startswith("_") and ast.get_docstring(m)
        ]
        lines += ["", *(f"- `{m.name}`: {_docstring(m).partition(chr(10) * 2)[0].replace(chr(10), ' ')}" for m in methods)]
    return "\n".join(lines).rstrip()


def _docstring(node: ast.ClassDef | ast.FunctionDef) -> str:
    text = ast.get_docstring(node) or ""
    return re.sub(r"^(Args|Raises|Returns|Yields):$\n((?:^(?: {4}.*)?$\n?)+)", _section, text + "\n", flags=re.M).rstrip()


def _section(found: re.Match[str]) -> str:
    items = re.sub(r"^ {4}(\S[^:\n]*):", r"- `\1`:", found[2], flags=re.M)
    items = re.sub(r"^ {4,}(?=\S)", "  ", items, flags=re.M)
    return f"{found[1]}:\n\n{items}\n"
