"""The running plugin of one node: the composition root of everything below it."""

from .agent import Agent
from .options import Options

__all__ = ["Agent", "Options"]
