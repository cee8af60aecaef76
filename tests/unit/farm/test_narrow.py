"""Tests of changing flags in a ``build.ninja`` of CMake 3.31 for CUDA: fewer codes for some
units, shared PTX."""

from pathlib import Path

from builder.farm.ninja import UnitCodes, narrowed, part_of, read

OBJECTS = "CMakeFiles/onnxruntime_providers_cuda.dir/src/onnxruntime/onnxruntime"

FLASH = "contrib_ops/cuda/bert/flash_attention/flash_fwd_hdim64_fp16_sm80.cu"

TOPK = "core/providers/cuda/math/topk_impl_f16.cu"


def flags(*pairs: str) -> str:
    return "".join(
        f' "--generate-code=arch=compute_{ptx},code=[{code}]"' for ptx, code in (p.split(":") for p in pairs)
    )


def statement(source: str, *pairs: str) -> str:
    return (
        f"build {OBJECTS}/{source}.o: CUDA_COMPILER__onnxruntime_providers_cuda_unscanned_Release "
        f"/src/onnxruntime/onnxruntime/{source} || order\n"
        f"  FLAGS = -Xfatbin=--raw -O3 -DNDEBUG{flags(*pairs)} -Xcompiler=-fPIC\n"
        "  INCLUDES = -I/build\n\n"
    )


LATEST = ("89:sm_89", "90:sm_90", "90:compute_90")

LINK = "build lib.so: CUDA_SHARED_LIBRARY_LINKER__p_Release a.o\n  LANGUAGE_COMPILE_FLAGS = -O3" + flags(
    *LATEST
)


def test_a_unit_keeps_the_codes_that_it_is_launched_on_and_no_other_unit_changes() -> None:
    text = statement(FLASH, *LATEST) + statement(TOPK, *LATEST) + LINK
    parts = {"contrib_ops/cuda/bert/flash_attention/flash_fwd_": UnitCodes({"sm_89": "", "sm_90": ""})}
    wanted = statement(FLASH, "89:sm_89", "90:sm_90") + statement(TOPK, *LATEST) + LINK
    assert narrowed(text, parts) == wanted
    assert narrowed(wanted, parts) == wanted


def test_codes_that_share_ptx_name_the_older_one() -> None:
    text = statement(TOPK, "50:sm_50", "52:sm_52", "61:sm_61")
    wanted = statement(TOPK, "50:sm_50", "50:sm_52", "61:sm_61")
    assert narrowed(text, {"": UnitCodes({"sm_50": "", "sm_52": "compute_50", "sm_61": ""})}) == wanted


def test_the_first_line_that_fits_decides() -> None:
    folder = "contrib_ops/cuda/moe/ft_moe"
    gemms, others = UnitCodes({"sm_70": ""}, 1), UnitCodes({"sm_50": "", "sm_70": ""}, 2)
    parts = {f"{folder}/moe_gemm_kernels_": gemms, "": others}
    assert part_of(f"{OBJECTS}/{folder}/moe_gemm_kernels_fp16_uint4.cu.o", parts) == gemms
    assert part_of(f"{OBJECTS}/{folder}/moe_kernel.cu.o", parts) == others
    assert part_of("CMakeFiles/other.dir/x.cu.o", parts) is None


def test_lines_are_a_path_codes_and_a_cost(tmp_path: Path) -> None:
    file = tmp_path / "parts.tsv"
    file.write_text("a/b_\tsm_89 sm_90:compute_89\t1.25\nc.cu\t\t0\n\tcompute_90\n", encoding="ascii")
    assert read(file) == {
        "a/b_": ({"sm_89": "", "sm_90": "compute_89"}, 1.25),
        "c.cu": ({}, 0.0),
        "": ({"compute_90": ""}, 0.0),
    }
    file.write_text("", encoding="ascii")
    assert read(file) == {}
