"""The GradMix step against the computation that the paper's authors use, re-created from its description.

python benchmarks/authors_step.py
python benchmarks/authors_step.py --encoder resnet18 --batch-size 32 --rounds 5

The authors' step: both views go through the network and back once for the maps alone; the maps are moved to
the CPU and enlarged, and the patches resized and pasted, image by image; then two clean and two mixed views
go through the network each way. In units of one view's forward: 18, where the step of gradmix takes 9
(pairing ``cross``) or about 13 (``symmetric``).
"""

from __future__ import annotations

import argparse

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from gradmix.attribution import Capture
from gradmix.bench.rounds import take_turns
from gradmix.bench.step import StepSettings, TrainingStep
from gradmix.cli.bench import add_step_arguments, print_timings, step_settings
from gradmix.losses import nt_xent, nt_xent_clean_negatives, supcon
from gradmix.methods import Views
from gradmix.mixing import derangement
from gradmix.training.seeds import generator_for


class AuthorsStep(TrainingStep):
    """Same network, views, losses and optimiser; another way to the same kind of step."""

    def __init__(self, settings: StepSettings) -> None:
        super().__init__(settings.recipe(), settings.batch())
        self.layers = settings.layers

    def __call__(self) -> None:
        generator = generator_for(0, "step", self.number)
        views = self.views(generator)
        maps1, maps2 = self.maps(views)
        mixed1, share1 = self.mix(views.v1, maps1, generator)
        mixed2, share2 = self.mix(views.v2, maps2, generator)
        self.optimizer.zero_grad()
        z1, z2, m1, m2 = (F.normalize(self.network(v)) for v in (views.v1, views.v2, mixed1, mixed2))
        tau = 0.05
        both = torch.cat([z1, z2])
        loss = supcon(both, views.labels.repeat(2), tau, "all") + nt_xent(z1, z2, tau)
        loss = loss + 0.5 * nt_xent_clean_negatives(z1, m2, z2, tau, 1 - share2)
        loss = loss + 0.5 * nt_xent_clean_negatives(z2, m1, z1, tau, 1 - share1)
        torch.autograd.backward(loss)
        self.optimizer.step()
        self.number += 1

    def maps(self, views: Views) -> tuple[list[np.ndarray], list[np.ndarray]]:
        """A pass of their own, forward and backward through the whole network, for both views."""
        self.network.zero_grad()
        kept: list[list[Tensor]] = []
        z: list[Tensor] = []
        for view in (views.v1, views.v2):
            with Capture(self.network.encoder, self.layers) as capture:
                z.append(F.normalize(self.network(view)))
                kept.append(capture.activations())
        for activation in (a for activations in kept for a in activations):
            activation.retain_grad()
        torch.autograd.backward(nt_xent(z[0], z[1], 0.05))
        first, second = (self.enlarged(activations, views.v1.shape[-1]) for activations in kept)
        return first, second

    def enlarged(self, activations: list[Tensor], size: int) -> list[np.ndarray]:
        """LayerCAM of every layer, scaled to its largest value, then image by image at full size."""
        sums: list[np.ndarray] = []
        layers = []
        for a in activations:
            assert a.grad is not None
            cam = (a.grad.relu() * a).sum(1).relu().detach()
            layers.append((cam / cam.max().clamp_min(1e-12)).cpu())
        for i in range(len(layers[0])):
            large = [
                F.interpolate(cam[i][None, None], (size, size), mode="bilinear")[0, 0].numpy()
                for cam in layers
            ]
            sums.append(np.sum(large, axis=0))
        return sums

    def mix(self, view: Tensor, maps: list[np.ndarray], generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Find the peak, resize the partner and paste it, one image after the other."""
        mixed = view.clone()
        partners = derangement(len(view), generator)
        shares = torch.empty(len(view))
        size = view.shape[-1]
        for i, heat in enumerate(maps):
            side = max(1, round(float(torch.empty(()).uniform_(0.1, 0.5, generator=generator)) * size))
            y, x = np.unravel_index(int(heat.argmax()), heat.shape)
            top, left = (int(np.clip(c - side // 2, 0, size - side)) for c in (y, x))
            patch = F.interpolate(view[partners[i]][None], (side, side), mode="bilinear")[0]
            mixed[i, :, top : top + side, left : left + side] = patch
            shares[i] = side * side / size**2
        return mixed, shares


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_step_arguments(parser, rounds=9)
    args = parser.parse_args()
    settings = step_settings(args)
    steps = {
        "GradMix": TrainingStep(settings.recipe(), settings.batch()),
        "GradMix, symmetric": TrainingStep(settings.recipe(pairing="symmetric"), settings.batch()),
        "the authors' computation": AuthorsStep(settings),
    }
    print_timings("step", "x GradMix", take_turns(steps, "GradMix", args.rounds))


if __name__ == "__main__":
    main()
