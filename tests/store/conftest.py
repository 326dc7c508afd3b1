"""The fixtures of the tests in this folder."""

from tests.store.fixtures import postgres, store, url

__all__ = ["postgres", "store", "url"]
