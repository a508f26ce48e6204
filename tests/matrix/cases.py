"""The table of the cases, in which places each of them runs, and how it gives its settings there: on the command line, in `_server.yml`, in R or
in the environment.

One table of settings gives a setting its form in every place, so that a case runs in one place. The places are chosen so that each kind of value
is given in each form of each place.
"""

import collections
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

    It is called for one or some of the places where at least one of the keys can be given.
    """
    def register(function):
        where = {place: given for place in places if (given := [key for key in keys if can_be_given(key, place)])}
        CASES.append((function.__name__, where, function))
        return function
    return register


def forms(keys, place):
    """Returns the kind of the value and the form of each of these settings in a place."""
    return {(ROWS[key].kind, place, ROWS[key].form(place)) for key in keys if can_be_given(key, place)}


def in_some_places():
    """Yields each case with one place, and with more where only they give a setting, or a kind of value in a form."""
    missing = set(ROWS).union(*(forms(ROWS, place) for place in PLACES))
    used = collections.Counter()
    again = []
    for name, where, function in CASES:
        new = {place: missing & (forms(keys, place) | set(keys)) for place, keys in where.items()}
        best = max(where, key=lambda place: (len(new[place]), -used[place]))
        for place, keys in where.items():
            # A case without keys gives the settings of each place itself.
            if place != best and keys:
                again.append((name, place, keys, function))
                continue
            missing -= new[place]
            used[place] += 1
            yield name, place, keys, function
    for name, place, keys, function in again:
        if new := missing & (forms(keys, place) | set(keys)):
            missing -= new
            yield name, place, keys, function


def in_every_place():
    return ((name, place, keys, function) for name, where, function in CASES for place, keys in where.items())


def text_of(value):
    if isinstance(value, bool):
        return "on" if value else "off"
    return ",".join(str(item) for item in value) if isinstance(value, list) else str(value)


def words_of(settings):
    words = []
    for name, value in settings.items():
        row = ROWS[name]
        if row.option.startswith("--no-"):
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
