"""The fixtures of the tests in this folder."""

from tests.store.fixtures import postgres, url

__all__ = ["postgres", "url"]
