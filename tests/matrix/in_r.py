"""Writes the R code that serves a folder with settings as arguments of functions, or as options."""

import json

from table import ROWS

# The functions that make the value of an argument of another one.
MAKES = {"server_limits": ("serve", "limits"), "workers_config": ("serve", "workers"), "tls_config": ("serve", "tls"),
         "acme": ("tls_config", "acme")}


def r_value(value):
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if isinstance(value, list):
        return f"c({', '.join(r_value(item) for item in value)})"
    return str(value) if isinstance(value, (int, float)) else json.dumps(str(value))


def _log(value):
    return {"stdout": "TRUE", "none": "FALSE"}.get(value, r_value(value))


def arguments_of(settings):
    """Returns the arguments of serve(): those of the functions in MAKES become calls."""
    calls = {"serve": {}}
    for name, value in settings.items():
        row = ROWS[name]
        # `tls = "dev"` and `workers = 2` are arguments of serve() unless more is said.
        calls.setdefault(row.function, {})[row.argument] = _log(value) if name == "log" else r_value(value)
    if "workers_config" in calls:
        calls["workers_config"] = {"workers": calls["serve"].pop("workers", "1L")} | calls["workers_config"]
    for function in ("acme", "tls_config", "workers_config", "server_limits"):
        if function in calls:
            into, argument = MAKES[function]
            inner = ", ".join(f"{name} = {value}" for name, value in calls.pop(function).items())
            calls.setdefault(into, {})[argument] = f"rookery::{function}({inner})"
            # A later function takes what an earlier one made.
    return calls["serve"]


def code(arguments, options):
    """Returns the program: its exit status is that of the process that serves."""
    given = [f"options(rookery.{name} = {r_value(value)})" for name, value in options.items()]
    words = ", ".join(['"{folder}/app"', *(f"{name} = {value}" for name, value in arguments.items())])
    return "; ".join([*given, f"tryCatch(rookery::serve({words}), rookery_exit = function(e) {{ message(conditionMessage(e)); quit(status = e$status) }})"])
