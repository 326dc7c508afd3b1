"""The entry point of `lightgc2n`, which handles Ctrl-C before the slow imports."""

import os
import signal


def main() -> None:
    """Run the command line. Ctrl-C during the imports exits with code 130 and no message."""
    signal.signal(signal.SIGINT, lambda _number, _frame: os._exit(130))
    from lightgc2n.cli.main import main as run

    run()


if __name__ == "__main__":
    main()
