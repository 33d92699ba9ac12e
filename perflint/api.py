"""The rule API: everything that a rule pack may import from perflint."""

from perflint.facts import operations
from perflint.facts.arguments import argument, dtype_of, transfer_target
from perflint.facts.batch_moves import BatchMoves, leading_moves
from perflint.facts.callers import CallSite
from perflint.facts.classes import derives_from, find_method
from perflint.facts.compiled import Root
from perflint.facts.contents import items_of
from perflint.facts.datasets import is_conditional, runs_per_item, same_for_all_items
from perflint.facts.definitions import Block, Definition, Loop, path_of
from perflint.facts.differentiated import calls_behind, is_differentiated
from perflint.facts.effectless import loop_without_effect, without_effect
from perflint.facts.errors import error_is_survived
from perflint.facts.escapes import stays_inside
from perflint.facts.evaluations import (
    CALLS_EVAL,
    acts,
    are_differentiated,
    called_in_evaluation,
    calls_eval,
    computes_with_network,
    evaluates,
    hands_to_network,
    is_for_caller,
    is_test,
    measures,
    records_nothing,
)
from perflint.facts.fears import (
    AUTOCAST,
    BUILT_FROM_TEXT,
    CATCHES,
    COMPLEX,
    FINALIZERS,
    HOOKS,
    INFERENCE_SWITCHED,
    LOOKS_AT_CALLS,
    LOOKS_AT_FRAMES,
    LOOKS_AT_FUNCTIONS,
    LOOKS_AT_OBJECTS,
    OTHER_NETWORK,
    OWN_TENSORS,
    PATCHED,
    RUNS_WITHIN,
    SET_BY_NAME,
    SIDE_STREAM,
    WATCHES_WARNINGS,
    WRAPPED,
    Fear,
    feared,
)
from perflint.facts.flow import Flow, Region, flow_of
from perflint.facts.forward import calls_network, forward_before, hidden_graphs, needs_graph
from perflint.facts.gradflow import GradEnd, GradUse, backward_below, backward_in, graph_ends, stored_for_training, tensor_ends
from perflint.facts.gradients import READS_GRADIENTS, gradients_untouched, leaves_gradients_alone
from perflint.facts.graph_breaks import GraphBreak
from perflint.facts.graph_free import function_without_graph, statement_without_graph
from perflint.facts.graphless import may_record
from perflint.facts.guards import is_guard, is_seldom, once_then_leaves
from perflint.facts.hidden import hidden_runs
from perflint.facts.inference_escapes import creates_module, inference_escapes
from perflint.facts.kept_graphs import graph_noticed
from perflint.facts.loaders import DATA_LOADER, Dataset, LoaderCall
from perflint.facts.loops import Heat, LoopKind, written_rounds
from perflint.facts.names import NETWORK_CALL
from perflint.facts.object_methods import is_module_name, is_optimizer_name
from perflint.facts.operations import Road
from perflint.facts.proofs import (
    free_name,
    inspects_itself,
    no_copy_in_flight,
    suspends,
    untimed,
)
from perflint.facts.rates import rate_of
from perflint.facts.reach import called_from
from perflint.facts.reads import HostRead, ReadKind, implied, written_out
from perflint.facts.recurrent import (
    RECURRENT_CALL,
    RECURRENT_LAYER,
    RnnCall,
    asks_for_gradient,
    built_for,
    feeds_rnn,
    fits_layer,
    has_type_of_its_own,
    is_rnn,
    is_sized_by_tensor,
    is_zero_state,
    origins,
    rnn_calls,
    state_parts,
    used_outside,
)
from perflint.facts.retention import kept_by
from perflint.facts.roundtrips import WayBack, ways_back
from perflint.facts.same_device import is_used_as_tensor, is_where
from perflint.facts.same_value import names_behind, single_definition, step_definitions
from perflint.facts.sinks import IDLE_SINKS, Sink
from perflint.facts.statement_names import shown_target
from perflint.facts.surgery import surgery
from perflint.facts.tampering import stays_as_is, unshared, untouched
from perflint.facts.training_loops import TrainingLoop, training_loop
from perflint.facts.training_objects import is_neural_module, is_optimizer, is_scaler, may_run_module
from perflint.facts.transfers import moved_to, no_device
from perflint.facts.uploads import comes_from_host, is_blocking, is_built_constant, target_of, without_cuda
from perflint.facts.uses import looks_at_numbers
from perflint.facts.values import (
    Alternative,
    Batch,
    ClassRef,
    Device,
    Elements,
    External,
    FunctionRef,
    Instance,
    Literal,
    Loader,
    Mapping,
    Number,
    Object,
    Output,
    Place,
    Sequence,
    Tensor,
    Text,
    Value,
    device_place,
    place_of,
)
from perflint.facts.variables import functions_see
from perflint.facts.waiting_places import MASKED
from perflint.facts.without_graph import is_known_function
from perflint.fix.blocks import Body, replaced_lines
from perflint.fix.rewrite import (
    CannotRewrite,
    add_keyword,
    change_call,
    decorate,
    delete_statement,
    insert_after,
    insert_after_block,
    insert_before,
    move_before,
    remove_keyword,
    replace,
    replace_statement,
    wrap_statement,
)
from perflint.rule.code import Code
from perflint.rule.finding import Applicability, Cost, Edit, Finding, Fix, Import, Rate, Severity
from perflint.rule.obligations import Kind, Obligation, is_refuted
from perflint.rule.option import Option
from perflint.rule.rule import Rule, rule
from perflint.source.syntax import Scope
from perflint.source.words import any_layout, call_pattern, keyword, words

__all__ = [
    "AUTOCAST",
    "BUILT_FROM_TEXT",
    "CALLS_EVAL",
    "CATCHES",
    "COMPLEX",
    "DATA_LOADER",
    "FINALIZERS",
    "HOOKS",
    "IDLE_SINKS",
    "INFERENCE_SWITCHED",
    "LOOKS_AT_CALLS",
    "LOOKS_AT_FRAMES",
    "LOOKS_AT_FUNCTIONS",
    "LOOKS_AT_OBJECTS",
    "MASKED",
    "NETWORK_CALL",
    "OTHER_NETWORK",
    "OWN_TENSORS",
    "PATCHED",
    "READS_GRADIENTS",
    "RECURRENT_CALL",
    "RECURRENT_LAYER",
    "RUNS_WITHIN",
    "SET_BY_NAME",
    "SIDE_STREAM",
    "WATCHES_WARNINGS",
    "WRAPPED",
    "Alternative",
    "Applicability",
    "Batch",
    "BatchMoves",
    "Block",
    "Body",
    "CallSite",
    "CannotRewrite",
    "ClassRef",
    "Code",
    "Cost",
    "Dataset",
    "Definition",
    "Device",
    "Edit",
    "Elements",
    "External",
    "Fear",
    "Finding",
    "Fix",
    "Flow",
    "FunctionRef",
    "GradEnd",
    "GradUse",
    "GraphBreak",
    "Heat",
    "HostRead",
    "Import",
    "Instance",
    "Kind",
    "Literal",
    "Loader",
    "LoaderCall",
    "Loop",
    "LoopKind",
    "Mapping",
    "Number",
    "Object",
    "Obligation",
    "Option",
    "Output",
    "Place",
    "Rate",
    "ReadKind",
    "Region",
    "RnnCall",
    "Road",
    "Root",
    "Rule",
    "Scope",
    "Sequence",
    "Severity",
    "Sink",
    "Tensor",
    "Text",
    "TrainingLoop",
    "Value",
    "WayBack",
    "acts",
    "add_keyword",
    "any_layout",
    "are_differentiated",
    "argument",
    "asks_for_gradient",
    "backward_below",
    "backward_in",
    "built_for",
    "call_pattern",
    "called_from",
    "called_in_evaluation",
    "calls_behind",
    "calls_eval",
    "calls_network",
    "change_call",
    "comes_from_host",
    "computes_with_network",
    "creates_module",
    "decorate",
    "delete_statement",
    "derives_from",
    "device_place",
    "dtype_of",
    "error_is_survived",
    "evaluates",
    "feared",
    "feeds_rnn",
    "find_method",
    "fits_layer",
    "flow_of",
    "forward_before",
    "free_name",
    "function_without_graph",
    "functions_see",
    "gradients_untouched",
    "graph_ends",
    "graph_noticed",
    "hands_to_network",
    "has_type_of_its_own",
    "hidden_graphs",
    "hidden_runs",
    "implied",
    "inference_escapes",
    "insert_after",
    "insert_after_block",
    "insert_before",
    "inspects_itself",
    "is_blocking",
    "is_built_constant",
    "is_conditional",
    "is_differentiated",
    "is_for_caller",
    "is_guard",
    "is_known_function",
    "is_module_name",
    "is_neural_module",
    "is_optimizer",
    "is_optimizer_name",
    "is_refuted",
    "is_rnn",
    "is_scaler",
    "is_seldom",
    "is_sized_by_tensor",
    "is_test",
    "is_used_as_tensor",
    "is_where",
    "is_zero_state",
    "items_of",
    "kept_by",
    "keyword",
    "leading_moves",
    "leaves_gradients_alone",
    "looks_at_numbers",
    "loop_without_effect",
    "may_record",
    "may_run_module",
    "measures",
    "move_before",
    "moved_to",
    "names_behind",
    "needs_graph",
    "no_copy_in_flight",
    "no_device",
    "once_then_leaves",
    "operations",
    "origins",
    "path_of",
    "place_of",
    "rate_of",
    "records_nothing",
    "remove_keyword",
    "replace",
    "replace_statement",
    "replaced_lines",
    "rnn_calls",
    "rule",
    "runs_per_item",
    "same_for_all_items",
    "shown_target",
    "single_definition",
    "state_parts",
    "statement_without_graph",
    "stays_as_is",
    "stays_inside",
    "step_definitions",
    "stored_for_training",
    "surgery",
    "suspends",
    "target_of",
    "tensor_ends",
    "training_loop",
    "transfer_target",
    "unshared",
    "untimed",
    "untouched",
    "used_outside",
    "ways_back",
    "without_cuda",
    "without_effect",
    "words",
    "wrap_statement",
    "written_out",
    "written_rounds",
]
