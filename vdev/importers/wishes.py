"""What whoever imports says beside the text."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Wishes:
    """`form` is the name of the form, empty to tell it by the content; `domain` that of the resources, where the peer
    takes it from its command line; `preset` and `count` are the GPUs, of which some forms say nothing; `arguments` are
    the peer's own flags.
    """

    form: str = ""
    domain: str = ""
    preset: str = ""
    count: int = 0
    arguments: tuple[str, ...] = ()
