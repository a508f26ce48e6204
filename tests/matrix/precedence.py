"""Which of two places counts where both give a setting, for each pair of places, as a client sees it."""

import itertools

from cases import CASES, text_of, words_of, yml_of
from in_r import arguments_of, code
from server import HERE, Server, equal, free_port, until
from table import ROWS

# From the strongest to the weakest.
OF_THE_PROGRAM = ("command line", "environment", "_server.yml", "option of R")
OF_R = ("R", "environment", "_server.yml", "option of R")


def served_with(given, in_r=False, more_env=None, **more):
    """Starts a server; `given` has the settings of each place."""
    options = given.get("option of R", {})
    env = {ROWS[name].variable: text_of(value) for name, value in given.get("environment", {}).items()} | (more_env or {})
    yml = yml_of(given["_server.yml"]) if "_server.yml" in given else None
    if in_r:
        arguments = given.get("R", {})
        return Server(yml=yml, env=env, r_code=lambda port_and_log: code(arguments_of(port_and_log | arguments), options), **more)
    # The app is read before its server starts.
    lines = [f"options(rookery.{name} = {value})\n" for name, value in options.items()]
    files = {"app.R": "".join(lines) + (HERE / "app" / "app.R").read_text()} if lines else None
    return Server(*words_of(given.get("command line", {})), yml=yml, env=env, files=files, **more)


def the_stronger_place_counts(where):
    places = OF_R if where == "serve() in R" else OF_THE_PROGRAM
    for strong, weak in itertools.combinations(places, 2):
        given = {strong: {"max_body_size": 200}, weak: {"max_body_size": 100}}
        with served_with(given, in_r=places is OF_R) as server:
            statuses = [server.request("POST", "/length", b"x" * length).status for length in (150, 250)]
            equal(statuses, [200, 413], f"bodies of 150 and 250 bytes, with 200 by {strong} and 100 by {weak}")


def port_of_the_hosting_service_comes_before_the_default_alone(_):
    own, of_service = free_port(), free_port()
    for given, port in (({}, of_service), *(({place: {"port": own}}, own) for place in OF_THE_PROGRAM[:3])):
        # Port 0 leaves the option out.
        with served_with(given, port=0, start=False, more_env={"PORT": str(of_service), "WEB_CONCURRENCY": "2"}) as server:
            server.port = port
            until(f"it serves on port {port}, with {given}", lambda: server.get("/").status == 200)
            until("it has the workers of WEB_CONCURRENCY", lambda: len(server.workers()) == 2)


CASES.append((the_stronger_place_counts.__name__, {"serve() in R": [], "rookery serve": []}, the_stronger_place_counts))
CASES.append((port_of_the_hosting_service_comes_before_the_default_alone.__name__, {"rookery serve": []},
              port_of_the_hosting_service_comes_before_the_default_alone))
