"""The built-in rule pack: one module, one rule. Nothing is registered; perflint finds every module here that has a `check`."""

CATEGORIES = {
    "device-sync": "The CPU waits for the device",
    "transfer": "Copies between host and device",
    "data-loading": "How samples are read and made into batches",
    "memory": "Memory that is freed, kept or copied for nothing",
    "optimizer": "Gradients and the optimizer's step",
    "distributed": "Several GPUs and processes",
    "autograd": "Graphs that nobody uses, and tensors without one where it is needed",
    "precision": "Mixed precision and its scaler",
    "compilation": "Code that `torch.compile` runs in pieces, compiles anew, or not at all",
    "hidden-state": "States of recurrent layers",
    "runtime": "What the bundled runtime can take over, and does without waiting",
}
"""What the rules here are about; also names to select them by."""
