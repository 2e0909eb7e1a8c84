"""torch's tensors on the GPU, lent without copies: late data on torch's streams, of its types."""

import numpy as np


def check(run):
    try:
        import torch
    except ImportError as error:
        run.say("skipped", text=f"torch is not there ({error})")
        return
    comm, calls = run.comm, 0
    torch.cuda.set_device(run.maker.number)
    for dtype in (torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.float8_e5m2):
        content = (torch.arange(10_000, device="cuda") % 2).to(dtype)
        want = (comm.size * (np.arange(10_000) % 2)).astype("float64")
        for stream in (torch.cuda.current_stream(), torch.cuda.Stream()):
            with torch.cuda.stream(stream):
                x, y = torch.empty_like(content), torch.empty_like(content)
                plan = comm.allreduce_init(x, y)
                for form in ("blocking", "nonblocking", "persistent"):
                    x.view(torch.uint8).fill_(0xA5)
                    torch.cuda.synchronize()
                    torch.cuda._sleep(3_000_000)  # cycles: some ms
                    x.copy_(content)
                    if form == "blocking":
                        result = comm.allreduce(x, y)
                    elif form == "nonblocking":
                        result = comm.iallreduce(x, y).wait()
                    else:
                        plan.start()
                        result = plan.wait()
                    assert result is y
                    assert (y.to(torch.float64).cpu().numpy() == want).all(), (run.way, dtype, form, stream)
                    calls += 1
                plan.free()
    run.say("note", text=f"{calls} calls with tensors of torch {torch.__version__} right")
