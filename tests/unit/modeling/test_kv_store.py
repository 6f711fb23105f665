import torch

from paceline.modeling.kv_store import KVStore


def store():
    return KVStore(2, 8, num_kv_heads=2, head_dim=4, dtype=torch.float32, device=torch.device("cpu"))


def test_what_is_written_is_read_in_any_order():
    """Slots are independent addresses; layers do not see each other."""
    kv = store()
    keys, values = torch.randn(3, 2, 4), torch.randn(3, 2, 4)
    kv.write(0, torch.tensor([5, 0, 7]), keys, values)
    kv.write(1, torch.tensor([5, 0, 7]), -keys, -values)

    read_keys, read_values = kv.read(0, torch.tensor([[7, 5], [0, 0]]))

    assert read_keys.shape == (2, 2, 2, 4)  # [sequences, heads, keys, head_dim]
    assert torch.equal(read_keys[0, :, 0], keys[2])
    assert torch.equal(read_values[0, :, 1], values[0])
    assert torch.equal(read_keys[1, :, 1], keys[1])


def test_the_padding_slot_is_zero():
    """Reading beyond a sequence's end finds zeros, never another sequence's K/V or NaN."""
    kv = store()

    keys, values = kv.read(1, torch.tensor([[kv.padding_slot]]))

    assert not keys.any()
    assert not values.any()


def test_poisoned_slots_hold_nothing_to_read():
    """NaN shows wherever it is read; other slots and the padding slot are as they were."""
    kv = store()
    kv.write(0, torch.tensor([1, 2]), torch.ones(2, 2, 4), torch.ones(2, 2, 4))

    kv.poison([2, 5])

    keys, values = kv.read(0, torch.tensor([[1, 2, kv.padding_slot]]))
    assert torch.isnan(keys[0, :, 1]).all()
    assert torch.isnan(values[0, :, 1]).all()
    assert (keys[0, :, 0] == 1).all()
    assert not keys[0, :, 2].any()


def test_moves_read_before_they_write():
    """A chain of moves shifts tokens by one, in every layer, and is counted."""
    kv = store()
    tokens = torch.arange(3 * 2 * 4, dtype=torch.float32).view(3, 2, 4)
    for layer in range(2):
        kv.write(layer, torch.tensor([0, 1, 2]), tokens + layer, -tokens)

    kv.move([(1, 0), (2, 1)])

    assert kv.num_moved == 2
    for layer in range(2):
        keys, values = kv.read(layer, torch.tensor([[0, 1]]))
        assert torch.equal(keys[0].transpose(0, 1), tokens[1:] + layer)
        assert torch.equal(values[0].transpose(0, 1), -tokens[1:])
