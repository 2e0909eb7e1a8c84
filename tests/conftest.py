"""What tests of proofs share."""

import inspect
import os
import types

import pytest

from mpicoll.algorithms import FAMILIES

os.environ["MPICOLL_TUNING"] = "none"  # what is tested is not the developer's own table


@pytest.fixture
def register(monkeypatch):
    """register(collective, function): the function is provable as the algorithm "planted"."""

    def add(collective, function):
        monkeypatch.setitem(FAMILIES[collective], "planted", function)

    return add


@pytest.fixture
def plant(register):
    """plant(collective, module, (old, new), ...): the module's algorithm with pieces of its text replaced."""

    def replaced(collective, module, *changes):
        source = inspect.getsource(module)
        for old, new in changes:
            assert source.count(old) == 1, old
            source = source.replace(old, new)
        broken = types.ModuleType(module.__name__)
        broken.__package__ = module.__package__
        exec(compile(source, f"planted in {module.__name__}", "exec"), vars(broken))
        register(collective, getattr(broken, collective))

    return replaced
