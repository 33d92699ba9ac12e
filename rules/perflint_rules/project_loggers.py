"""What loggers and meters of the project do with the tensors that they get: no rule by itself."""

import ast

from perflint.api import Code, any_layout

_READS_TENSORS = any_layout(
    rb"isinstance \( \w+ , (?:torch \. )?Tensor \) : \w+ = \w+ \. (?:detach \( \) \. )?(?:cpu \( \) \. )?item \("
)


def reads_what_it_gets(code: Code, call: ast.Call) -> bool:
    """Whether a meter of the project is given a tensor of the device, and asks what it gets for `item()`, if it is a tensor."""
    spread = [k.value for k in call.keywords if k.arg is None]
    given = [a for a in (*call.args, *(k.value for k in call.keywords if k.arg is not None)) if not isinstance(a, ast.Starred)]
    if not any(map(code.may_be_on_device, given)) and not any(_holds_tensors(code, mapping) for mapping in spread):
        return False
    return any(_READS_TENSORS.search(target.text) for target in code.facts.loops.targets(code.scope, call))


def _holds_tensors(code: Code, mapping: ast.expr) -> bool:
    """Whether a dict holds tensors of the device, as far as can be seen."""
    match mapping:
        case ast.DictComp(value=value):
            return code.may_be_on_device(value)
    definitions = code.flow.reaching.get(mapping, frozenset())
    return any(isinstance(d.value, ast.DictComp) and code.may_be_on_device(d.value.value) for d in definitions)
