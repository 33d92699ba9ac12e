"""The rule API: everything that a rule pack may import from perflint."""

from perflint.facts.autograd.by_flag import evaluated_by_flag
from perflint.facts.autograd.differentiated import calls_behind, is_differentiated
from perflint.facts.autograd.escapes import stays_inside
from perflint.facts.autograd.evaluations import (
    CALLS_EVAL,
    acts,
    are_differentiated,
    called_in_evaluation,
    calls_eval,
    computes_with_network,
    evaluates,
    goes_backward_once,
    hands_to_network,
    is_for_caller,
    is_test,
    is_tried_out,
    measures,
    only_evaluates,
    runs_once,
    wastes_no_graph,
)
from perflint.facts.autograd.forward import calls_network, forward_before, hidden_graphs, needs_graph, runs_network
from perflint.facts.autograd.frozen_forward import FrozenForward, frozen_forward
from perflint.facts.autograd.gradflow import (
    GradEnd,
    GradUse,
    backward_below,
    backward_in,
    graph_ends,
    trains_near,
)
from perflint.facts.autograd.gradients import READS_GRADIENTS, clears_gradients, gradients_untouched, leaves_gradients_alone
from perflint.facts.autograd.graph_free import function_without_graph, statement_without_graph
from perflint.facts.autograd.graphs_of_parameters import may_record
from perflint.facts.autograd.inference_escapes import creates_module, inference_escapes
from perflint.facts.autograd.kept_graphs import graph_noticed
from perflint.facts.autograd.without_graph import is_known_function
from perflint.facts.compiled.compiled import Root
from perflint.facts.compiled.graph_breaks import GraphBreak
from perflint.facts.dataflow.conditions import conditions, exclude_each_other
from perflint.facts.dataflow.definitions import Block, Definition, Loop, path_of
from perflint.facts.dataflow.flow import Flow, Region, flow_of
from perflint.facts.dataflow.guards import (
    is_guard,
    is_guarded,
    is_left_to_evaluation,
    is_run_alone,
    is_seldom,
    once_then_leaves,
)
from perflint.facts.dataflow.messages import is_message
from perflint.facts.dataflow.same_value import names_behind, single_definition, step_definitions
from perflint.facts.dataflow.statement_names import shown_target
from perflint.facts.dataflow.uses import functions_see, looks_at_numbers
from perflint.facts.device.host_origin import Upload, upload_behind
from perflint.facts.device.library_waits import CHECKS_SWITCHED
from perflint.facts.device.reads import HostRead, ReadKind, implied, may_read_truth, written_out
from perflint.facts.device.roundtrips import WayBack, ways_back
from perflint.facts.device.same_device import is_used_as_tensor, is_where
from perflint.facts.device.seeming_tensors import is_differentiated_in
from perflint.facts.device.sinks import IDLE_SINKS, NOW, Sink
from perflint.facts.device.timed import timed_without_wait
from perflint.facts.device.transfers import moved_to, no_device
from perflint.facts.device.uploads import (
    comes_from_host,
    copied_source,
    is_blocking,
    is_built_constant,
    is_counted_in_step,
    is_made_of_constants,
    is_of_constants,
    is_one_of_many,
    is_read_back,
    is_read_in_step,
    is_set_once,
    target_of,
    without_cuda,
)
from perflint.facts.device.waiting_places import MASKED, made_on_host
from perflint.facts.operations import operations
from perflint.facts.operations.operations import Road
from perflint.facts.proofs.copies import relies_on_waits
from perflint.facts.proofs.effectless import loop_without_effect, without_effect
from perflint.facts.proofs.errors import error_is_survived
from perflint.facts.proofs.fears import (
    ASKS_FOR_GRADIENTS,
    AUTOCAST,
    BUILT_FROM_TEXT,
    CAPTURED,
    CATCHES,
    COMPLEX,
    DEFAULT_TYPE,
    FINALIZERS,
    FINDS_VARIABLES,
    HOOKS,
    INFERENCE_SWITCHED,
    LOOKS_AT_CALLS,
    LOOKS_AT_FRAMES,
    LOOKS_AT_FUNCTIONS,
    LOOKS_AT_OBJECTS,
    OTHER_NETWORK,
    OWN_LOGGERS,
    OWN_TENSORS,
    PATCHED,
    RUNS_WITHIN,
    SET_BY_NAME,
    SEVERAL_GPUS,
    SIDE_STREAM,
    SPARSE,
    WATCHES_WARNINGS,
    WRAPPED,
    Fear,
    feared,
)
from perflint.facts.proofs.hidden import hidden_runs
from perflint.facts.proofs.meters import keeps_to_itself, may_be_replaced, may_run_later, methods_of
from perflint.facts.proofs.packages import stranger
from perflint.facts.proofs.proofs import (
    free_name,
    inspects_itself,
    suspends,
    untimed,
)
from perflint.facts.proofs.reach import called_from
from perflint.facts.proofs.surgery import surgery
from perflint.facts.proofs.tampering import stays_as_is, unshared, untouched
from perflint.facts.training.batch_moves import BatchMoves, leading_moves
from perflint.facts.training.datasets import is_conditional, reads_for_item, runs_per_item, same_for_all_items
from perflint.facts.training.environments import steps_environment
from perflint.facts.training.evaluated_in_training import EvaluatedInTraining, evaluated_in_training
from perflint.facts.training.generation import loop_writes_text
from perflint.facts.training.kept_weights import KeptWeights, kept_weights
from perflint.facts.training.layers_by_mode import ByMode
from perflint.facts.training.lightning import trainer_sets_anomaly_mode
from perflint.facts.training.loaders import DATA_LOADER, Dataset, LoaderCall
from perflint.facts.training.loop_looks import ends_soon, only_shows, written_rounds
from perflint.facts.training.loops import Heat, LoopKind
from perflint.facts.training.modes import LeftInEvaluation, left_in_evaluation
from perflint.facts.training.on_accelerator import Whereabouts
from perflint.facts.training.rates import goes_over_parameters, rate_of
from perflint.facts.training.recurrent import (
    RECURRENT_CALL,
    RECURRENT_LAYER,
    RnnCall,
    asks_for_gradient,
    built_for,
    feeds_rnn,
    has_type_of_its_own,
    is_rnn,
    is_zero_state,
    origins,
    rnn_calls,
    state_parts,
    used_outside,
)
from perflint.facts.training.rounds import is_new_each_round
from perflint.facts.training.switched_off import is_off_by_default
from perflint.facts.training.training_loops import TrainingLoop, training_loop
from perflint.facts.training.training_objects import is_neural_module, is_optimizer, is_scaler, may_run_module
from perflint.facts.training.without_gpu import is_of_mac, is_run_without_gpu
from perflint.facts.values.arguments import argument, dtype_of, transfer_target
from perflint.facts.values.bound_arguments import parameter_of
from perflint.facts.values.call_sites import CallSite
from perflint.facts.values.classes import FILLS_OBJECT, ancestors, derives_from, find_method, is_optimizer_class
from perflint.facts.values.contents import items_of
from perflint.facts.values.held_modules import modules
from perflint.facts.values.names import NETWORK_CALL
from perflint.facts.values.object_methods import is_module_name, is_optimizer_name
from perflint.facts.values.values import (
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
    is_known_tensor,
    place_of,
)
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
    written_out_addition,
)
from perflint.rule.code import Code
from perflint.rule.finding import Applicability, Cost, Edit, Finding, Fix, Import, Rate, Severity
from perflint.rule.obligations import Kind, Obligation, is_refuted
from perflint.rule.option import Option
from perflint.rule.rule import Rule, rule
from perflint.source.syntax import Scope
from perflint.source.texts import brief, last_name
from perflint.source.words import any_layout, call_pattern, keyword, words

__all__ = [
    "ASKS_FOR_GRADIENTS",
    "AUTOCAST",
    "BUILT_FROM_TEXT",
    "CALLS_EVAL",
    "CAPTURED",
    "CATCHES",
    "CHECKS_SWITCHED",
    "COMPLEX",
    "DATA_LOADER",
    "DEFAULT_TYPE",
    "FILLS_OBJECT",
    "FINALIZERS",
    "FINDS_VARIABLES",
    "HOOKS",
    "IDLE_SINKS",
    "INFERENCE_SWITCHED",
    "LOOKS_AT_CALLS",
    "LOOKS_AT_FRAMES",
    "LOOKS_AT_FUNCTIONS",
    "LOOKS_AT_OBJECTS",
    "MASKED",
    "NETWORK_CALL",
    "NOW",
    "OTHER_NETWORK",
    "OWN_LOGGERS",
    "OWN_TENSORS",
    "PATCHED",
    "READS_GRADIENTS",
    "RECURRENT_CALL",
    "RECURRENT_LAYER",
    "RUNS_WITHIN",
    "SET_BY_NAME",
    "SEVERAL_GPUS",
    "SIDE_STREAM",
    "SPARSE",
    "WATCHES_WARNINGS",
    "WRAPPED",
    "Alternative",
    "Applicability",
    "Batch",
    "BatchMoves",
    "Block",
    "Body",
    "ByMode",
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
    "EvaluatedInTraining",
    "External",
    "Fear",
    "Finding",
    "Fix",
    "Flow",
    "FrozenForward",
    "FunctionRef",
    "GradEnd",
    "GradUse",
    "GraphBreak",
    "Heat",
    "HostRead",
    "Import",
    "Instance",
    "KeptWeights",
    "Kind",
    "LeftInEvaluation",
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
    "Upload",
    "Value",
    "WayBack",
    "Whereabouts",
    "acts",
    "add_keyword",
    "ancestors",
    "any_layout",
    "are_differentiated",
    "argument",
    "asks_for_gradient",
    "backward_below",
    "backward_in",
    "brief",
    "built_for",
    "call_pattern",
    "called_from",
    "called_in_evaluation",
    "calls_behind",
    "calls_eval",
    "calls_network",
    "change_call",
    "clears_gradients",
    "comes_from_host",
    "computes_with_network",
    "conditions",
    "copied_source",
    "creates_module",
    "decorate",
    "delete_statement",
    "derives_from",
    "device_place",
    "dtype_of",
    "ends_soon",
    "error_is_survived",
    "evaluated_by_flag",
    "evaluated_in_training",
    "evaluates",
    "exclude_each_other",
    "feared",
    "feeds_rnn",
    "find_method",
    "flow_of",
    "forward_before",
    "free_name",
    "frozen_forward",
    "function_without_graph",
    "functions_see",
    "goes_backward_once",
    "goes_over_parameters",
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
    "is_counted_in_step",
    "is_differentiated",
    "is_differentiated_in",
    "is_for_caller",
    "is_guard",
    "is_guarded",
    "is_known_function",
    "is_known_tensor",
    "is_left_to_evaluation",
    "is_made_of_constants",
    "is_message",
    "is_module_name",
    "is_neural_module",
    "is_new_each_round",
    "is_of_constants",
    "is_of_mac",
    "is_off_by_default",
    "is_one_of_many",
    "is_optimizer",
    "is_optimizer_class",
    "is_optimizer_name",
    "is_read_back",
    "is_read_in_step",
    "is_refuted",
    "is_rnn",
    "is_run_alone",
    "is_run_without_gpu",
    "is_scaler",
    "is_seldom",
    "is_set_once",
    "is_test",
    "is_tried_out",
    "is_used_as_tensor",
    "is_where",
    "is_zero_state",
    "items_of",
    "keeps_to_itself",
    "kept_weights",
    "keyword",
    "last_name",
    "leading_moves",
    "leaves_gradients_alone",
    "left_in_evaluation",
    "looks_at_numbers",
    "loop_without_effect",
    "loop_writes_text",
    "made_on_host",
    "may_be_replaced",
    "may_read_truth",
    "may_record",
    "may_run_later",
    "may_run_module",
    "measures",
    "methods_of",
    "modules",
    "move_before",
    "moved_to",
    "names_behind",
    "needs_graph",
    "no_device",
    "once_then_leaves",
    "only_evaluates",
    "only_shows",
    "operations",
    "origins",
    "parameter_of",
    "path_of",
    "place_of",
    "rate_of",
    "reads_for_item",
    "relies_on_waits",
    "remove_keyword",
    "replace",
    "replace_statement",
    "replaced_lines",
    "rnn_calls",
    "rule",
    "runs_network",
    "runs_once",
    "runs_per_item",
    "same_for_all_items",
    "shown_target",
    "single_definition",
    "state_parts",
    "statement_without_graph",
    "stays_as_is",
    "stays_inside",
    "step_definitions",
    "steps_environment",
    "stranger",
    "surgery",
    "suspends",
    "target_of",
    "timed_without_wait",
    "trainer_sets_anomaly_mode",
    "training_loop",
    "trains_near",
    "transfer_target",
    "unshared",
    "untimed",
    "untouched",
    "upload_behind",
    "used_outside",
    "wastes_no_graph",
    "ways_back",
    "without_cuda",
    "without_effect",
    "words",
    "wrap_statement",
    "written_out",
    "written_out_addition",
    "written_rounds",
]
