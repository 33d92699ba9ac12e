"""Loops in which a language model writes text: its many forward passes, with a wait for each token, are what a round takes."""

from __future__ import annotations

import ast

from perflint.facts.dataflow.definitions import Loop
from perflint.facts.dataflow.flow import flow_of
from perflint.facts.facts import Facts
from perflint.facts.proofs.reach import can_be_parsed
from perflint.source.syntax import Scope
from perflint.source.words import words

_ARGUMENTS = words(
    """
    max_new_tokens min_new_tokens max_length min_length max_target_length do_sample num_beams num_return_sequences temperature
    top_k top_p repetition_penalty length_penalty no_repeat_ngram_size early_stopping use_cache attention_mask
    pad_token_id eos_token_id bos_token_id decoder_start_token_id forced_bos_token_id generation_config logits_processor
    stopping_criteria streamer
    """
)
"""What only a `generate` that writes token by token is told: that of a decoder of images takes noise."""
_REACH = 2


def writes_text(facts: Facts, scope: Scope, node: ast.AST) -> bool:
    """Whether a node runs beside the writing of text: in the same round of a step loop, or in the same call of a function."""
    loop = facts.loops.around(scope, node)
    if loop is not None:
        return loop_writes_text(facts, scope, loop)
    return facts.loops.heat(scope) is not None and _function_writes_text(facts, scope, 1)


def loop_writes_text(facts: Facts, scope: Scope, loop: Loop) -> bool:
    """Whether each round of a loop writes text."""
    flow = flow_of(scope)
    inside = [call for call in flow.calls if flow.within(call, loop.block)]
    return any(_writes(facts, scope, call, _REACH) and not _is_rare(facts, scope, call, loop) for call in inside)


def _is_rare(facts: Facts, scope: Scope, call: ast.Call, loop: Loop) -> bool:
    """Whether a call stands in a step loop, but under a guard."""
    return loop in facts.loops.kinds(scope) and facts.loops.step_loop(scope, call) is None


def _writes(facts: Facts, scope: Scope, call: ast.Call, depth: int) -> bool:
    if writes_tokens(call):
        return True
    return depth > 0 and any(_function_writes_text(facts, target, depth - 1) for target in facts.loops.targets(scope, call))


def writes_tokens(call: ast.Call) -> bool:
    """Whether a call is the method by which models of transformers, and those made after them, write text."""
    named = isinstance(call.func, ast.Attribute) and call.func.attr == "generate"
    return named and any(keyword.arg is None or keyword.arg in _ARGUMENTS for keyword in call.keywords)


def _function_writes_text(facts: Facts, scope: Scope, depth: int) -> bool:
    if b"generat" not in scope.text or not can_be_parsed(scope):
        return False
    return any(_writes(facts, scope, call, depth) for call in flow_of(scope).calls)
