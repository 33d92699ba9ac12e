"""Leads a run: files through the engine, by whom, and what is remembered."""
