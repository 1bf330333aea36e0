"""Filter expressions: what may be written in them, checked where they are declared.

pandas would run more than expressions: `@name` reads variables of whoever evaluates, attributes reach into Python, methods
write files or look at the whole batch, whose size nobody chose. An expression here decides row by row and does nothing
else, so that one from a notebook's parameters or a text field is as harmless as it looks. What goes further is a function.
"""

from __future__ import annotations

import ast
import re

from workbench.errors import InvalidExpression

_METHODS = frozenset(
    ["abs", "astype", "between", "clip", "eq", "fillna", "ge", "gt", "isin", "isna", "isnull", "le", "lt", "ne", "notna", "notnull", "round"]
)  # fmt: skip
_ACCESSORS = frozenset({"str", "dt"})
_FUNCTIONS = frozenset(
    ["Timestamp", "abs", "arccos", "arcsin", "arctan", "ceil", "cos", "exp", "expm1", "floor", "log", "log10", "log1p", "sin", "sqrt", "tan"]
)  # fmt: skip
_OF_PANDAS = frozenset(
    ["Inf", "Timestamp", "columns", "clevel_0", "datetime", "ilevel_0", "index", "inf", "list", "tuple"]
)
"""Names that `DataFrame.eval` knows without a column."""
_PLAIN = (
    ast.Expression, ast.BoolOp, ast.boolop, ast.UnaryOp, ast.unaryop, ast.BinOp, ast.operator, ast.Compare, ast.cmpop,
    ast.Constant, ast.List, ast.Tuple, ast.Load, ast.keyword, ast.Name,
)  # fmt: skip
_QUOTED = re.compile(r"""'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*"|`[^`]*`""")


def checked_expression(text: str) -> str:
    """`text`, if it is an expression as `DataFrame.eval` takes it and decides row by row; else `InvalidExpression`.

    Columns (in backticks if their name is no identifier), constants, comparisons, arithmetic, `and or not in & | ~`, the
    methods of `.str` and `.dt`, and those of a column that look at one row at a time, such as `isin` or `between`.
    """
    if not text.strip():
        raise InvalidExpression.empty()
    readable = _QUOTED.sub(lambda found: "column" if found[0].startswith("`") else found[0], text.strip())
    try:
        tree = ast.parse(readable, mode="eval")
    except (SyntaxError, ValueError) as error:
        if "@" in readable:
            raise InvalidExpression.refused(text, "variables (@name)") from error
        raise InvalidExpression.unreadable(text, assigns=_assigns(readable)) from error
    _check(tree, text)
    return text.strip()


def columns_in(text: str) -> frozenset[str]:
    """The columns that a checked expression names. None are told of an expression with names in `backticks`."""
    if "`" in text:
        return frozenset()
    tree = ast.parse(text, mode="eval")
    called = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and id(node) not in called}
    return frozenset(names - _OF_PANDAS)


def _check(node: ast.AST, text: str) -> None:
    match node:
        case ast.BinOp(op=ast.MatMult()):
            raise InvalidExpression.refused(text, "variables (@name)")
        case ast.Call(func=ast.Attribute(value=ast.Attribute(attr=accessor), attr=method)) if accessor in _ACCESSORS:
            _check_public(method, text)
        case ast.Call(func=ast.Attribute(attr=method)) if method not in _METHODS:
            raise InvalidExpression.refused(text, f"the method {method}()")
        case ast.Call(func=ast.Name(id=name)) if name not in _FUNCTIONS:
            raise InvalidExpression.refused(text, f"the function {name}()")
        case ast.Call(func=ast.Attribute() | ast.Name()):
            pass
        case ast.Subscript(value=ast.Attribute(attr="str")):
            pass
        case ast.Attribute(attr=accessor) if accessor in _ACCESSORS:
            pass
        case ast.Attribute(value=ast.Attribute(attr=accessor), attr=name) if accessor in _ACCESSORS:
            _check_public(name, text)
        case ast.Attribute(attr=name):
            raise InvalidExpression.refused(text, f"the attribute .{name}")
        case _ if not isinstance(node, _PLAIN):
            raise InvalidExpression.refused(text, f"{type(node).__name__} (Python's name for it)")
    for child in _operands(node):
        _check(child, text)


def _operands(node: ast.AST) -> list[ast.AST]:
    """What is left to look at; of a call, whose method has been looked at, what it is called on."""
    children = list(ast.iter_child_nodes(node))
    if isinstance(node, ast.Call):
        called = [node.func.value] if isinstance(node.func, ast.Attribute) else []
        return [*called, *node.args, *node.keywords]
    return children


def _check_public(name: str, text: str) -> None:
    if name.startswith("_"):
        raise InvalidExpression.refused(text, f"the attribute .{name}")


def _assigns(text: str) -> bool:
    try:
        return any(isinstance(statement, ast.Assign) for statement in ast.parse(text).body)
    except (SyntaxError, ValueError):
        return False
