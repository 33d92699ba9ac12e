"""Runs a training script and records what it computes and what it costs. Started by `perflint verify` and `perflint profile`.

    python -m perflint_probe --record FILE --mode time|count|profile SCRIPT [ARGS]

Needs nothing but torch in the script's environment, and works from a copied folder. It imports torch only when the script
does, and adds hooks to it then.
"""
