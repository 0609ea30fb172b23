"""What can go wrong with a folder that somebody else wrote."""


class LoadError(ValueError):
    """A saved geometry cannot be loaded. The message says what is wrong with which file, and what to do.

    Example:
        >>> from carre.storage import load
        >>> load("nowhere")
        Traceback (most recent call last):
            ...
        carre.storage.errors.LoadError: folder must exist; there is no folder 'nowhere'
    """
