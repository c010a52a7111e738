"""A second set of BatchNorm parameters and statistics for the same network.

Generated images have other statistics than real ones (Chen et al. 2021, ARPL with confusing samples): they go
through the shared convolutions with a BatchNorm of their own. No module is replaced: the network is called
with the copies in place of its own parameters (``torch.func.functional_call``).
"""

from __future__ import annotations

from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.modules.batchnorm import _BatchNorm


class Domain(nn.Module):
    """``network`` with BatchNorm parameters and running statistics of its own; all other weights are shared.

    To be assigned to a method: the copies are then trained and saved with it, and are not in the model file.
    """

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self._network = (network,)  # no submodule: its weights belong to whoever has it
        self._copies: dict[str, str] = {}  # name in the network -> name here
        for path, module in network.named_modules():
            if not isinstance(module, _BatchNorm):
                continue
            for name, parameter in module.named_parameters(recurse=False):
                self.register_parameter(self._name(path, name), nn.Parameter(parameter.detach().clone()))
            for name, buffer in module.named_buffers(recurse=False):
                self.register_buffer(self._name(path, name), buffer.clone())

    def forward(self, x: Tensor) -> Tensor:
        """Call the network with the copies; its own BatchNorm is neither used nor changed."""
        copies = {name: getattr(self, own) for name, own in self._copies.items()}
        answer: Tensor = functional_call(self._network[0], copies, (x,))
        return answer

    def running_buffers(self) -> list[Tensor]:
        """Return the copies' running means and variances."""
        return [b for name, b in self.named_buffers() if name.endswith(("running_mean", "running_var"))]

    def _name(self, path: str, name: str) -> str:
        full = f"{path}.{name}" if path else name
        self._copies[full] = full.replace(".", "__")
        return self._copies[full]
