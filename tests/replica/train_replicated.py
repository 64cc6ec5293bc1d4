"""A training loop for one device, as somebody writes it who has never heard of replicas."""

import hashlib

import samara.replica
import torch
from torch import nn
from torch.nn import functional


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.input, self.dropout, self.output = nn.Linear(12, 32), nn.Dropout(0.1), nn.Linear(32, 4)
        self.scale = nn.Parameter(torch.ones(32))

    def forward(self, x):
        return self.output(self.dropout(functional.relu(self.input(x)) * self.scale))


torch.manual_seed(7)
data = torch.Generator().manual_seed(8)
centres = 2 * torch.randn(4, 12, generator=data)
labels = torch.randint(4, (480,), generator=data)
points = centres[labels] + torch.randn(480, 12, generator=data)

model = Net()
optimizer = samara.replica.wrap(torch.optim.AdamW(model.parameters(), lr=0.01))
schedule = torch.optim.lr_scheduler.StepLR(optimizer, step_size=20, gamma=0.5)


def step(x, y):
    optimizer.zero_grad()
    loss = functional.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
    return loss.detach()


for i in range(40):
    rows = slice(i % 10 * 48, i % 10 * 48 + 48)
    loss = samara.replica.run(step, points[rows], labels[rows], reduce="mean")
    schedule.step()

model.eval()
accuracy = (model(points).argmax(1) == labels).float().mean()
weights = b"".join(p.detach().numpy().tobytes() for p in model.parameters())
print(f"{hashlib.sha256(weights).hexdigest()} {loss.item().hex()} {accuracy.item()}")
