"""The planning of threads: directive, hooks, prompt, risks and configuration."""
