"""The table of the cases, and how a case gives its settings: on the command line, in `_server.yml`, in R or in the environment."""

import json
import threading
import time

from in_r import arguments_of, code
from server import PATIENCE, Server
from table import ROWS

CASES = []
# What the case of this thread has given so far, and the settings that it is to leave out.
OF_THIS_CASE = threading.local()
PLACES = ("command line", "_server.yml", "R", "option of R", "environment")


def can_be_given(name, place):
    return ROWS[name].can_be_given(place)


def case(*keys, places=PLACES):
    """Registers a function that starts a server with the given keys set, and observes the effect of each.

    It is called for each place where at least one of the keys can be given.
    """
    def register(function):
        for place in places:
            if any(can_be_given(key, place) for key in keys):
                CASES.append((function.__name__, place, [key for key in keys if can_be_given(key, place)], function))
        return function
    return register


def text_of(value):
    if isinstance(value, bool):
        return "on" if value else "off"
    return ",".join(str(item) for item in value) if isinstance(value, list) else str(value)


def words_of(settings):
    words = []
    for name, value in settings.items():
        row = ROWS[name]
        if row.is_limit:
            words += ["--limit", f"{name}={text_of(value)}"]
        elif row.option.startswith("--no-"):
            words.append(f"{row.option}={text_of(not value)}")
        elif row.is_flag:
            words.append(f"{row.option}={text_of(value)}")
        else:
            words += [row.option, text_of(value)]
    return words


def yml_of(settings):
    options = {}
    for name, value in settings.items():
        *sections, key = ROWS[name].path.split(".")
        level = options
        for section in sections:
            level = level.setdefault(section, {})
        level[key] = value if isinstance(value, (bool, int, list)) else str(value)
    # JSON is YAML.
    return "options: " + json.dumps(options) + "\n"


def started(place, settings, env=None, **rest):
    """Starts a server whose settings are given in `place`, and those that cannot be given there in `_server.yml`."""
    settings = dict(settings) | settings.get("limits", {})
    settings.pop("limits", None)
    settings = {name: value for name, value in settings.items() if name not in getattr(OF_THIS_CASE, "left_out", ())}
    there = {name: value for name, value in settings.items() if can_be_given(name, place)}
    if hasattr(OF_THIS_CASE, "given"):
        OF_THIS_CASE.given |= {name for name, value in there.items() if text_of(value) != ROWS[name].default}
    others = {name: value for name, value in settings.items() if name not in there}
    if place == "_server.yml":
        there, others = {}, settings
    if place in ("R", "option of R"):
        arguments, options = (there, {}) if place == "R" else ({}, there)
        return Server(yml=yml_of(others) if others else None, env=env, **rest,
                      r_code=lambda more: code(arguments_of(more | arguments), options), r_settings=set(settings))
    words = words_of(there) if place == "command line" else []
    if place == "environment":
        env = (env or {}) | {ROWS[name].variable: text_of(value) for name, value in there.items()}
        # The port of `Server` would count more.
        rest = {"port": 0} | rest if "port" in there else rest
    return Server(*words, yml=yml_of(others) if others else None, env=env, **rest)


def limited(place, env=None, **limits):
    return started(place, limits, env=env)


def time_until_closed(client, seconds=PATIENCE):
    client.settimeout(seconds)
    began = time.monotonic()
    Server.drain(client)
    return time.monotonic() - began
