"""Objects that are made with a list of meters, and only show them: no rule by itself."""

import ast

from perflint.api import (
    CannotRewrite,
    ClassRef,
    Code,
    Definition,
    Scope,
    ancestors,
    find_method,
    keeps_to_itself,
    may_be_replaced,
    methods_of,
    parameter_of,
    path_of,
)
from perflint_rules.late_meters import require_plain_look


def looks_at_meter(code: Code, use: ast.expr) -> list[ast.expr]:
    """Where somebody may look at a meter that stands somewhere.

    Raises:
        CannotRewrite: somebody may get hold of the meter itself.

    """
    through = _looks_through(code, use)
    if through is None:
        require_plain_look(code, use)
    return [use, *(through or ())]


def _looks_through(code: Code, use: ast.expr) -> list[ast.expr] | None:
    """Where somebody may look at a meter that stands in `progress = ProgressMeter(n, [losses])`: all uses of `progress`.

    None if the meter is not handed to an object of a class of the project, which nobody else gets hold of.

    Raises:
        CannotRewrite: the object does something else with its meters than to show them.

    """
    flow, made = code.flow, _call_around(code, use)
    held = next((d for d in flow.definitions if d.value is made and d.kind == "assign" and not d.index), None)
    if made is None or held is None or not flow.binds_alone(held.node) or not isinstance(held.node, ast.Name):
        return None
    if code.scope.is_module or held.name in flow.inner_names | flow.outer_names:
        return None
    cls = code.value(made.func).single
    if not isinstance(cls, ClassRef) or not keeps_to_itself(code.facts, cls.cls):
        return None
    init = find_method(code.facts.inference, cls.cls, "__init__")
    kept = _kept_as(code, init, made, use) if init is not None else None
    if init is None or kept is None:
        return None
    methods = [method for ancestor in ancestors(code.facts.inference, cls.cls) for method in methods_of(ancestor)]
    if any(may_be_replaced(code.facts, method) for method in methods):
        return None
    for scope in methods:
        if not all(_only_shows(code.at(scope), attribute, scope is init) for attribute in _mentions(code.at(scope), kept)):
            raise CannotRewrite(f"`{path_of(use)}` is handed on, and `{scope.name}` does more than show it")
    uses = [*flow.uses[held]]
    for look in uses:
        attribute = flow.parent.get(look)
        if not isinstance(attribute, ast.Attribute) or attribute.attr == kept or attribute.attr.startswith("__"):
            raise CannotRewrite(f"`{path_of(use)}` is handed on, and so is `{held.name}`")
        around = flow.parent.get(attribute)
        is_method = find_method(code.facts.inference, cls.cls, attribute.attr) is not None
        if is_method and not (isinstance(around, ast.Call) and around.func is attribute):
            raise CannotRewrite(f"`{path_of(use)}` is handed on, and a method of `{held.name}` may be called later")
    return uses


def _call_around(code: Code, use: ast.expr) -> ast.Call | None:
    """The call that gets an expression, or a list or a tuple that is written out with it."""
    parent = code.flow.parent.get(use)
    if isinstance(parent, (ast.List, ast.Tuple)):
        parent = code.flow.parent.get(parent)
    if isinstance(parent, ast.keyword):
        parent = code.flow.parent.get(parent)
    return parent if isinstance(parent, ast.Call) and parent.func is not use else None


def _kept_as(code: Code, init: Scope, made: ast.Call, use: ast.expr) -> str | None:
    """The attribute in which an object keeps the list that a meter is in, if its `__init__` does nothing else with it."""
    display = code.flow.parent.get(use)
    if isinstance(display, (ast.List, ast.Tuple)):
        name = parameter_of(init, made, display)
    else:  # `def __init__(self, batches, *meters)`
        arguments = init.function.args if init.function is not None else None
        named = {k.value for k in made.keywords}
        spread = any(isinstance(given, ast.Starred) for given in made.args)
        if arguments is None or arguments.vararg is None or use in named or spread:
            return None
        first = len(arguments.posonlyargs) + len(arguments.args) - 1
        name = arguments.vararg.arg if use in made.args[first:] else None
    inner = code.at(init).flow
    bound = [d for d in inner.definitions_of(name) if d.kind == "parameter"] if name is not None else []
    uses = [use for d in bound for use in inner.uses[d]]
    if len(bound) != 1 or len(inner.definitions_of(bound[0].name)) != 1 or len(uses) != 1:
        return None
    match inner.statement(uses[0]):
        case ast.Assign(targets=[ast.Attribute(value=ast.Name(id=itself), attr=attr)], value=value) if value is uses[0]:
            return attr if itself == init.parameters[0].arg else None
    return None


def _mentions(code: Code, name: str) -> list[ast.Attribute]:
    return [node for node in code.flow.order if isinstance(node, ast.Attribute) and node.attr == name]


def _only_shows(code: Code, attribute: ast.Attribute, is_init: bool) -> bool:
    """Whether a mention of the attribute is where it is set, or goes through the meters to show each."""
    flow = code.flow
    if isinstance(attribute.ctx, ast.Store):
        return is_init
    match flow.parent.get(attribute):
        case ast.comprehension(target=ast.Name() as target) | ast.For(target=ast.Name() as target):
            shown = flow.definitions_at(target)
        case _:
            return False
    return bool(shown) and all(_is_shown(code, definition) for definition in shown)


def _is_shown(code: Code, definition: Definition) -> bool:
    """Whether all that happens to a meter is that attributes of it are read, or a text is made of it."""
    flow = code.flow
    if definition.name in flow.inner_names | flow.outer_names:
        return False
    try:
        for use in flow.uses[definition]:
            if flow.reaching.get(use) != frozenset((definition,)):
                return False
            require_plain_look(code, use)
    except CannotRewrite:
        return False
    return True
