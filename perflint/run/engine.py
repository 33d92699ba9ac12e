"""From a file's bytes to its findings, and from findings to a fixed file."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import filterfalse

from perflint.facts.autograd.evaluations import is_test
from perflint.facts.dataflow.flow import flow_of
from perflint.facts.training.loops import EVALUATION, never_runs_each_step
from perflint.facts.values.solver import TooExpensive
from perflint.project.files import why_unreadable
from perflint.project.project import Project
from perflint.rule.code import Code
from perflint.rule.finding import ENGINE, Finding, Severity
from perflint.rule.rule import Rule
from perflint.rule.suppress import apply as without_suppressed
from perflint.run.any_order import in_any_order
from perflint.run.budget import loops_with_waits, may_train
from perflint.run.outcome import INTERNAL_ERROR, INVALID_SYNTAX, Budget, Checked, Item, StepWait
from perflint.run.session import Session
from perflint.source.cells import HIDDEN
from perflint.source.gate import Gate, Needles
from perflint.source.source import Source, SourceError
from perflint.source.syntax import Module, Scope, SyntaxProblem, TooDeep, parse
from perflint.source.words import made

UNREADABLE_FILE = "unreadable-file"

TOO_EXPENSIVE = "the file was skipped, for its analysis takes too long; split its longest function, or leave the file out"

_ASYNC_ARGUMENT = made(r"[(,]\s*async\s*=")

MAX_LINE = 300
"""A longer line is not shown to LibCST: its parser recurses on the C stack."""


def check_item(sessions: Sequence[Session], item: Item) -> Checked:
    """Check one file of a run. The text is dropped where nothing was found: only reports of findings need it."""
    session = sessions[item.session]
    for other in sessions:
        if other.project is not session.project:
            other.rest()
    checked = check_file(session, item.path, item.shown, always_parse=item.always_parse)
    if not checked.findings:
        checked.source = None
    return checked


def check_file(session: Session, path: str, shown: str, *, always_parse: bool = False) -> Checked:
    """Check one file of the project.

    path: absolute. shown: how reports name it. always_parse: parse the file even if no rule can fire in it, so that a
    syntax error is reported.
    """
    project = session.project
    project.trace.asked = 0
    data = project.read(path)
    if data is None:
        checked = Checked(shown, None, [_problem(UNREADABLE_FILE, _why_unread(project, path))])
    else:
        checked = check_bytes(session, path, shown, data, always_parse=always_parse)
    facts = tuple((question, project.answer(question)) for question in project.trace.questions())
    if project.is_settled and not any(finding.rule in (UNREADABLE_FILE, INTERNAL_ERROR) for finding in checked.findings):
        checked.facts = facts
    return checked


def _why_unread(project: Project, path: str) -> str:
    """What is wrong with a file of which the project has no text."""
    data = project.reader(path)
    if data is not None:
        from perflint.source.notebook import Notebook, NotebookError

        try:
            Notebook.parse(data)
        except NotebookError as error:
            return str(error)
    return why_unreadable(path)


def check_bytes(
    session: Session, path: str, shown: str, data: bytes, *, always_parse: bool = False, counts_waits: bool = True
) -> Checked:
    """Check a file's bytes, or the text of a notebook, which need not be those on disk.

    counts_waits: whether the outcome has sync budgets, which cost more than all rules in a file that trains.
    """
    session.counters.files += 1
    try:
        source = Source.decode(path, data)
    except SourceError as error:
        return Checked(shown, None, [_problem(UNREADABLE_FILE, f"{error.message} (line {error.row})")])
    ignored = session.ignores(path)
    needles = Needles(source.body)
    rules = [rule for rule in session.rules if rule.name not in ignored and rule.wants_file(needles)]
    rules = [rule for rule in rules if all(session.project.is_near(path, part) for part in rule.near.parts)]
    if any(rule.compiled for rule in rules) and not session.facts.compiled.may_reach(path):
        rules = [rule for rule in rules if not rule.compiled]
    wanted = _Wanted(needles, rules, near_training=any(r.steps for r in rules) and session.project.near_training(path))
    trains = may_train(source.body) and session.project.near_training(path)
    counts_waits = counts_waits and trains
    if not (wanted.possible or counts_waits or always_parse or b"perflint:" in source.body):
        return Checked(shown, source)
    module = session.module(path, source, data)
    session.facts.begin_file()
    wanted.cut(module)
    asked = wanted.possible or always_parse or b"perflint:" in source.body
    if not (asked or counts_waits):
        return Checked(shown, source)
    session.counters.parsed += 1
    try:
        _ = module.tree
    except SyntaxProblem as problem:
        return Checked(shown, source, [_syntax_problem(source, problem)] if asked else [])
    session.project.hold(path, module)
    try:
        findings = list(dict.fromkeys(_findings(session, module, wanted)))
        if source.cells is not None:
            findings = [*in_any_order(source, findings, partial(_apart, session)), *_broken_cells(source)]
    except TooExpensive:
        session.start_anew(module)
        return Checked(shown, source, [_problem(UNREADABLE_FILE, TOO_EXPENSIVE)])
    if always_parse and not any(f.category == ENGINE for f in findings):
        findings += _syntax_of_bodies(source)
    if source.cells is None and any(f.rule == INVALID_SYNTAX for f in findings):
        findings = [replace(f, fix=None) for f in findings]  # nothing is written to what is no Python
    findings.sort(key=lambda f: (f.start, f.end, f.rule, f.message))
    budget: list[Budget] = []
    if counts_waits:
        loops = _loops(session, module, shown, [*filter(session.shows, findings)], [*filterfalse(session.shows, findings)])
        budget = [counted for counted, _ in loops]
    kept = without_suppressed(source, findings, session.ran(ignored))  # a comment may silence what is not shown
    return Checked(shown, source, [*filter(session.shows, kept)], budget)


def _apart(session: Session, path: str, text: bytes) -> list[Finding]:
    """What is found in a text that belongs to no project."""
    options = replace(session.options, runtime=session.facts.has_runtime or session.options.runtime)
    alone = Session(Project(os.path.dirname(path), [path], {path: text}.get), session.rules, options, session.facts.versions)
    try:
        return check_bytes(alone, path, path, text).findings
    finally:
        alone.rest()


def _broken_cells(source: Source) -> Iterator[Finding]:
    """The cells of a notebook that are no Python: they were left out."""
    for head in source.cells.heads if source.cells is not None else ():
        if head.problem is not None:
            row, column, message = head.problem
            line = source.line(head.row + row).partition(HIDDEN)
            at = source.starts[head.row + row - 1] + len(f"{line[0]}{line[1]}{line[2][: column - 1]}".encode())
            yield _problem(INVALID_SYNTAX, message + _hint(line[2]), at, at)


class _Wanted:
    """Which rules want to see which scopes of a file.

    near_training: whether the file belongs to a program that trains. If not, and if it evaluates nothing, rules about code that
    runs each step do not get it.
    """

    def __init__(self, needles: Needles, rules: Sequence[Rule], near_training: bool) -> None:
        self._needles = needles
        near = near_training or needles.opens(EVALUATION)
        self._rules = [rule for rule in rules if near or not rule.steps]
        self._gates: dict[str, Gate] = {}
        self._texts: dict[str, int] = {}
        self._index: dict[int, int] = {}

    @property
    def possible(self) -> bool:
        """Whether any rule may fire in the file."""
        return bool(self._rules)

    def cut(self, module: Module) -> None:
        """Look at the file's functions one by one."""
        self._needles.cut([(chunk.start, chunk.end) for chunk in module.chunks])
        self._index = {chunk.start: index for index, chunk in enumerate(module.chunks, 1)}
        for rule in self._rules:
            gate = self._gates[rule.name] = rule.gate_in(module.source)
            self._texts[rule.name] = self._needles.texts(gate)
        self._rules = [rule for rule in self._rules if self._texts[rule.name]]

    def by(self, scope: Scope) -> list[Rule]:
        """The rules for a scope."""
        chunk = scope.chunk
        if chunk is not None:
            index = self._index[chunk.start]
            rules = [rule for rule in self._rules if self._texts[rule.name] >> index & 1]
            if any(rule.steps for rule in rules) and (never_runs_each_step(scope) or is_test(scope)):
                rules = [rule for rule in rules if not rule.steps]
            return rules
        needles = Needles(scope.text)
        return [rule for rule in self._rules if needles.texts(self._gates[rule.name])]


def _findings(session: Session, module: Module, wanted: _Wanted) -> Iterator[Finding]:
    commented = b"perflint:" in module.source.body  # a comment may silence what is not shown
    for scope, rules in _scopes(module, wanted):
        for rule in rules:
            shows_info = commented or session.shows_info(rule.name)
            try:
                for finding in rule.check(Code(rule, scope, session.facts, session.options, shows_info=shows_info)):
                    yield replace(finding, function=scope.qualname)
            except SyntaxProblem as problem:
                yield _syntax_problem(module.source, problem)
            except RecursionError:
                session.start_anew(module)
                yield _syntax_problem(module.source, _too_deep(scope))
                break
            except TooExpensive:
                raise
            except Exception as error:
                session.start_anew(module)
                yield _internal_error(module.source, scope, rule, error)


def _loops(
    session: Session, module: Module, shown: str, findings: Sequence[Finding], quiet: Sequence[Finding] = ()
) -> list[tuple[Budget, frozenset[StepWait]]]:
    try:
        return loops_with_waits(session.facts, module, shown, findings, quiet)
    except (RecursionError, TooExpensive):
        session.start_anew(module)
        return []


def _internal_error(source: Source, scope: Scope, rule: Rule, error: Exception) -> Finding:
    """What is said of a rule that raised what no rule may raise; where, goes to the log, without one to standard error."""
    import logging

    logging.getLogger(__name__).error("the rule %s failed in %s, %s", rule.name, source.path, _named(scope), exc_info=error)
    whose = "a bug in perflint or in a rule pack: please report it"
    start = source.starts[scope.row - 1]
    return _problem(INTERNAL_ERROR, f"the rule {rule.name} failed in {_named(scope)}: {error!r}; this is {whose}", start, start)


def _too_deep(scope: Scope) -> TooDeep:
    return TooDeep(_named(scope), scope.row)


def _named(scope: Scope) -> str:
    return "the module's own code" if scope.is_module else f"`{scope.qualname}`"


def _scopes(module: Module, wanted: _Wanted) -> Iterator[tuple[Scope, list[Rule]]]:
    """The scopes of a file that some rules may want, with these: its own code, its functions, the functions inside those."""
    pending = [module.top, *module.functions()]
    while pending:
        scope = pending.pop(0)
        rules = wanted.by(scope)
        if not rules:
            continue
        yield scope, rules
        if not scope.may_hold_functions:
            continue
        try:
            flow = flow_of(scope)
        except (SyntaxProblem, RecursionError):
            continue
        pending[:0] = [flow.inner_scope(node) for node in flow.inner]


def _syntax_of_bodies(source: Source) -> list[Finding]:
    try:
        parse(source.body.decode())
    except SyntaxProblem as problem:
        return [_syntax_problem(source, problem)]
    return []


def _problem(name: str, message: str, start: int = 0, end: int = 0) -> Finding:
    return Finding(name, Severity.ERROR, ENGINE, message, start, end)


def _syntax_problem(source: Source, problem: SyntaxProblem) -> Finding:
    row = min(max(problem.row, 1), len(source.starts))
    line_start = source.starts[row - 1]
    column = len(source.line(row)[: max(problem.column - 1, 0)].encode())
    start = min(line_start + column, len(source.body))
    if isinstance(problem, TooDeep):
        return _problem(UNREADABLE_FILE, problem.message, start, start)
    return _problem(INVALID_SYNTAX, problem.message + _hint(source.line(row)), start, start)


def _hint(line: str) -> str:
    """What to do when a line that this Python cannot parse is of an older one, or may be of a newer one.

    LibCST's grammar is ahead of Python's.
    """
    if _ASYNC_ARGUMENT.search(line):
        return "; `async` is a keyword since Python 3.7: the argument is `non_blocking` since torch 0.4"
    statement = line.strip() + (" pass" if line.rstrip().endswith(":") else "")
    if len(line) > MAX_LINE:
        return ""
    import libcst

    try:
        parse(statement)
    except SyntaxProblem:
        try:
            libcst.parse_module(statement)
        except libcst.ParserSyntaxError:
            return ""
        running = "{}.{}".format(*sys.version_info)
        return f"; this may be syntax newer than Python {running}, which runs perflint: run perflint with a newer Python"
    return ""
