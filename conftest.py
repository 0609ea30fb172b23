"""What all tests have in common, also the examples in docstrings."""

import signal

# A shell that starts tests in the background lets them ignore Ctrl-C, and whatever they start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
