"""`python -m perflint`, and the command `perflint`."""

import sys


def main() -> None:
    """Run the command line. A Ctrl-C before or after it, when there is nothing to clean up, ends the process at once."""
    try:
        import signal

        heeded = signal.getsignal(signal.SIGINT) is signal.default_int_handler
        if heeded:
            signal.signal(signal.SIGINT, _stop)
        from perflint import cli, interrupts

        try:
            if heeded:
                interrupts.heed()
            cli.main()
        finally:
            if heeded:
                signal.signal(signal.SIGINT, _stop)
    except KeyboardInterrupt:
        _stop()


def _stop(number: int = 0, frame: object = None) -> None:
    import os

    os._exit(130)


if __name__ == "__main__":
    if not (sys.flags.isolated or getattr(sys.flags, "safe_path", False)):
        del sys.path[0]  # the working directory: nothing that is linted there is imported, whatever it is named
    main()
