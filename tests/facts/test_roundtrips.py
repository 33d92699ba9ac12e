"""Copies to the host that come back."""

from __future__ import annotations

import pytest
from ask import Program

from perflint.facts.device.roundtrips import ways_back

HEAD = """
import numpy as np
import torch
def f(model, x):
    out = model(x.cuda())
    host = out.cpu().numpy()
"""

WAYS = {
    "back": ("torch.from_numpy(host).cuda()", [True]),
    "back by a name": ("t = torch.tensor(host)\n    t.to('cuda')", [True]),
    "with a device": ("torch.as_tensor(host, device='cuda')", [True]),
    "computed": ("torch.from_numpy(np.argsort(host)).cuda()", [False]),
    "a method": ("torch.from_numpy(host.clip(0, 1)).cuda()", [False]),
    "arithmetic": ("torch.from_numpy(host * 2).cuda()", [False]),
    "stays": ("torch.from_numpy(host).float()", []),
    "to the host": ("torch.from_numpy(host).to('cpu')", []),
    "given away": ("g(host)", []),
    "an argument beside": ("torch.from_numpy(np.take(y, host)).cuda()", []),
}


@pytest.mark.parametrize("name", WAYS)
def test_ways_back(name: str) -> None:
    text, expected = WAYS[name]
    program = Program(f"{HEAD}    {text}\n".replace("host = out.cpu().numpy()", "host = out.cpu().numpy()  #?"))
    scope, node = program.at("out.cpu().numpy()")
    assert [way.bare for way in ways_back(program.facts, scope, node)] == expected
