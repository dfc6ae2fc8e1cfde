"""Understand, cut and prove a network of your own, without any training."""

import torch
from torch import Tensor, nn

import deeppruning as dp


class Gate(nn.Module):
    """A residual block with a squeeze-and-excitation gate."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(channels, channels, 3, padding=1)
        self.second = nn.Conv2d(channels, channels, 3, padding=1)
        self.squeeze = nn.Conv2d(channels, channels // 4, 1)
        self.excite = nn.Conv2d(channels // 4, channels, 1)

    def forward(self, x: Tensor) -> Tensor:
        out = self.second(torch.relu(self.first(x)))
        gate = torch.sigmoid(self.excite(torch.relu(self.squeeze(out.mean((2, 3), keepdim=True)))))
        return torch.relu(x + out * gate)


def main() -> None:
    """Print the graph, cut half of it away, prove the cut."""
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, 32, 3, padding=1),
        Gate(32),
        Gate(32),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(32, 10),
    )
    graph = dp.ChannelGraph(model, torch.zeros(1, 3, 32, 32))
    print(graph)
    genome = torch.rand(graph.num_genes) < 0.5
    thin = graph.prune(genome, verify=True)
    print(f"\n{graph.flops(graph.full_genome()):,} multiply-adds -> {graph.flops(genome):,}")
    print(f"largest relative difference to the masked network: {graph.verify(genome).difference:.1e}")
    print(tuple(thin(torch.zeros(1, 3, 32, 32)).shape))


if __name__ == "__main__":
    main()
