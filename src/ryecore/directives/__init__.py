"""Directive files: parsed sections, inputs, placeholders and hooks."""
