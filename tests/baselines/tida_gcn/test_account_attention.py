"""A history read with its account's eyes: the spec's numbers, and a slow loop over events and latent users."""

import torch
from torch import Tensor, tensor
from torch.nn.functional import layer_norm, relu
from torch.testing import assert_close

from lightgc2n.baselines.tida_gcn.account_attention import AccountBlock, AccountReader, LatentUserPooling
from tests.baselines.test_da_gcn import check_drawn_evenly, phi

WIDTH, USERS, LONGEST = 3, 2, 6
WHOLE = WIDTH * USERS


def reader_of(blocks: int = 2, heads: int = 2) -> AccountReader:
    torch.manual_seed(0)
    reader = AccountReader(WIDTH, USERS, LONGEST, blocks, heads, smoothing=0.5, drop=0.0)
    for parameter in reader.parameters():  # gains and offsets too, which start at one and zero
        torch.nn.init.normal_(parameter, std=0.5)
    return reader.eval()


def test_the_first_weights() -> None:
    torch.manual_seed(0)
    reader = AccountReader(16, 4, 50, 1, 1, smoothing=0.5, drop=0.0)
    check_drawn_evenly(reader.positions)
    check_drawn_evenly(reader.pooling.weight)
    assert reader.pooling.bias.all()  # drawn as a table of one row
    assert (reader.pooling.direction == 1).all()
    for part in reader.modules():
        if isinstance(part, torch.nn.Linear):
            check_drawn_evenly(part.weight)
        if isinstance(part, torch.nn.Linear | torch.nn.LayerNorm):
            assert not part.bias.any()
        if isinstance(part, torch.nn.LayerNorm):
            assert (part.weight == 1).all()


def normed(vector: Tensor, part: torch.nn.LayerNorm) -> Tensor:
    return layer_norm(vector, vector.shape[-1:], part.weight, part.bias, 1e-8)


def test_the_pooling_gives_the_numbers_of_the_spec() -> None:
    pooling = LatentUserPooling(3, smoothing=0.5)
    with torch.no_grad():
        pooling.weight.copy_(phi(3, 3, shift=2))
        pooling.bias.copy_(phi(1, 3, shift=3))
    users, last = phi(1, 2, 3, shift=0), phi(1, 3, shift=1)
    shares = pooling.log_shares(users, last).exp().detach()
    assert_close(shares[0, :, 0], tensor([0.054618, 1.428813]), rtol=0, atol=2e-6)
    pooled = tensor([0.052685, -0.410034, -0.679907])
    assert_close((shares * users).sum(dim=1)[0], pooled, rtol=0, atol=2e-6)
    assert_close(pooling(users, last).detach()[0], layer_norm(pooled, (3,), eps=1e-8), rtol=0, atol=1e-5)


def slow_block(block: AccountBlock, account: Tensor, events: Tensor) -> Tensor:
    """Event by event, head by head."""
    asking = normed(account, block.asking_norm)
    query, key, value = relu(block.query(asking)), relu(block.key(events)), relu(block.value(events))
    size, found = len(query) // block.heads, []
    for step in range(len(events)):
        heard = torch.zeros_like(account)
        for head in range(block.heads):
            part = slice(head * size, (head + 1) * size)
            match = tensor([float(query[part] @ key[s, part]) / size**0.5 for s in range(step + 1)])
            heard[part] = match.softmax(dim=0) @ value[: step + 1, part]
        mixed = normed(asking + heard, block.mixed_norm)
        found.append(mixed + block.outer(relu(block.inner(mixed))))
    return torch.stack(found)


def slow_reader(reader: AccountReader, items: Tensor, account: Tensor) -> Tensor:
    """One history without any padding."""
    events = items + reader.positions[: len(items)]
    for block in reader.blocks:
        events = slow_block(block, account, events)  # type: ignore[arg-type]
    read = normed(events, reader.read_norm).view(-1, USERS, WIDTH)
    newest = read[-1].mean(dim=0)
    pooling, fits, sums = reader.pooling, [], []
    for user in range(USERS):
        sums.append(read[:, user].sum(dim=0))
        fit = torch.tanh(normed(sums[-1] * newest, pooling.fit_norm) @ pooling.weight + pooling.bias[0])
        fits.append((fit @ pooling.direction)[0].exp())
    total = sum(fits) ** 0.5
    pooled = normed(sum(fit / total * vector for fit, vector in zip(fits, sums, strict=True)), pooling.pooled_norm)
    listed = sum(normed(item, reader.item_norm).view(USERS, WIDTH).mean(dim=0) for item in items)
    asking = normed(account, reader.account_norm).view(USERS, WIDTH).mean(dim=0)
    return torch.cat([0.9 * listed + 0.1 * pooled, len(items) * asking])


@torch.no_grad()
def test_the_reader_is_that_of_a_slow_loop_whatever_the_padding() -> None:
    reader = reader_of()
    items, account = torch.randn(3, 5, WHOLE), torch.randn(3, WHOLE)
    lengths = tensor([5, 1, 3])
    found = reader(items, account, torch.arange(5) < lengths[:, None])
    for row, length in enumerate(lengths.tolist()):
        assert_close(found[row], slow_reader(reader, items[row, :length], account[row]), rtol=1e-4, atol=1e-4)


def test_a_share_beyond_all_numbers_leaves_the_pooling_as_it_is() -> None:
    """All latent users fit alike, by e^200."""
    pooling = LatentUserPooling(4, 0.5)
    with torch.no_grad():
        pooling.weight.copy_(10 * torch.eye(4))
        pooling.bias.zero_()
        pooling.direction.fill_(100.0)
        pooling.fit_norm.weight.zero_()
        pooling.fit_norm.bias.fill_(1.0)  # tanh(10) for everyone
    users = torch.randn(2, 3, 4, requires_grad=True)
    found = pooling(users, torch.randn(2, 4))
    assert pooling.log_shares(users, torch.randn(2, 4)).detach().max() > 150  # its square has no place among floats
    assert_close(found, pooling.pooled_norm(users.mean(dim=1)))
    found.sum().backward()
    assert users.grad is not None
    assert users.grad.isfinite().all()


@torch.no_grad()
def test_a_domain_without_events_says_nothing() -> None:
    found = reader_of()(torch.randn(1, 4, WHOLE), torch.randn(1, WHOLE), torch.zeros(1, 4, dtype=torch.bool))
    assert not found.any()


@torch.no_grad()
def test_dropout_hides_whole_events_and_words() -> None:
    """Of a single event either nothing is heard or twice as much; of the words about half are left."""
    torch.manual_seed(0)
    block, account, event = AccountBlock(4, 8, 1, drop=0.5), torch.randn(1, 4), torch.randn(1, 1, 4)
    asking, value = block.asking_norm(account)[:, None], relu(block.value(event))
    ways = [
        mixed + block.outer(relu(block.inner(mixed))) for mixed in map(block.mixed_norm, (asking, asking + 2 * value))
    ]
    found = [block(account, event) for _ in range(20)]
    for way in ways:
        assert any(torch.allclose(one, way, atol=1e-6) for one in found)
    assert all(any(torch.allclose(one, way, atol=1e-6) for way in ways) for one in found)
    reader = AccountReader(200, 2, 3, 1, 1, smoothing=0.5, drop=0.5)
    words = reader(torch.randn(1, 3, 400), torch.randn(1, 400), torch.ones(1, 3, dtype=torch.bool))
    assert 0.4 < float((words == 0).float().mean()) < 0.6


def test_an_empty_history_beside_others_leaves_gradients_finite() -> None:
    reader = reader_of()
    items = torch.zeros(2, 3, WHOLE, requires_grad=True)
    known = tensor([[False] * 3, [True, True, False]])
    reader(items, torch.randn(2, WHOLE), known).sum().backward()
    assert all(torch.isfinite(p.grad).all() for p in reader.parameters() if p.grad is not None)
