"""The command ``bertpool``: options, progress, messages, exit codes."""
