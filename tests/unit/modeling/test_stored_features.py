import torch

from paceline.core.model_identity import FeatureFacts
from paceline.kvcache.page_pool import PagePool, PageTable
from paceline.modeling.feature_store import FeatureStore
from paceline.modeling.stored_features import StoredFeatures

CPU = torch.device("cpu")


def table_of(pool, num_tokens):
    """A table whose pages do not lie in order."""
    other = PageTable(pool, num_tokens)
    other.extend_to(3)
    table = PageTable(pool, num_tokens)
    table.extend_to(4)
    other.free()
    table.extend_to(num_tokens)
    return table


def test_the_feature_of_a_token_is_read_from_the_slot_before_it():
    """Bit for bit where they are kept in bfloat16, whatever pages hold them."""
    pool = PagePool(16, 4)
    table = table_of(pool, 14)
    last, fused = FeatureFacts("last", 6), FeatureFacts("fused:f", 3)
    stores = {fact: FeatureStore(64, fact.size, dtype=torch.bfloat16, device=CPU) for fact in (last, fused)}
    computed = {fact: torch.randn(14, fact.size).to(torch.bfloat16) for fact in stores}
    for fact, store in stores.items():
        store.write(torch.tensor(table.slots(0, 14)), computed[fact])
    source = StoredFeatures(stores, CPU)

    for fact in stores:
        for start, stop in ((1, 15), (1, 2), (5, 9), (15, 15)):
            block = source.read(fact, table, start, stop)
            wanted = computed[fact][start - 1 : stop - 1]
            assert block.count == stop - start
            assert block.data == wanted.contiguous().view(torch.int16).numpy().tobytes()
    assert source.keeps(last)
    assert not source.keeps(FeatureFacts("last", 3))


def test_wider_numbers_are_rounded_to_bfloat16():
    """What travels has one form, whatever the target computes in."""
    pool = PagePool(4, 4)
    table = PageTable(pool, 4)
    table.extend_to(4)
    fact = FeatureFacts("last", 2)
    store = FeatureStore(16, 2, dtype=torch.float32, device=CPU)
    store.write(torch.tensor(table.slots(0, 1)), torch.tensor([[1.0, 1.001]]))

    assert StoredFeatures({fact: store}, CPU).read(fact, table, 1, 2).data == b"\x80\x3f\x80\x3f"
