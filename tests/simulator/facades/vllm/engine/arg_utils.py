"""The deep check: build the engine configuration from parsed arguments without starting anything."""

from __future__ import annotations

import argparse
import types

from engine_simulator import misbehaviour, model, vllm_args

from vllm import __version__


class AsyncEngineArgs:
    def __init__(self, args: argparse.Namespace) -> None:
        self._args = args

    @classmethod
    def from_cli_args(cls, args: argparse.Namespace) -> AsyncEngineArgs:
        return cls(args)

    def create_engine_config(self) -> types.SimpleNamespace:
        """ValueError for what the real configuration refuses: a bad folder, length or parallel size."""
        args = argparse.Namespace(**vars(self._args))
        args.model_tag = getattr(args, "model", None) or args.model_tag
        try:
            launch = vllm_args.launch(args, __version__, misbehaviour.Misbehaviour())
        except model.ModelError as error:
            raise ValueError(str(error)) from error
        space = types.SimpleNamespace
        return space(
            model_config=space(
                model=launch.model_path,
                max_model_len=launch.context,
                architectures=launch.config.get("architectures"),
                served_model_name=launch.names,
            ),
            parallel_config=space(
                tensor_parallel_size=launch.tensor_parallel,
                pipeline_parallel_size=args.pipeline_parallel_size,
                data_parallel_size=args.data_parallel_size,
            ),
            scheduler_config=space(max_num_seqs=launch.max_running),
            speculative_config=vllm_args.speculation(args),
        )
