"""Copies of whole tensors that a list takes, as a `HostList` makes them without a wait: no rule by itself."""

import ast
from collections.abc import Iterator, Mapping

from perflint.api import CannotRewrite, Code, Edit, HostRead, Kind, Obligation, ReadKind, Tensor, delete_statement, replace
from perflint_rules.quiet_code import writes_between


def named_copies(code: Code, reads: Mapping[ast.expr, HostRead]) -> dict[ast.expr, ast.expr]:
    """The places of names that stand for a copy and are used there alone, with what makes the copy."""
    flow, found = code.flow, dict[ast.expr, ast.expr]()
    for definition in flow.definitions:
        copy, name = definition.value, definition.name
        if copy is None or definition.kind != "assign" or definition.index or not flow.binds_alone(definition.node):
            continue
        if copy not in reads or reads[copy].kind is not ReadKind.COPY:
            continue
        if code.scope.is_module or name in flow.inner_names | flow.outer_names:
            continue
        uses = [*flow.uses[definition]]
        if len(uses) == 1 and flow.reaching.get(uses[0]) == frozenset((definition,)):
            found[uses[0]] = copy
    return found


def open_about_names(code: Code, reads: Mapping[ast.expr, HostRead], use: ast.expr, copy: ast.expr) -> Iterator[Obligation]:
    """What is not proved about making a copy where its name is used."""
    first = code.flow.statement(copy)
    beside = code.flow.siblings(first)
    if code.flow.statement(use) not in beside[beside.index(first) + 1 :][:1]:
        yield Obligation(Kind.ERRORS_ARE_BUGS, "an error of the copy would be raised where the list takes it")
    if writes_between(code, first, use, [reads[copy]]):
        copies = [read for read in reads.values() if read.kind is ReadKind.COPY]
        text = ast.unparse(reads[copy].tensor)
        if writes_between(code, first, use, copies):
            yield Obligation(Kind.MUTATION, f"`{text}` may change before the list takes its copy")
        else:
            yield Obligation(Kind.PLAIN_OBJECTS, f"what is copied after `{text}` may be no tensor, and do more")


def renamed(code: Code, copy: ast.expr, tensor: str) -> Edit:
    """Give the name of a copy to its tensor instead, if that has another one."""
    statement = code.flow.statement(copy)
    if isinstance(statement, ast.Assign) and tensor == ast.unparse(statement.targets[0]):
        return delete_statement(code.source, statement, code.flow.siblings(statement))
    return replace(code.source, copy, tensor)


def copied(code: Code, copy: ast.expr, name: str = "") -> tuple[str, str, str]:
    """What a list takes where `x.cpu()` (a copy), `x.cpu().numpy()` (an array) or `x.tolist()` (a list) stands, and of what.

    name: for the tensor that is copied, which is the last part of the answer.

    Raises:
        CannotRewrite: the copy is made in another way.

    """
    names, tensor, is_explicit = _ways_to_host(copy)
    is_list = names[:1] == ["tolist()"]
    del names[:is_list]
    is_array = names[:1] == ["numpy()"]
    del names[:is_array]
    is_known = code.value(tensor).must(lambda a: isinstance(a, Tensor)) or not (is_explicit and names)
    after = [] if is_known else names  # what the copy is asked for, by whatever object has made it
    if not {*after} <= {"detach()"} or {"numpy()", "tolist()"} & {*names} or (not is_explicit and (is_array or not is_list)):
        raise CannotRewrite("the copy is made in another way")
    names = names if is_known else []
    text = code.text(tensor)
    if names and not isinstance(tensor, (ast.Name, ast.Attribute, ast.Call, ast.Subscript)):
        text = f"({text})"
    through = [*(f'"{name[:-2]}"' for name in reversed(after))]
    if is_list:
        through = [*['"cpu"'][:is_explicit], *through, *['"numpy"'][:is_array]]
    tensor_text = ".".join((text, *reversed(names)))
    return "list" if is_list else "array" if is_array else "copy", ", ".join((name or tensor_text, *through)), tensor_text


def _ways_to_host(copy: ast.expr) -> tuple[list[str], ast.expr, bool]:
    """What is done with a copy, the last first, what is copied, and whether `cpu` says so."""
    node, names = copy, list[str]()
    while True:
        match node:
            case (
                ast.Call(func=ast.Attribute(value=inner, attr="cpu"), args=[], keywords=[])
                | ast.Call(func=ast.Attribute(value=inner, attr="to"), args=[ast.Constant(value="cpu")], keywords=[])
            ):
                return names, inner, True
            case ast.Call(func=ast.Attribute(value=inner, attr="numpy" | "detach" | "tolist" as name), args=[], keywords=[]):
                names.append(f"{name}()")
            case ast.Attribute(value=inner, attr="data"):
                names.append("data")
            case _:
                return names, node, False
        node = inner
