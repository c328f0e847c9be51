"""Known causes of a failed start or a death: what the engine's log says, what it was, whether a retry can help, and
what to change. The first row that matches is the cause, so the specific ones stand before what follows from them.

`retry` True means that the same start can succeed a moment later; everything else fails again in the same way.
`hangs` marks what leaves the engine running for ever without serving, so that waiting for its end would be in vain.
"""

from __future__ import annotations

import re


class Cause:
    """`pattern` is searched in each log line; `signals` are ends of the main process that prove it alone."""

    def __init__(
        self, name, pattern, what, change, source, retry=False, hangs=False, engines=("sglang", "vllm"), signals=()
    ):
        self.name = name
        self.pattern = re.compile(pattern)
        self.what = what
        self.change = change
        self.source = source
        self.retry = retry
        self.hangs = hangs
        self.engines = engines
        self.signals = signals


CAUSES = (
    Cause(
        "driver_mismatch",
        r"Driver/library version mismatch|driver version is insufficient for CUDA runtime version",
        "the NVIDIA driver in the kernel and its libraries are of different versions",
        "reboot the host (or reload the driver's modules), and hold the driver's packages back from automatic upgrades",
        "pando85/homelab#4110",
    ),
    Cause(
        "no_space",
        r"No space left on device|Disk quota exceeded|\[Errno 28\]",
        "a file system is full",
        "make room: look at /var/cache/servewright, TMPDIR and /dev/shm",
        "errno(3)",
    ),
    Cause(
        "shm_removed",
        r"attaching to shared memory segment /dev/shm/nccl-.*(?:\(2\)|errno 2|No such file)"
        r"|FileNotFoundError.*No such file or directory: '/(?:dev/shm/)?psm_",
        "a shared memory segment was removed under a starting engine",
        "find out who removes files in /dev/shm: logind does for a user outside the system range (RemoveIPC=yes); "
        "servewright logs each of its own removals",
        "vllm-project/vllm#18831, vllm-project/vllm#54259",
    ),
    Cause(
        "shm_full",
        r"exit ?code:? -7\b|exitcode=-7\b|Bus error|posix_fallocate failed|failed to extend /dev/shm/nccl-",
        "/dev/shm is full or too small",
        "free or enlarge /dev/shm ('df -h /dev/shm'); what dead engines left goes before each start",
        "sgl-project/sglang#28089, NVIDIA/nccl#525",
        signals=(7,),
    ),
    Cause(
        "unknown_argument",
        r"error: unrecognized arguments|error: ambiguous option|error: argument .*: (?:invalid|expected)"
        r"|error: the following arguments are required",
        "the engine does not know an argument, or not in this form",
        "compare with 'bin/python -m sglang.launch_server --help' or 'bin/vllm serve --help' of this version",
        "kserve/kserve#6037",
    ),
    Cause(
        "compiler_missing",
        r"No such file or directory: '?\"?(?:ninja|nvcc|gcc|cc|g\+\+)\b|\b(?:ninja|nvcc)\b.*(?:not found|No such file)"
        r"|Could not find nvcc|Ninja is required|Failed to find C compiler",
        "kernels are compiled at the first use, and a compiler is not there",
        "install it where the unit's PATH leads: ninja in the engine's environment, gcc and the CUDA toolkit on the "
        "host",
        "flashinfer-ai/flashinfer#3386, vllm-project/vllm#49497",
    ),
    Cause(
        "python_headers",
        r"Python\.h: No such file",
        "the headers of Python are missing, and Triton compiles against them",
        "install python3-dev (or the -dev package of the environment's Python)",
        "sgl-project/sglang#18644",
    ),
    Cause(
        "cache_permission",
        r"Permission denied: '?\"?/\S*(?:cache|\.triton|\.config|\.local|\.nv|HOME)\S*|mkdir /\.cache",
        "the service's user cannot write where a cache is kept",
        "leave HOME and the cache variables to servewright, or make that folder writable for the service's user",
        "vllm-project/vllm#10185",
    ),
    Cause(
        "offline",
        r"LocalEntryNotFoundError|outgoing traffic has been disabled|OfflineModeIsEnabled"
        r"|Cannot find the requested files in the (?:disk|local) cache|We couldn't connect to 'https://huggingface",
        "a file of the model is not on the host, and services load nothing from the network",
        "put the whole model (tokenizer, remote code and draft model too) into model.path",
        "vllm-project/vllm#23684",
    ),
    Cause(
        "model_folder",
        r"does not appear to have a file named|Repo id must be in the form|is not a valid JSON file"
        r"|Cannot find any model weights|No such file or directory: \S+\.safetensors|SafetensorError"
        r"|Incomplete (?:metadata|safetensors)|MetadataIncompleteBuffer",
        "the model's folder is not complete",
        "fetch the model again and compare the sizes of its files",
        "seen with SGLang 0.5.23 and vLLM 0.32.0",
    ),
    Cause(
        "context_too_long",
        r"User-specified (?:context_length|max_model_len) \(\d+\) is greater than the derived",
        "model.context_length is more than the model was made for",
        "declare a shorter model.context_length",
        "seen with SGLang 0.5.23 and vLLM 0.32.0",
    ),
    Cause(
        "parallel_size",
        r"must be divisible by (?:tensor parallel size|tp_size)|is not divisible by",
        "the model cannot be split into that many parts",
        "declare another parallelism.tensor",
        "seen with SGLang 0.5.23 and vLLM 0.32.0",
    ),
    Cause(
        "attention_backend_unfit",
        r"TllmGenFmhaRunner.*Unsupported architecture|compute capability not supported"
        r"|[Bb]ackend\S* (?:\S+ )?is not valid for this configuration|No valid attention backend found"
        r"|backend is only supported on (?:Blackwell|Hopper)|Unknown attention backend",
        "the attention backend does not run this model on this GPU",
        "declare another options.attention_backend (SGLang with MLA on compute capability 12.x: flashinfer or triton)",
        "sgl-project/sglang#24633, sgl-project/sglang#9140, vllm-project/vllm#57932",
    ),
    Cause(
        "unsupported_architecture",
        r"Unsupported architecture|no kernel image is available for execution",
        "a kernel was not built for this GPU",
        "use an engine and kernel packages built for the GPU's compute capability",
        "flashinfer-ai/flashinfer#3263",
    ),
    Cause(
        "custom_all_reduce",
        r"custom_all_reduce.*invalid argument|invalid argument.*custom_all_reduce",
        "the engine's own all-reduce does not run on this GPU",
        "declare options.disable_custom_all_reduce: true",
        "vllm-project/vllm#47751",
    ),
    Cause(
        "nccl_no_algorithm",
        r"no algorithm/protocol available|NCCL WARN Algo/Proto .*not (?:available|supported)",
        "NCCL_ALGO or NCCL_PROTO leaves a collective without an algorithm",
        "take them out of nccl.environment, or let 'servewright nccl lint' say which value fits",
        "pytorch/pytorch#163063",
    ),
    Cause(
        "speculation_memory",
        r"(?:OutOfMemoryError|CUDA out of memory|Not enough memory).*(?:draft|eagle|EAGLE|spec)",
        "the draft model and its graphs did not fit into GPU memory",
        "lower options.mem_fraction_static or gpu_memory_utilization: the draft model comes on top",
        "sgl-project/sglang#6875",
    ),
    Cause(
        "graph_capture_memory",
        r"Capture cuda graph failed|[Cc]apturing.*out of memory|out of memory.*[Cc]apturing",
        "GPU memory was full when CUDA graphs were captured",
        "lower options.mem_fraction_static or gpu_memory_utilization, or capture graphs for smaller batches",
        "sgl-project/sglang#4489, sgl-project/sglang#6875",
    ),
    Cause(
        "kv_cache_small",
        r"larger than the available KV cache memory|maximum number of tokens that can be stored in KV cache"
        r"|No available memory for the cache blocks|Not enough memory\. Please try to increase --mem-fraction-static",
        "the KV cache does not hold one request of full length",
        "declare a shorter model.context_length, or give the cache more memory (mem_fraction_static, "
        "gpu_memory_utilization)",
        "vllm-project/vllm#17979, seen with vLLM 0.32.0",
    ),
    Cause(
        "gpu_memory_taken",
        r"Free memory on device .* is less than desired GPU memory utilization",
        "another process, or one that is just ending, held GPU memory",
        "see what holds it with nvidia-smi; a declared claim is waited for, a stranger's process is not",
        "seen with vLLM 0.32.0",
        retry=True,
    ),
    Cause(
        "gpu_memory",
        r"OutOfMemoryError|CUDA out of memory|CUDA error: out of memory",
        "GPU memory is full",
        "lower options.mem_fraction_static or gpu_memory_utilization, or use more GPUs",
        "sgl-project/sglang#6875",
    ),
    Cause(
        "gpu_missing",
        r"No CUDA GPUs are available|invalid device ordinal|Failed to infer device type|no NVIDIA GPU detected",
        "the engine sees fewer GPUs than were claimed",
        "compare 'nvidia-smi -L' with 'gpus'; a GPU that fell off the bus needs a reboot",
        "seen with vLLM 0.32.0",
    ),
    Cause(
        "rendezvous_port",
        r"EADDRINUSE|rpc_port .* is used by a process already",
        "a port of the engine's own processes was in use",
        "declare options.nccl_port (SGLang), so that the port is not drawn by lot; end what holds it",
        "sgl-project/sglang#10693, sgl-project/sglang#31645",
        retry=True,
    ),
    Cause(
        "port_held",
        r"error while attempting to bind on address .* address already in use",
        "the HTTP port is in use",
        "see what holds it with 'ss -ltnp', or declare another listen.port",
        "seen with SGLang 0.5.23, which loads, logs this and then neither serves nor ends",
        hangs=True,
    ),
    Cause(
        "port",
        r"\[Errno 98\]|[Aa]ddress already in use",
        "the HTTP port is in use",
        "see what holds it with 'ss -ltnp', or declare another listen.port",
        "seen with vLLM 0.32.0; vllm-project/vllm#9737",
    ),
    Cause(
        "shapes",
        r"shapes cannot be multiplied|size mismatch for|shape mismatch|Sizes of tensors must match",
        "the model does not fit what this version of the engine computes with: shapes differ",
        "go back to the version that served this model, or see whether draft and target model belong together",
        "vllm-project/vllm#49008",
    ),
    Cause(
        "head_dimensions",
        r"Unsupported head dimensions|head_size .* is not supported",
        "the engine has no attention kernel for this model",
        "use another attention backend or version",
        "seen with vLLM 0.32.0",
    ),
    Cause(
        "attention_kernels_missing",
        r"ImportError: Can not import FA\d in sgl_kernel",
        "the kernels of the attention backend are not in this build of the engine",
        "declare an attention_backend that is there, or install sgl_kernel whole",
        "seen with SGLang 0.5.17",
        engines=("sglang",),
    ),
    Cause(
        "missing_module",
        r"ModuleNotFoundError: No module named|ImportError: .*(?:undefined symbol|cannot open shared object)",
        "the engine's environment is not whole",
        "build it anew from its lock file",
        "vllm-project/vllm#47223",
    ),
    Cause(
        "file_permission",
        r"PermissionError: \[Errno 13\]|Permission denied",
        "the service's user may not read or write a file",
        "give the service's user access to the file named in the log",
        "errno(3)",
    ),
    Cause(
        "host_memory",
        r"Out of memory: Killed process|oom-kill|DefaultCPUAllocator: can't allocate memory",
        "the host's memory is full, and the kernel killed a process",
        "free host memory, or load with less (CPU offload, pinned buffers)",
        "systemd.exec(5)",
    ),
)
