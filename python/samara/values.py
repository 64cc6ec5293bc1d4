# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Values of configuration keys as Python programs have them: checked, and in the program's form."""

from __future__ import annotations

import json
import math
import operator
import os
import sys
from collections.abc import Mapping
from typing import Any

from samara.program import CONFIG, Error

CODE = ("env.id", "env.wrappers")  # keys that name code: classes are values too


def words(overrides: Mapping[str, Any] | None) -> list[str]:
    """Arguments "table.key=value" of the program. Raises Error 78 for a key that is none, and for a value TypeError or
    ValueError, which name the key."""
    if not isinstance(overrides, (Mapping, type(None))):
        raise TypeError(f"overrides: {type(overrides).__name__}, expected a dict of keys, such as {{'run.seed': 3}}")
    for key in overrides or {}:
        if not isinstance(key, str) or key.startswith("-"):
            raise Error(CONFIG, f"{key}: expected a key of `samara list keys`")
    return [f"{key}={_word(key, value)}" for key, value in _flat(overrides or {}).items()]


def _flat(overrides: Mapping[str, Any]) -> dict[str, Any]:
    """With whole tables, {"ga": {"population": 8}}, as their keys."""
    found: dict[str, Any] = {}
    for key, value in overrides.items():
        is_table = "." not in key and isinstance(value, Mapping)
        found |= {f"{key}.{name}": v for name, v in value.items()} if is_table else {key: value}
    return found


def _word(key: str, value: Any) -> str:
    if key in CODE:
        value = [code_name(key, v) for v in value] if isinstance(value, (list, tuple)) else code_name(key, value)
    value = plain(key, value)
    return value if isinstance(value, str) else _toml(value)


def _toml(value: Any) -> str:
    """In one line; JSON but for tables."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(name)} = {_toml(v)}" for name, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return json.dumps(value)


def plain(key: str, value: Any) -> Any:
    """Tables, lists, texts, booleans and finite numbers, of Python's own types: what JSON and TOML have."""
    if hasattr(value, "tolist"):  # NumPy's and torch's numbers and arrays
        value = value.tolist()
    if isinstance(value, Mapping):
        return {str(name): plain(f"{key}.{name}", v) for name, v in value.items()}
    if isinstance(value, (list, tuple, range)):
        return [plain(f"{key}[{i}]", v) for i, v in enumerate(value)]
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{key}: {value}, expected a finite number")
    if not isinstance(value, (str, bool, int, float)):
        raise TypeError(f"{key}: {_about(value)}, expected a text, number, boolean, list or table")
    return value


def code_name(key: str, value: Any) -> str:
    """The name that actor processes import: a text, or "module:Name" of a class or function."""
    if isinstance(value, str):
        return value
    module, name = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
    if not callable(value) or not module or not name:
        raise TypeError(f"{key}: {_about(value)}, expected a text or a class")
    if getattr(sys.modules.get(module), name, None) is not value:
        raise ValueError(f"{key}: {module} has no attribute {name}, expected what actor processes can import")
    return f"{_script_module(key, name) if module == '__main__' else module}:{name}"


def _script_module(key: str, name: str) -> str:
    """The name by which actor processes import the running script."""
    main = sys.modules["__main__"]
    if spec := getattr(main, "__spec__", None):  # python -m
        return spec.name
    stem, ending = os.path.splitext(os.path.basename(getattr(main, "__file__", "")))
    if ending != ".py" or not stem.isidentifier():
        raise ValueError(
            f"{key}: {name} is defined in the program itself, which actor processes cannot import: put it into a module"
        )
    return stem


def path_text(key: str, value: Any, expected: str) -> str:
    """Returns the text of a path. Raises TypeError, which names the parameter."""
    if not isinstance(value, (str, os.PathLike)):
        raise TypeError(f"{key}: {_about(value)}, expected {expected}")
    return os.fspath(value)


def whole(key: str, value: Any) -> int:
    """Returns an integer of Python's or NumPy's. Raises TypeError, which names the parameter."""
    try:
        return operator.index(value)
    except TypeError:
        raise TypeError(f"{key}: {_about(value)}, expected an integer") from None


def _about(value: Any) -> str:
    text = " ".join(repr(value).split())
    return text if len(text) <= 80 else f"{text[:80]}... of type {type(value).__name__}"
