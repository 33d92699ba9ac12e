"""The built-in rule pack: one module, one rule. Nothing is registered; perflint finds every module here that has a `check`."""
