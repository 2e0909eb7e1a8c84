"""Arrays of other libraries are NumPy's or CuPy's on the same memory, or it is said why not; shown with planted ones.

A planted array lends a NumPy array's memory. On a device it is planted too: a module takes CuPy's place whose arrays
are in host memory.
"""

import ctypes
import sys
import types
import weakref

import numpy as np
import pytest
from ml_dtypes import bfloat16, float8_e4m3fn, float8_e5m2

from mpicoll.foreign import native, refresh, refusal, writable

CUDA = (2, 0)
CODES = {bfloat16: 4, float8_e4m3fn: 10, float8_e5m2: 12}  # as dlpack.h numbers them
STREAM = 7


class Planted:
    """Another library's array on the memory of the NumPy array `memory`, lent as the newer protocol says.

    Args:
        code: of its type, instead of the code of memory's.
        device: where it says to be.
        fields: further 4-byte integers to plant in the capsule, as {offset in bytes: value}.
        error: what it raises instead of lending.

    Attributes:
        asked: the keywords of every call to lend.
    """

    def __init__(self, memory, code=None, device=(1, 0), fields=None, error=None):
        self.memory, self.code, self.device, self.fields, self.error = memory, code, device, fields or {}, error
        self.asked = []

    def __dlpack_device__(self):
        return self.device

    def __dlpack__(self, *, stream=None, max_version=None, dl_device=None, copy=None):
        self.asked.append({"stream": stream, "max_version": max_version, "copy": copy})
        if self.error:
            raise self.error
        capsule, tensor = lend(self.memory, max_version)
        ctypes.c_int32.from_address(tensor + 8).value = self.device[0]
        if self.code is not None:
            ctypes.c_uint8.from_address(tensor + 20).value = self.code
        for offset, value in self.fields.items():
            ctypes.c_uint32.from_address(tensor - 32 + offset).value = value
        return capsule


class Older(Planted):
    """One that knows only the older protocol, whose capsules have no version."""

    def __dlpack__(self, stream=None):
        return super().__dlpack__(stream=stream)


class CudaArray:
    """One with the other protocol."""

    def __init__(self, memory, read_only=False):
        self.memory, interface = memory, memory.__array_interface__
        self.__cuda_array_interface__ = interface | {"data": (interface["data"][0], read_only), "stream": 1}


def lend(memory, max_version):
    """A NumPy array's capsule, and the address of the tensor in it."""
    capsule = memory.__dlpack__(max_version=max_version)
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    if max_version:
        return capsule, pointer(capsule, b"dltensor_versioned") + 32
    return capsule, pointer(capsule, b"dltensor")


class Capsule:
    """One that lends this capsule."""

    def __init__(self, capsule):
        self.capsule = capsule

    def __dlpack_device__(self):
        return 1, 0

    def __dlpack__(self, **keywords):
        return self.capsule


@pytest.fixture
def cupy(monkeypatch):
    """A module that imports like CuPy, is named so, and knows no more than CuPy does; `arrived` counts the imports."""

    class Array(np.ndarray):
        @property
        def flags(self):
            return types.SimpleNamespace(c_contiguous=True)  # no `writeable`, as CuPy has none

    def from_dlpack(lender):
        assert lender.__dlpack_device__()[0] in (2, 13)
        try:
            capsule = lender.__dlpack__(stream=STREAM, max_version=(1, 0), copy=None)
            tensor = ctypes.pythonapi.PyCapsule_GetPointer(capsule, b"dltensor_versioned") + 32
        except TypeError:
            capsule = lender.__dlpack__(stream=STREAM)
            tensor = ctypes.pythonapi.PyCapsule_GetPointer(capsule, b"dltensor")
        ctypes.c_int32.from_address(tensor + 8).value = 1
        module.arrived += 1
        return np.from_dlpack(Capsule(capsule)).view(Array)

    def asarray(array):
        module.arrived += 1
        return array.memory.view(Array)

    module = types.ModuleType("cupy")
    module.ndarray, module.from_dlpack, module.asarray, module.arrived = Array, from_dlpack, asarray, 0
    monkeypatch.setitem(sys.modules, "cupy", module)
    return module


def is_same_memory(a, b):
    """Whether a number written to one is read from the other, there and back."""
    a[...] = 3
    first = (b == 3).all()
    b[...] = 4
    return bool(first and (a == 4).all())


# ---- in host memory


@pytest.mark.parametrize("dtype", ["int8", "uint64", "float16", "float32", "complex128", "bool"])
def test_an_array_of_another_library_is_numpys_on_the_same_memory(dtype):
    memory = np.zeros((3, 4), dtype)
    got = native(Planted(memory))
    assert type(got) is np.ndarray
    assert (got.shape, got.strides, got.dtype) == (memory.shape, memory.strides, memory.dtype)
    assert got.ctypes.data == memory.ctypes.data
    if dtype != "bool":
        assert is_same_memory(got, memory)


@pytest.mark.parametrize("dtype", CODES)
@pytest.mark.parametrize("shape", [(6,), (2, 3), (0,), ()])
def test_so_is_one_of_a_type_that_numpy_does_not_import(dtype, shape):
    memory = np.ones(shape, dtype)
    planted = Planted(memory.view(f"u{memory.itemsize}"), code=CODES[dtype])
    with pytest.raises((BufferError, RuntimeError)):
        np.from_dlpack(planted)
    got = native(planted)
    assert (got.shape, got.dtype) == (shape, dtype)
    assert is_same_memory(got, memory)


@pytest.mark.parametrize("memory", [np.zeros((0, 3)), np.zeros(()), np.zeros((4, 6))[::2, 1::2], np.zeros((2, 3)).T])
def test_shapes_without_elements_without_axes_and_with_gaps_are_kept(memory):
    got = native(Planted(memory))
    assert (got.shape, got.flags.c_contiguous) == (memory.shape, memory.flags.c_contiguous)
    assert not memory.size or got.strides == memory.strides
    assert is_same_memory(got, memory)


def test_pinned_memory_is_host_memory():
    memory = np.zeros(3)
    assert is_same_memory(native(Planted(memory, device=(3, 0))), memory)


def test_read_only_memory_stays_read_only():
    memory = np.zeros(3)
    assert writable(native(Planted(memory)))
    memory.flags.writeable = False
    assert not writable(native(Planted(memory)))


@pytest.mark.parametrize("dtype", [np.float32, bfloat16])
def test_who_cannot_say_whether_memory_is_read_only_lends_it_for_reading(dtype):
    memory = np.arange(3).astype(dtype)
    planted = Older(memory.view("u2"), code=4) if dtype is bfloat16 else Older(memory)
    got = native(planted)
    assert (got == memory).all()
    assert got.dtype == dtype
    assert not writable(got)


def test_the_lender_is_asked_not_to_copy():
    planted = Planted(np.zeros(3))
    native(planted)
    assert [asked["copy"] for asked in planted.asked] == [False]


@pytest.mark.parametrize(
    "array",
    [
        np.zeros(3),
        np.ma.zeros(3),
        np.zeros((1, 1)).view(np.matrix),
        np.float32(1),
        [1.0, 2.0],
        1.0,
        None,
        "text",
        object(),
    ],
)
def test_what_is_numpys_or_offers_no_memory_is_left_as_it_is(array):
    assert native(array) is array
    assert refusal(array) is None
    refresh(array)


def test_a_file_in_memory_is_left_as_it_is(tmp_path):
    array = np.memmap(tmp_path / "numbers", np.float32, "w+", shape=3)
    assert native(array) is array


# ---- on a device


@pytest.mark.parametrize("place", [2, 13])
def test_memory_on_a_device_becomes_cupys(cupy, place):
    memory = np.zeros((2, 3))
    got = native(Planted(memory, device=(place, 0)))
    assert type(got) is cupy.ndarray
    assert (got.shape, got.dtype) == (memory.shape, memory.dtype)
    assert is_same_memory(got, memory)
    assert native(got) is got


def test_cupys_stream_is_what_the_lender_lets_wait(cupy):
    planted = Planted(np.zeros(3), device=CUDA)
    native(planted)
    refresh(planted)
    assert planted.asked == 2 * [{"stream": STREAM, "max_version": (1, 0), "copy": False}]


def test_bfloat16_on_a_device_is_cupys(cupy):
    memory = np.zeros(3, bfloat16)
    got = native(Planted(memory.view("u2"), code=4, device=CUDA))
    assert (type(got), got.dtype) == (cupy.ndarray, bfloat16)
    assert is_same_memory(got, memory)


@pytest.mark.parametrize("dtype", [float8_e4m3fn, float8_e5m2])
def test_types_of_8_bits_on_a_device_are_cupys(cupy, dtype):
    memory = np.zeros((2, 3), dtype)
    got = native(Planted(memory.view("u1"), code=CODES[dtype], device=CUDA))
    assert (type(got), got.dtype, got.shape) == (cupy.ndarray, dtype, (2, 3))
    assert is_same_memory(got, memory)


@pytest.mark.parametrize("code", [None, 10])
def test_read_only_memory_on_a_device_is_known_to_be(cupy, code):
    memory = np.zeros(3, np.uint8)
    assert writable(native(Planted(memory, code, CUDA)))
    assert not writable(native(Older(memory, code, CUDA)))
    memory.flags.writeable = False
    read_only = native(Planted(memory, code, CUDA))
    assert not writable(read_only)
    del read_only
    others = [memory.view(cupy.ndarray) for _ in range(100)]  # one of them has its address, most likely
    assert all(writable(other) for other in others)


def test_the_other_protocol_is_for_devices_too(cupy):
    memory = np.zeros(3)
    got = native(CudaArray(memory))
    assert type(got) is cupy.ndarray
    assert writable(got)
    assert is_same_memory(got, memory)
    assert not writable(native(CudaArray(memory, read_only=True)))
    assert cupy.arrived == 2
    refresh(CudaArray(memory))
    assert cupy.arrived == 3


def test_dlpack_goes_first(cupy):
    planted = Planted(np.zeros(3))
    planted.__cuda_array_interface__ = {}
    assert type(native(planted)) is np.ndarray


# ---- refused


def refused(array):
    """Why it is refused, when it is."""
    assert native(array) is array
    return refusal(array)


def test_the_lenders_reason_is_passed_on():
    assert "use tensor.detach()" in refused(Planted(np.zeros(3), error=BufferError("use tensor.detach()")))
    assert "KeyError" in refused(Planted(np.zeros(3), error=KeyError()))
    with pytest.raises(BufferError, match="no more"):
        refresh(Planted(np.zeros(3), error=BufferError("no more")))


def test_devices_other_than_cuda_are_refused():
    assert refused(Planted(np.zeros(3), device=(10, 0))) == (
        "it is on a device of kind ROCm (10 in DLPack), not CUDA; pass a copy in host memory"
    )
    assert "kind unknown (99" in refused(Planted(np.zeros(3), device=(99, 0)))


@pytest.mark.parametrize("array", [Planted(np.zeros(3), device=CUDA), CudaArray(np.zeros(3))])
def test_without_cupy_memory_on_a_device_is_refused(monkeypatch, array):
    monkeypatch.setitem(sys.modules, "cupy", None)
    assert "install mpicoll[cuda13]" in refused(array)


def test_types_that_nobody_knows_are_refused():
    memory = np.zeros(4, np.uint8)
    assert "8 bits of kind 14" in refused(Planted(memory, code=14))
    assert "32 bits of kind 5" in refused(Planted(memory.view("u4"), code=5))


def test_copies_are_refused():
    assert "copies only" in refused(Planted(np.zeros(3), fields={24: 2}))


def test_capsules_of_a_later_format_are_refused_unread():
    capsule, tensor = lend(np.zeros(3, np.uint16), (1, 0))
    ctypes.c_uint32.from_address(tensor - 32).value = 2
    ctypes.c_uint8.from_address(tensor + 20).value = 4
    assert "version" in refused(Capsule(capsule))
    assert ctypes.c_uint8.from_address(tensor + 20).value == 4


def test_a_capsule_that_has_been_used_is_refused():
    capsule, _ = lend(np.zeros(3), (1, 0))
    kept = native(Capsule(capsule))
    assert refused(Capsule(capsule))
    assert (kept == 0).all()


# ---- lifetime


def is_kept_and_given_back(plant, use):
    """Whether memory lives as long as what `use` makes of the planted array, and no longer."""
    memory = np.full(3, 2, np.uint8)
    alive = weakref.ref(memory)
    result = use(plant(memory))
    del memory
    kept = alive() is not None
    if not kept and result is not None:
        return False
    del result
    return alive() is None


@pytest.mark.parametrize("versioned", [Planted, Older])
@pytest.mark.parametrize("device", [(1, 0), CUDA])
@pytest.mark.parametrize("code", [None, 10])
def test_memory_lives_as_long_as_the_array_and_no_longer(cupy, versioned, device, code):
    def plant(memory):
        return versioned(memory, code, device)

    assert is_kept_and_given_back(plant, native)
    assert is_kept_and_given_back(plant, lambda array: native(array).reshape(3, 1)[1:])
    assert is_kept_and_given_back(plant, refresh)


def test_memory_is_given_back_when_it_is_refused(cupy):
    def refuse(array):
        assert refused(array)

    for keywords in {"code": 14}, {"fields": {24: 2}}, {"fields": {0: 2}}:
        assert is_kept_and_given_back(lambda memory, keywords=keywords: Planted(memory, **keywords), refuse)


def test_planted_memory_that_is_never_given_back_is_found():
    def leak(array):
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(array.memory))
        return native(array)

    assert not is_kept_and_given_back(Planted, leak)


def test_planted_memory_that_is_given_back_too_early_is_found():
    assert not is_kept_and_given_back(Planted, lambda array: array.memory.copy())


# ---- the real ones


TYPES = ["float32", "float64", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "complex64", "int8", "bool"]


@pytest.mark.parametrize("dtype", TYPES)
def test_torchs_tensors(dtype):
    torch = pytest.importorskip("torch")
    tensor = torch.ones((2, 3), dtype=getattr(torch, dtype))
    got = native(tensor)
    assert (type(got), got.shape, got.dtype.name) == (np.ndarray, (2, 3), dtype)
    assert got.ctypes.data == tensor.data_ptr()
    got[0] = 0
    assert tensor.to(torch.complex64).flatten().tolist() == [0, 0, 0, 1, 1, 1]
    refresh(tensor)


def test_torchs_parameters_are_refused_with_the_way_out():
    torch = pytest.importorskip("torch")
    parameter = torch.nn.Parameter(torch.zeros(3))
    assert refused(parameter).endswith("use tensor.detach()")
    assert native(parameter.detach()).ctypes.data == parameter.data_ptr()
    assert refused(torch.zeros(3, device="meta"))


@pytest.mark.parametrize("dtype", [name for name in TYPES if name != "float64"])
def test_jaxs_arrays_are_read_only(dtype):
    jax = pytest.importorskip("jax")
    array = jax.numpy.ones((2, 3), dtype)
    got = native(array)
    assert (type(got), got.shape, got.dtype.name) == (np.ndarray, (2, 3), dtype)
    assert got.ctypes.data == array.unsafe_buffer_pointer()
    assert (got == 1).all()
    assert not writable(got)
    refresh(array)


def test_jaxs_deleted_arrays_are_refused():
    jax = pytest.importorskip("jax")
    array = jax.numpy.zeros(3)
    array.delete()
    assert refused(array)
