"""The code that threads and graph runs share: lifecycle, parent bounds, budgets and hooks."""
