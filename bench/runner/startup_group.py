"""Not written yet."""


def run(group, options, isolate):
    raise NotImplementedError
