"""`pipeline compile`: the folder builds on its own, for the host and for the Cortex-M7, and computes what TFLM does."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from pipeline.errors import ConfigError, StageError
from stages.graph.graph import ConvOptions
from stages.graph.tflite.writer import write_tflite
from stages.tools.library import compile_library
from tests.stages.firmware.host_models import tflm_outputs
from tests.stages.graph.int8_graphs import Int8Builder, random_inputs, residual_network

STRICT = ("-Wall", "-Wextra", "-Wconversion", "-Werror")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("library")
    (place / "model.tflite").write_bytes(write_tflite(residual_network(0), "test"))
    compile_library(place / "model.tflite", place / "made", "fast", "overlap")
    return place / "made"


def run(argv: list[str], folder: Path) -> None:
    done = subprocess.run(argv, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def check_outputs(program: Path) -> None:
    inputs = random_inputs(residual_network(0), 20)
    done = subprocess.run([program], input=inputs.tobytes(), capture_output=True, check=True)
    outputs = np.frombuffer(done.stdout, np.int8).reshape(len(inputs), -1)
    assert np.array_equal(outputs, tflm_outputs(residual_network(0), inputs))


def test_the_line_in_the_readme_builds_a_program_that_computes_what_tflm_does(folder: Path) -> None:
    line = re.search(r"^    (gcc .*)$", (folder / "README.md").read_text(), re.MULTILINE)
    assert line
    run([*line.group(1).split(), *STRICT], folder)
    check_outputs(folder / "model_example")


@pytest.mark.skipif(shutil.which("cmake") is None, reason="cmake is not installed: apt-get install cmake")
def test_cmake_builds_it_for_the_host(folder: Path, tmp_path: Path) -> None:
    run(["cmake", "-B", str(tmp_path), "-DCMAKE_C_FLAGS=-Werror"], folder)
    run(["cmake", "--build", str(tmp_path)], folder)
    check_outputs(tmp_path / "model_example")


@pytest.mark.skipif(shutil.which("cmake") is None, reason="cmake is not installed: apt-get install cmake")
def test_cmake_builds_it_for_the_cortex_m7(folder: Path, tmp_path: Path) -> None:
    run(["cmake", "-B", str(tmp_path), "-DCMAKE_TOOLCHAIN_FILE=cortex_m7.cmake", "-DCMAKE_C_FLAGS=-Werror"], folder)
    run(["cmake", "--build", str(tmp_path)], folder)
    names = subprocess.run(
        ["arm-none-eabi-nm", tmp_path / "libmodel.a"], capture_output=True, text=True, check=True
    ).stdout
    assert " T model_invoke" in names
    assert not re.search(r"U (malloc|free|prof_\w+)", names)


def test_every_file_compiles_for_the_cortex_m7_without_a_warning(folder: Path, tmp_path: Path) -> None:
    flags = ["-mcpu=cortex-m7", "-mthumb", "-mfpu=fpv5-d16", "-mfloat-abi=hard", "-std=c11", "-O3", "-fwrapv"]
    for file in ("cortex_m7/model.c", "cortex_m7/model.S", *map(str, (folder / "kernels").rglob("*.c"))):
        run(["arm-none-eabi-gcc", *flags, *STRICT, "-I.", "-c", file, "-o", str(tmp_path / "object.o")], folder)


def test_only_the_kernels_that_the_network_needs_are_there(tmp_path: Path) -> None:
    builder = Int8Builder(0)
    graph = builder.graph(builder.conv(builder.input(24, 24, 8), 16, (1, 1), ConvOptions()))
    (tmp_path / "model.tflite").write_bytes(write_tflite(graph, "test"))
    compile_library(tmp_path / "model.tflite", tmp_path / "made", "small", "classic")
    names = {file.stem for file in (tmp_path / "made" / "kernels").rglob("*.[ch]")}
    assert {"matrix", "small_dot", "packed_channels", "requantise"} <= names
    assert not names & {"softmax", "pool_2d", "add", "fast_depthwise", "depthwise_conv_2d"}


def test_the_header_says_how_values_are_meant(folder: Path) -> None:
    text = (folder / "model.h").read_text()
    graph = residual_network(0)
    for role, index in (("INPUT", graph.inputs[0]), ("OUTPUT", graph.outputs[0])):
        tensor = graph.tensors[index]
        assert tensor.quantisation
        assert f"#define MODEL_{role}_BYTES {tensor.nbytes}u" in text
        assert f"#define MODEL_{role}_ZERO_POINT ({tensor.quantisation.zero_point[0]})" in text
        scale = re.search(rf"#define MODEL_{role}_SCALE (\S+)f", text)
        assert scale and np.float32(scale.group(1)) == np.float32(tensor.quantisation.scale[0])


def test_a_network_that_the_firmware_cannot_run_leaves_no_folder(tmp_path: Path) -> None:
    builder = Int8Builder(0)
    x = builder.input(4, 4, 2)
    y = builder.unary("DEQUANTIZE", x)
    graph = builder.graph(y, builder.unary("QUANTIZE", y, 0.1))
    (tmp_path / "model.tflite").write_bytes(write_tflite(graph, "test"))
    with pytest.raises(
        StageError, match=r"model.tflite: tensor activation1 is float32, needed a full int8 network, .*pipeline import"
    ):
        compile_library(tmp_path / "model.tflite", tmp_path / "made", "fast", "overlap")
    assert [path.name for path in tmp_path.iterdir()] == ["model.tflite"]


def test_a_folder_that_holds_something_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "made").mkdir()
    (tmp_path / "made" / "mine").write_text("mine")
    with pytest.raises(StageError, match="is there already, needed a new or an empty folder"):
        compile_library(tmp_path / "model.tflite", tmp_path / "made", "fast", "overlap")


def test_an_unknown_kind_of_weights_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="--weights: found 'tiny', needed one of fast, small"):
        compile_library(tmp_path / "model.tflite", tmp_path / "made", "tiny", "overlap")  # type: ignore[arg-type]
