"""The table of the cases, and how a case gives its settings: on the command line or in `_server.yml`."""

import json
import time

from server import PATIENCE, Server

CASES = []
PLACES = ("command line", "_server.yml")

# How the file names what the command line names otherwise: nested below `tls:` and `acme:`, and switches by their positive form.
IN_TLS = {
    "tls_cert": "cert", "tls_key": "key", "tls_client_ca": "client_ca", "tls_client_auth": "client_auth",
    "tls_min_version": "min_version", "hsts": "hsts", "redirect_from": "redirect_from",
}
IN_ACME = {
    "domain": "domains", "email": "email", "agree_tos": "agree_tos", "acme_staging": "staging", "acme_directory": "directory",
    "acme_ca": "ca", "acme_profile": "profile", "acme_challenge": "challenge", "acme_dir": "dir",
}
NEGATIVE = {"no_http2": "http2", "no_http2_websockets": "http2_websockets"}


def case(*keys, places=PLACES):
    """Registers a function that starts a server with the given keys set, and observes the effect of each."""
    def register(function):
        for place in places:
            CASES.append((function.__name__, place, keys, function))
        return function
    return register


def words_of(settings):
    words = []
    for key, value in settings.items():
        option = "--" + key.replace("_", "-")
        if key == "limits":
            for name, limit in value.items():
                words += ["--limit", f"{name}={limit}"]
        elif value is True:
            words.append(option)
        elif isinstance(value, list):
            words += [option, ",".join(str(item) for item in value)]
        else:
            words += [option, str(value)]
    return words


def yml_of(settings):
    options, tls, acme = {}, {}, {}
    for key, value in settings.items():
        if key in IN_TLS:
            tls[IN_TLS[key]] = value
        elif key in NEGATIVE:
            tls[NEGATIVE[key]] = not value
        elif key in IN_ACME:
            acme[IN_ACME[key]] = value
        elif key == "tls":
            options["tls"] = value
        else:
            options[key] = value
    if acme:
        tls["acme"] = acme
    if tls:
        options["tls"] = tls
    # JSON is YAML.
    return "options: " + json.dumps(options) + "\n"


def started(place, settings, **rest):
    """Starts a server whose settings are given in `place`."""
    if place == "_server.yml":
        # The program decides on the port, and the matrix has to know it.
        return Server(yml=yml_of(settings), **rest)
    return Server(*words_of(settings), **rest)


def limited(place, **limits):
    return started(place, {"limits": limits})


def time_until_closed(client, seconds=PATIENCE):
    client.settimeout(seconds)
    began = time.monotonic()
    Server.drain(client)
    return time.monotonic() - began
