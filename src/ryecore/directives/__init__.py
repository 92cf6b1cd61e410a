"""Directive files: parsed, their inputs checked, their placeholders filled."""
