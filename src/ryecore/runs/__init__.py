"""What threads and graph runs share: limits of the parent, budgets, hooks, and runs kept alive."""
