"""A variable of the environment is set after the library has read it.

## What it does
Finds `os.environ["OMP_NUM_THREADS"] = ...` and the like (`MKL_NUM_THREADS`, `OPENBLAS_NUM_THREADS`, `KMP_AFFINITY`,
`KMP_BLOCKTIME`, `GOMP_CPU_AFFINITY`) behind `import torch` or `import numpy` of the same file.

## Why it is an error
The libraries for threads read these variables when they are loaded, which importing torch or numpy does. Setting them later
changes nothing in this process: the program runs with as many threads as before.

## Example
```python
import os
import torch

os.environ["OMP_NUM_THREADS"] = "1"

def work():
    return torch.get_num_threads()
```

## Use instead
```python
import os
import torch

torch.set_num_threads(1)

def work():
    return torch.get_num_threads()
```

## When it stays silent
Above the import, under a condition, for numbers of threads beside a call of `torch.set_num_threads`, in files that start
other processes (which do see the variable), and for variables that are read later (`CUDA_VISIBLE_DEVICES`, `NCCL_*`). Select it
to see it: of eleven that readers found in real code none was a measurable part of a training. Its workers take a thread each.

## Fix safety
There is no fix: worker processes that are spawned do see the variable.
"""

import ast
import re
from collections.abc import Iterator

from perflint.api import Code, Finding, Severity, flow_of, is_conditional, rule, words

_READ_AT_LOAD = words("OMP_NUM_THREADS MKL_NUM_THREADS OPENBLAS_NUM_THREADS KMP_AFFINITY KMP_BLOCKTIME GOMP_CPU_AFFINITY")
_OTHERS = re.compile(rb"\b(?:subprocess|multiprocessing|spawn|Popen|fork|ray|joblib|execv\w*)\b")
_THREADS = words("OMP_NUM_THREADS MKL_NUM_THREADS OPENBLAS_NUM_THREADS")
_LOADS = words("torch numpy")


@rule(category="data-loading", severity=Severity.INFO, needs=[tuple(sorted(_READ_AT_LOAD)), ("environ", "putenv")])
def check(code: Code) -> Iterator[Finding]:
    """Report each variable that is set behind the import that reads it."""
    if _OTHERS.search(code.source.body):
        return
    flow, imported = code.flow, flow_of(code.scope.module.top)
    loaded = [d for d in imported.definitions if d.kind == "import" and _loads(imported.parent[d.node], d.node)]
    first = min((d.order for d in loaded), default=None)
    sets_threads = any(code.calls("set_num_threads"))
    for store in flow.stores:
        match store:
            case ast.Subscript(value=ast.Attribute(attr="environ"), slice=ast.Constant(value=str(name))) if (
                name in _READ_AT_LOAD and not (sets_threads and name in _THREADS)
            ):
                later = not code.scope.is_module or (first is not None and flow.order[store] > first)
                if first is not None and later and not is_conditional(code.scope, store):
                    message = f"`{name}` was read when torch or numpy was imported, above; set it before"
                    yield code.finding(store, message)


def _loads(statement: ast.AST, alias: ast.AST) -> bool:
    """Whether an import loads one of the libraries."""
    assert isinstance(alias, ast.alias)
    name = (statement.module or "") if isinstance(statement, ast.ImportFrom) else alias.name
    return name.partition(".")[0] in _LOADS and not (isinstance(statement, ast.ImportFrom) and statement.level)
