"""``python -m bertpool.cli``: the command."""

from bertpool.cli.main import main

if __name__ == "__main__":
    main()
