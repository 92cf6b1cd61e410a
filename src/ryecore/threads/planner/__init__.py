"""The plan of a thread: directive, hooks, first message, risks, retries and other configuration."""
