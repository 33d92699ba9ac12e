"""What can be configured: the one list of settings, from which they are checked, documented and described to editors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple

Kind = Literal["names", "flag", "text", "address", "table", "versions", "options"]

EXPECTED: Mapping[Kind, str] = {
    "names": "a list of strings",
    "flag": "true or false",
    "text": "a string",
    "address": "an address that begins with https://, http:// or file://",
    "table": "a table of lists",
    "versions": "a table of versions, each a string",
    "options": "a table of tables",
}
"""The values that a kind of setting takes, in words."""


class Setting(NamedTuple):
    """One key of `[tool.perflint]`.

    says: what it does, in Markdown. example: a value, as TOML. option: what says the same on the command line.
    """

    kind: Kind
    says: str
    example: str
    option: str = ""


SETTINGS: Mapping[str, Setting] = {
    "select": Setting(
        "names",
        "The rules that run, by name or group; `all` is every rule. Without it, all but those of severity `info`, and of "
        "the others no waits of a step, which the sync budget counts, and nothing that is worth little where it stands.",
        '["device-sync", "zero-grad-late"]',
        "--select",
    ),
    "extend-select": Setting(
        "names", "Rules or groups that run, too, such as advice.", '["sync-branch-on-tensor"]', "--extend-select"
    ),
    "ignore": Setting("names", "Rules or groups that do not run.", '["dataloader-no-pin-memory"]', "--ignore"),
    "exclude": Setting(
        "names",
        "Patterns of paths that are left out, as in .gitignore and relative to the configuration's folder. They replace the "
        "defaults: version control, environments, caches and build folders.",
        '["third_party/"]',
    ),
    "extend-exclude": Setting("names", "Patterns that are left out besides `exclude`.", '["notebooks/"]', "--exclude"),
    "per-file-ignores": Setting(
        "table",
        "For patterns of paths the rules or groups that do not run there.",
        '{ "tests/**" = ["all"] }',
    ),
    "runtime": Setting(
        "flag",
        "Whether fixes may import `perflint_runtime`, which the program then needs. Without it such fixes are shown, and say "
        "that they rest on it; with `false`, or where unsafe fixes are applied, they are not looked for.",
        "true",
        "--runtime/--no-runtime",
    ),
    "unsafe-fixes": Setting(
        "flag",
        "Whether `fix` applies fixes, too, that may change what the program computes.",
        "true",
        "--unsafe-fixes/--no-unsafe-fixes",
    ),
    "assume": Setting(
        "names",
        "What is declared about the project: fixes that rest on nothing else are applied like safe ones. See "
        "[assumptions](assumptions.md).",
        '["ordinary"]',
        "--assume",
    ),
    "respect-gitignore": Setting(
        "flag",
        "Whether paths that .gitignore names are left out.",
        "false",
        "--respect-gitignore/--no-respect-gitignore",
    ),
    "output-format": Setting("text", "How findings are printed.", '"full"', "--output-format"),
    "cache-dir": Setting(
        "text",
        "The folder in which results are remembered, relative to the configuration's folder; without it `.perflint_cache` at "
        "the project's root.",
        '".cache/perflint"',
        "--cache-dir",
    ),
    "baseline": Setting(
        "text",
        "A file of known findings, relative to the configuration's folder: only others are reported. See [CI](ci.md).",
        '"perflint-baseline.json"',
        "--baseline",
    ),
    "compiled": Setting(
        "names",
        "Functions, and classes whose `forward` runs compiled by `torch.compile` though nothing in the project shows it, by "
        "qualified name; with `*` classes only. What they call runs compiled, too.",
        '["package.models.*"]',
    ),
    "docs-url": Setting(
        "address",
        "Where this documentation is served. Links to the pages of rules in JSON, SARIF and terminals lead there; without it, "
        "JSON has `rules/NAME/`, relative to the site's root, and terminals open the rule's module.",
        '"https://docs.example.org/perflint/"',
    ),
    "target-versions": Setting(
        "versions",
        "The oldest versions of packages that the code is to run with. By default what the project's requirements admit.",
        '{ torch = "2.1" }',
    ),
    "options": Setting(
        "options",
        "Options of single rules: a table for each. `perflint rules --options` lists them, and a rule's page has its own.",
        "{ log-every-step = { period = 10 } }",
    ),
}
"""By the names of the keys, in the order of the reference."""
