"""Batches of which the host still has what was copied to the device: no rule by itself."""

import ast

from perflint.api import Code, Definition, comes_from_host, copied_source, path_of, words

_LAYOUT = words("squeeze unsqueeze view reshape flatten long float int detach")


def upload_behind(code: Code, tensor: ast.expr) -> ast.Call | None:
    """The copy to the device that a tensor is the result of, if nothing changes its numbers meanwhile."""
    found = _made(code, tensor)
    if found is None:
        return _upload_in_a_branch(code, tensor)
    made, definitions = found
    source = copied_source(code.facts.inference, code.scope, made)
    if source is None or not isinstance(made, ast.Call):
        return None
    batch = comes_from_host(code.facts.inference, code.facts.loops, code.scope, source) or _is_part(code, source)
    written = any(_writes(code, use) for definition in definitions for use in code.flow.uses[definition])
    return made if batch and not written else None


def _upload_in_a_branch(code: Code, tensor: ast.expr) -> ast.Call | None:
    """The copy that one branch makes of what is on the host else: `if torch.cuda.is_available(): x = x.cuda()`."""
    definitions = sorted(code.flow.reaching.get(tensor, ()), key=lambda d: d.order)
    if not isinstance(tensor, ast.Name) or len(definitions) < 2:
        return None
    found = None
    for definition in definitions:
        bound = _part(definition.value, definition.index) if definition.kind == "assign" else None
        if not isinstance(bound, (ast.Name, ast.Call)) or any(_writes(code, use) for use in code.flow.uses[definition]):
            return None
        upload = upload_behind(code, bound) if isinstance(bound, ast.Call) else None
        if upload is None and not comes_from_host(code.facts.inference, code.facts.loops, code.scope, bound):
            return None
        found = found or upload
    return found


def _made(code: Code, tensor: ast.expr, depth: int = 4) -> tuple[ast.expr, list[Definition]] | None:
    """What an expression was made by, through names, layouts, and the tuples and dicts that hold it."""
    while isinstance(tensor, ast.Call) and isinstance(tensor.func, ast.Attribute) and tensor.func.attr in _LAYOUT:
        tensor = tensor.func.value
    if isinstance(tensor, ast.Call):
        return tensor, []
    named = tensor.value if isinstance(tensor, ast.Subscript) else tensor
    definitions = [*code.flow.reaching.get(named, ())] if isinstance(named, ast.Name) else []
    if len(definitions) != 1 or not depth:
        return None
    (definition,) = definitions
    if named is tensor:
        made = _part(definition.value, definition.index)
    else:
        assert isinstance(tensor, ast.Subscript)
        made = _held(code, definition, tensor.slice.value) if isinstance(tensor.slice, ast.Constant) else None
        definitions = []
    inner = _made(code, made, depth - 1) if made is not None else None
    return (inner[0], [*definitions, *inner[1]]) if inner is not None else None


def _held(code: Code, definition: Definition, key: object) -> ast.expr | None:
    """What stands under a key of a dict that is written out, or in a tuple or dict of all parts of a batch, each copied."""
    made = definition.value if definition.kind == "assign" and not definition.index else None
    if isinstance(made, ast.Call) and path_of(made.func) in ("tuple", "list") and len(made.args) == 1:
        made = made.args[0]
    match made:
        case ast.Dict(keys=keys, values=values):
            found = [v for k, v in zip(keys, values, strict=True) if isinstance(k, ast.Constant) and k.value == key]
            return found[0] if len(found) == 1 and None not in keys and not _is_stored(code, definition, key) else None
        case (
            ast.GeneratorExp(elt=copy, generators=[_])
            | ast.ListComp(elt=copy, generators=[_])
            | ast.DictComp(value=copy, generators=[_])
        ):
            return copy if not _is_stored(code, definition, key) else None
    return None


def _is_stored(code: Code, definition: Definition, key: object) -> bool:
    """Whether something is put under a key later."""
    for use in code.flow.uses[definition]:
        match code.flow.parent.get(use):
            case ast.Subscript(ctx=ast.Store(), slice=ast.Constant(value=other)) if other != key:
                continue
            case ast.Subscript(ctx=ast.Store()) | ast.Attribute(attr="update" | "append" | "insert"):
                return True
    return False


def _is_part(code: Code, source: ast.expr) -> bool:
    """Whether an expression is what a comprehension goes through the parts of a batch by: `t` of `t.to(d) for t in batch`."""
    if not isinstance(source, ast.Name):
        return False
    for definition in code.flow.reaching.get(source, ()):
        parts = definition.value
        if isinstance(parts, ast.Call) and isinstance(parts.func, ast.Attribute) and parts.func.attr in ("items", "values"):
            parts = parts.func.value
        if parts is None or not comes_from_host(code.facts.inference, code.facts.loops, code.scope, parts):
            return False
    return bool(code.flow.reaching.get(source))


def _part(value: ast.expr | None, index: tuple[int | None, ...]) -> ast.expr | None:
    """What a name is bound to by `x, y = a, b`."""
    for at in index:
        if not isinstance(value, ast.Tuple) or at is None or not 0 <= at < len(value.elts):
            return None
        value = value.elts[at]
    return value


def _writes(code: Code, use: ast.expr) -> bool:
    """Whether a use of a tensor may write to it: a method that works in place, or an item that is assigned."""
    parent = code.flow.parent.get(use)
    match parent:
        case ast.Attribute(attr=name):
            return name.endswith("_") and not name.endswith("__")
        case ast.Subscript(ctx=ast.Store()) | ast.AugAssign():
            return True
    return False
