"""Where the command starts: Ctrl-C is listened to before anything slow is imported."""

import os
import signal


def main() -> None:
    """Runs the command line; until that has been imported, Ctrl-C ends the process without a word."""
    signal.signal(signal.SIGINT, lambda _number, _frame: os._exit(130))
    from lightgc2n.cli.main import main as run

    run()


if __name__ == "__main__":
    main()
