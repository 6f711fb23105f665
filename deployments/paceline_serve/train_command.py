"""Runs ``paceline train eagle``, ``mtp`` or ``medusa`` in several processes of a Ray cluster, by Ray Train.

Every worker runs the same command. Ray gives each its rank, where Accelerate, which the training's loop is built on,
looks for it: gradients are averaged, the first worker writes. One worker computes features, the others wait for them.
"""

from collections.abc import Sequence
from typing import Any

from paceline.errors import ConfigError, SetupError

_COMMANDS = ("eagle", "mtp", "medusa")


def train(arguments: Sequence[str], *, num_workers: int, use_gpu: bool, address: str | None) -> None:
    """Run ``paceline train`` with ``arguments`` in ``num_workers`` workers; returns when all have ended.

    ``address`` is HOST:PORT of the cluster's GCS; None: RAY_ADDRESS, or a Ray of this machine. Raises ConfigError for
    another command, and SetupError without Ray Train.
    """
    if not arguments or arguments[0] not in _COMMANDS:
        raise ConfigError(f"Say what to train after the options: {', '.join(_COMMANDS)}, and its data.")
    try:
        import ray  # noqa: PLC0415  # loaded when it is needed
        from ray.train import ScalingConfig  # noqa: PLC0415
        from ray.train.torch import TorchTrainer  # noqa: PLC0415
    except ImportError as error:
        raise SetupError(f'Ray Train is not installed: `pip install "ray[train]"` ({error}).') from error
    if not ray.is_initialized():
        ray.init(address=address)
    trainer = TorchTrainer(
        train_worker,
        train_loop_config={"arguments": list(arguments)},
        scaling_config=ScalingConfig(num_workers=num_workers, use_gpu=use_gpu),
    )
    trainer.fit()


def train_worker(config: dict[str, Any]) -> None:
    """What each worker runs."""
    from paceline.cli.train_head import app  # noqa: PLC0415  # the worker's own torch

    app(config["arguments"], standalone_mode=False)
