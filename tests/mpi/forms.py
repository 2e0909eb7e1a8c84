"""The forms in which a collective is called."""

FORMS = ["blocking", "nonblocking", "persistent"]


def perform(comm, form, name, *buffers, **arguments):
    """The collective's result in the given form."""
    if form == "blocking":
        return getattr(comm, name)(*buffers, **arguments)
    if form == "nonblocking":
        return getattr(comm, "i" + name)(*buffers, **arguments).wait()
    plan = getattr(comm, name + "_init")(*buffers, **arguments)
    plan.start()
    result = plan.wait()
    plan.free()
    return result
