"""What keeps a step, in words, from its figures."""

HIDDEN = 0.05  # of the step: whoever waits for less is not kept by the network


def verdict(s, overlap, thread):
    """One sentence on a summary's figures.

    Args:
        s: with "world_size", "step_ms", "backward_ms", "comm_ms", "exposed_comm_ms", "waits_ms", "bucket_waits_ms" and
            "bucket_mib".
        overlap: whether communication starts while backward goes on.
        thread: whether a thread drives it.
    """
    waits, sizes, exposed, comm = s["bucket_waits_ms"], s["bucket_mib"], s["exposed_comm_ms"], s["comm_ms"]
    share = f"the step waits {exposed:.1f} of {s['step_ms']:.1f} ms for communication"
    if s["world_size"] == 1:
        return "one rank: nothing is communicated"
    if not comm:
        return "nothing is communicated: a step is computation"
    if exposed <= HIDDEN * s["step_ms"]:
        return f"computing is the limit: {share}"
    if "pull" in s["waits_ms"]:
        parts = ", ".join(f"{name} {ms:.1f} ms" for name, ms in s["waits_ms"].items())
        return f"the server is the limit: {share} with it ({parts})"
    if not overlap:
        return f"nothing is hidden: communication starts when backward has ended; {share}"
    if len(sizes) == 1:
        return (
            f"nothing is hidden: there is one bucket, full when backward ends; --bucket-cap-mb {sizes[0] / 4:.2g} "
            f"would cut it; {share}"
        )
    if comm > s["backward_ms"]:
        longer = f"{comm:.1f} ms in flight are longer than backward's {s['backward_ms']:.1f}"
        if thread:
            return f"the network is the limit: its {longer}; {share}"
        return f"the network is the limit, or too seldom driven (try --progress-thread): its {longer}; {share}"
    last = f"the last bucket ({waits[-1]:.1f} of {comm:.1f} ms)"
    if waits[-1] >= 0.8 * exposed:
        return f"communication is hidden but for {last}"
    most = max(range(len(waits)), key=waits.__getitem__)
    way_out = "" if thread else "; --progress-thread would drive it while layers compute"
    return f"{share}, the most for bucket {most} ({waits[most]:.1f} ms), for {last}{way_out}"
