"""factkit: five papers against hallucination, reproduced as numbered notebooks."""

__version__ = "0.1.0"


def show_source(*objects: object) -> None:
    """Display the source of functions or classes, highlighted, in a notebook."""
    import inspect

    from IPython.display import Code, display

    for obj in objects:
        display(Code(inspect.getsource(obj), language="python"))
