"""The rule API: everything that a rule pack may import from perflint."""

from perflint.facts import operations
from perflint.facts.arguments import argument, dtype_of, transfer_target
from perflint.facts.callers import CallSite
from perflint.facts.classes import find_method
from perflint.facts.compiled import Root
from perflint.facts.contents import items_of
from perflint.facts.datasets import called_from, is_conditional, runs_per_item, same_for_all_items
from perflint.facts.definitions import Block, Definition, Loop, path_of
from perflint.facts.differentiated import calls_behind, is_differentiated
from perflint.facts.effectless import without_effect
from perflint.facts.errors import error_is_survived
from perflint.facts.escapes import stays_inside
from perflint.facts.evaluations import (
    CALLS_EVAL,
    are_differentiated,
    called_in_evaluation,
    calls_eval,
    computes_with_network,
    evaluates,
    hands_to_network,
    is_test,
    measures,
    records_nothing,
)
from perflint.facts.fears import (
    AUTOCAST,
    BUILT_FROM_TEXT,
    CATCHES,
    COMPLEX,
    HOOKS,
    INFERENCE_SWITCHED,
    LOOKS_AT_FRAMES,
    LOOKS_AT_OBJECTS,
    OTHER_NETWORK,
    OWN_TENSORS,
    PATCHED,
    RUNS_WITHIN,
    SET_BY_NAME,
    SIDE_STREAM,
    WRAPPED,
    Fear,
    feared,
)
from perflint.facts.flow import Flow, Region, flow_of
from perflint.facts.forward import calls_network, hidden_graphs, needs_graph
from perflint.facts.gradflow import GradEnd, GradUse, backward_below, backward_in, graph_ends, stored_for_training, tensor_ends
from perflint.facts.gradients import READS_GRADIENTS, gradients_untouched, leaves_gradients_alone
from perflint.facts.graph_breaks import GraphBreak
from perflint.facts.graph_free import function_without_graph, statement_without_graph
from perflint.facts.graphless import may_record
from perflint.facts.guards import is_guard, once_then_leaves
from perflint.facts.hidden import hidden_runs
from perflint.facts.kept_graphs import graph_noticed
from perflint.facts.loaders import DATA_LOADER, Dataset, LoaderCall
from perflint.facts.loops import Heat, LoopKind, is_neural_module, is_optimizer, is_scaler, may_run_module, written_rounds
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
from perflint.facts.reads import HostRead, ReadKind, implied, written_out
from perflint.facts.recurrent import (
    RECURRENT_CALL,
    RECURRENT_LAYER,
    RnnCall,
    feeds_rnn,
    fits_layer,
    is_rnn,
    is_sized_by_tensor,
    is_zero_state,
    origins,
    rnn_calls,
    state_parts,
)
from perflint.facts.retention import kept_by
from perflint.facts.roundtrips import WayBack, ways_back
from perflint.facts.same_value import single_definition, step_definitions
from perflint.facts.sinks import IDLE_SINKS, Sink
from perflint.facts.surgery import surgery
from perflint.facts.tampering import stays_as_is, unshared, untouched
from perflint.facts.transfers import moved_to, no_device
from perflint.facts.uploads import comes_from_host, is_blocking, target_of, without_cuda
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
from perflint.facts.waiting_places import MASKED
from perflint.facts.without_graph import is_known_function
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
from perflint.rule.obligations import Kind, Obligation
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
    "HOOKS",
    "IDLE_SINKS",
    "INFERENCE_SWITCHED",
    "LOOKS_AT_FRAMES",
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
    "WRAPPED",
    "Alternative",
    "Applicability",
    "Batch",
    "Block",
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
    "Value",
    "WayBack",
    "add_keyword",
    "any_layout",
    "are_differentiated",
    "argument",
    "backward_below",
    "backward_in",
    "call_pattern",
    "called_from",
    "called_in_evaluation",
    "calls_behind",
    "calls_eval",
    "calls_network",
    "change_call",
    "comes_from_host",
    "computes_with_network",
    "decorate",
    "delete_statement",
    "device_place",
    "dtype_of",
    "error_is_survived",
    "evaluates",
    "feared",
    "feeds_rnn",
    "find_method",
    "fits_layer",
    "flow_of",
    "free_name",
    "function_without_graph",
    "gradients_untouched",
    "graph_ends",
    "graph_noticed",
    "hands_to_network",
    "hidden_graphs",
    "hidden_runs",
    "implied",
    "insert_after",
    "insert_after_block",
    "insert_before",
    "inspects_itself",
    "is_blocking",
    "is_conditional",
    "is_differentiated",
    "is_guard",
    "is_known_function",
    "is_module_name",
    "is_neural_module",
    "is_optimizer",
    "is_optimizer_name",
    "is_rnn",
    "is_scaler",
    "is_sized_by_tensor",
    "is_test",
    "is_zero_state",
    "items_of",
    "kept_by",
    "keyword",
    "leaves_gradients_alone",
    "may_record",
    "may_run_module",
    "measures",
    "move_before",
    "moved_to",
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
    "rnn_calls",
    "rule",
    "runs_per_item",
    "same_for_all_items",
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
    "transfer_target",
    "unshared",
    "untimed",
    "untouched",
    "ways_back",
    "without_cuda",
    "without_effect",
    "words",
    "wrap_statement",
    "written_out",
    "written_rounds",
]
