"""The running plugin of one node: the composition root of everything below it."""

from .agent import Agent, Options

__all__ = ["Agent", "Options"]
