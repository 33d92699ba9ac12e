"""Small reproductions of what rules got wrong on public training code that they were not developed on."""

from __future__ import annotations

import pytest
from conftest import Project

HEAD = """
import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 8)

    def init_hidden(self):
        return torch.zeros(1, 8)

    def forward(self, x):
        return self.layer(x)

    @torch.no_grad()
    def sample(self, x):
        return self.layer(x)

model = Net().cuda()
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

"""


def found(project: Project, body: str, rule: str) -> list[tuple[int, str | None]]:
    """What a rule finds in `HEAD + body`, as (row of the body, applicability of the fix)."""
    import textwrap

    project.write({"train.py": HEAD + textwrap.dedent(body).lstrip("\n")})
    offset = HEAD.count("\n")
    return [
        (f["location"]["row"] - offset, f["fix"] and f["fix"]["applicability"])
        for f in project.findings("--select", rule)
        if f["location"]["row"] > offset
    ]


def test_item_of_a_value_that_nothing_is_known_about(project: Project) -> None:
    body = """
    def train(dataset, metric):
        total = 0.0
        for x, y in DataLoader(dataset):
            x, y = x.cuda(), y.cuda()
            loss = criterion(model(x), y)
            loss.backward()
            optimizer.step()
            top1, top5 = metric(model(x), y)
            total += top1.item()
            total += np.mean(dataset.weights).item()
        return total
    """
    assert found(project, body, "item-every-step") == [(9, None)]


def test_batch_that_a_hinted_loader_left_on_the_device(project: Project) -> None:
    body = """
    def evaluate(loader):
        labels = []
        with torch.no_grad():
            for batch in loader:
                output = model(batch.text)
                labels.extend(batch.label.cpu().numpy())
        return labels
    """
    assert found(project, body, "item-every-step") == [(6, "assuming")]


def test_array_that_is_written_to_a_file(project: Project) -> None:
    body = """
    def vocode(dataset, write, path):
        with torch.no_grad():
            for x in DataLoader(dataset):
                audio = model(x.cuda()).cpu().numpy()
                write(path, 22050, audio)
    """
    assert found(project, body, "item-every-step") == []


def test_list_that_a_condition_looks_at(project: Project) -> None:
    body = """
    def train(dataset):
        losses = []
        for x, y in DataLoader(dataset):
            loss = criterion(model(x.cuda()), y.cuda())
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
            if losses[-1] > 100:
                break
    """
    assert found(project, body, "item-every-step") == []


def test_loss_on_the_host(project: Project) -> None:
    body = """
    def evaluate(dataset):
        losses = []
        with torch.no_grad():
            for x, y in DataLoader(dataset):
                output = model(x.cuda())
                loss = criterion(output.cpu(), y)
                losses.append(loss)
        return losses
    """
    assert found(project, body, "item-every-step") == [(6, None)]


def test_hidden_state_is_no_forward_pass(project: Project) -> None:
    body = """
    def train(dataset):
        for x, y in DataLoader(dataset):
            hidden = model.init_hidden()
            optimizer.zero_grad()
            loss = criterion(model(x.cuda() + hidden), y.cuda())
            loss.backward()
            optimizer.step()
    """
    assert found(project, body, "zero-grad-late") == []


@pytest.mark.parametrize(
    ("lines", "applicability"),
    [
        (["if torch.cuda.is_available():", "    x = x.cuda()", "y = model(x)"], "safe"),
        (["z = x.cuda()", "y = model(z)", "x[0] = 1"], "unsafe"),
        (["z = x", "x = x.cuda()", "y = model(x)", "z.zero_()"], "unsafe"),
        (["z = x", "z = z.float().cuda()", "y = model(z)"], "safe"),
    ],
)
def test_host_memory_that_is_written_after_the_copy(project: Project, lines: list[str], applicability: str) -> None:
    head = ["def train(dataset):", "    for x in DataLoader(dataset, pin_memory=True):"]
    body = [*head, *(f"        {line}" for line in (*lines, "y.sum().backward()", "optimizer.step()"))]
    assert [a for _, a in found(project, "\n".join(body), "blocking-h2d-in-loop")] == [applicability]


def test_buffer_that_is_filled_again_in_the_next_step(project: Project) -> None:
    body = """
    def train(dataset):
        buffer = torch.empty(4, 8).pin_memory()
        for i in range(100):
            buffer.copy_(dataset[i])
            x = buffer.to("cuda")
            model(x).sum().backward()
            optimizer.step()
    """
    assert found(project, body, "blocking-h2d-in-loop") == [(5, "unsafe")]


def test_batch_that_the_dataset_draws(project: Project) -> None:
    body = """
    def train(dataset):
        for i in range(1000):
            images, labels = dataset.get_batch()
            x = images.to("cuda")
            model(x).sum().backward()
            optimizer.step()
    """
    assert found(project, body, "blocking-h2d-in-loop") == [(4, "assuming")]


def test_method_that_switches_autograd_off_itself(project: Project) -> None:
    body = """
    model(torch.randn(2, 8).cuda()).sum().backward()
    images = model.sample(torch.randn(2, 8).cuda())
    print(images.shape)
    """
    assert found(project, body, "eval-without-no-grad") == []


def test_class_of_a_model_is_no_model(project: Project) -> None:
    body = """
    def test_shapes(model_class):
        net = model_class(8)
        net.eval()
        print(net.layer.weight.shape)
    """
    assert found(project, body, "eval-without-no-grad") == []


def test_evaluation_whose_helper_runs_the_network(project: Project) -> None:
    body = """
    def one_batch(x, y):
        return model(x.cuda()), y.cuda()

    def evaluate(dataset):
        model.eval()
        correct = 0
        for x, y in DataLoader(dataset):
            predicted, y = one_batch(x, y)
            correct += (predicted.argmax(1) == y).sum().item()
        return correct
    """
    assert found(project, body, "eval-without-no-grad") == [(8, "assuming")]  # a dataset that nobody knows may keep a graph


def test_evaluation_in_a_file_without_a_loader(project: Project) -> None:
    files = {
        "detect.py": """
        import torch

        def test_net(net, images):
            for i in range(len(images)):
                scores = net(images[i].cuda()).data
                print(scores.shape)

        def main(net, images):
            net.eval()
            test_net(net, images)
        """
    }
    assert ("eval-without-no-grad", 6) in project.write(files).rules("--select", "eval-without-no-grad")


def test_loop_counter_that_an_evaluation_leaves(project: Project) -> None:
    body = """
    def train(dataset):
        for x, y in DataLoader(dataset):
            loss = criterion(model(x.cuda()), y.cuda())
            loss.backward()
            optimizer.step()
        error = 0.0
        with torch.no_grad():
            for i, (x, y) in enumerate(DataLoader(dataset)):
                error += criterion(model(x.cuda()), y.cuda()).item()
        return error / (i + 1)
    """
    assert [row for row, _ in found(project, body, "no-grad-to-inference-mode")] == [7]


def test_progress_bar_that_is_entered(project: Project) -> None:
    body = """
    from tqdm import tqdm

    def run(dataloader, step, device):
        values = []
        with tqdm(dataloader, desc="train") as iterator:
            for x, y in iterator:
                x, y = x.to(device), y.to(device)
                loss, prediction = step(x, y)
                values.append(loss.cpu().numpy())
    """
    assert [row for row, _ in found(project, body, "blocking-h2d-in-loop")] == [7, 7]
    assert [row for row, _ in found(project, body, "item-every-step")] == [9]
