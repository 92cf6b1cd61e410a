"""What a thread is planned from: its directive, hooks, prompt, risks and configuration."""
