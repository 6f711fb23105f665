"""A radix tree of committed tokens and the pages of their K/V, so that a prefix is computed once.

After the radix cache of SGLang (Zheng et al. 2024), with a root per tenant salt: requests of different
tenants never meet. Tokens themselves are compared, never hashes of them.
"""

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from paceline.errors import CacheCorruptionError
from paceline.kvcache.page_pool import PageArray, PagePool

TokenArray = npt.NDArray[np.int32]  # [n] token ids

_NO_PAGES: PageArray = np.empty(0, np.int32)
_NO_TOKENS: TokenArray = np.empty(0, np.int32)


@dataclass(slots=True, eq=False)
class PrefixNode:
    """A run of tokens that follows its parent's, and their pages. Runs are whole pages long."""

    tokens: TokenArray
    pages: PageArray
    parent: "PrefixNode | None"  # None: a root, which has no tokens
    salt: str
    children: "dict[bytes, PrefixNode]" = field(default_factory=dict)  # by the tokens of their first page
    locks: int = 0  # sequences whose prefix ends at this node or below


class PrefixMatch(NamedTuple):
    """The longest known prefix of some tokens."""

    node: PrefixNode  # where it ends
    pages: PageArray


class PrefixTree:
    """Holds one reference of every page in it.

    A node is *locked* while a sequence uses it: exactly the pages of locked nodes have other holders. What is
    not locked is evicted, least recently used first and from the end, when somebody needs its pages.
    """

    def __init__(self, pool: PagePool) -> None:
        self._pool = pool
        self._roots: dict[str, PrefixNode] = {}
        self._leaves: OrderedDict[PrefixNode, None] = OrderedDict()  # unlocked ones, least recently used first
        self._num_pages = 0
        self._num_locked = 0

    @property
    def num_pages(self) -> int:
        """Pages in the tree."""
        return self._num_pages

    @property
    def num_evictable(self) -> int:
        """Pages that eviction can free now."""
        return self._num_pages - self._num_locked

    def match(self, token_ids: Sequence[int], salt: str) -> PrefixMatch:
        """The longest prefix of ``token_ids``, in whole pages, whose K/V are here.

        Lock its node before anything is evicted.
        """
        tokens = np.array(token_ids, np.int32)
        match, _ = self._walk(tokens, salt)
        return match

    def publish(self, token_ids: Sequence[int], salt: str, pages: PageArray) -> PrefixMatch:
        """Make the K/V of committed tokens known, whole pages only; ``pages`` hold them, in order.

        Returns the tree's pages of these tokens: where it knew them already they are not the caller's, who
        then has to use them in place of its own. Lock the node before anything is evicted.
        """
        size = self._pool.page_size
        count = min(len(token_ids) // size, len(pages))
        tokens = np.array(token_ids[: count * size], np.int32)
        match, known = self._walk(tokens, salt)
        if known == count:
            return match
        added = pages[known:count].copy()
        self._pool.retain(added)
        leaf = PrefixNode(tokens[known * size :], added, match.node, salt)
        match.node.children[self._key(leaf.tokens)] = leaf
        if match.node.parent is None:
            self._roots[salt] = match.node
        self._leaves.pop(match.node, None)
        self._leaves[leaf] = None
        self._num_pages += len(added)
        return PrefixMatch(leaf, np.concatenate((match.pages, added)))

    def lock(self, node: PrefixNode) -> None:
        """Keep the prefix that ends at ``node`` until it is unlocked as often."""
        for above in _to_root(node):
            above.locks += 1
            if above.locks == 1:
                self._num_locked += len(above.pages)
                self._leaves.pop(above, None)

    def unlock(self, node: PrefixNode) -> None:
        """Take back a lock; the prefix is then the most recently used one."""
        for above in _to_root(node):
            if not above.locks:
                raise CacheCorruptionError("a prefix was unlocked more often than locked")
            above.locks -= 1
            if not above.locks:
                self._num_locked -= len(above.pages)
                self._note_leaf(above)

    def evict(self, num_pages: int) -> int:
        """Free up to ``num_pages`` pages that no sequence uses; returns how many there were."""
        freed = 0
        while freed < num_pages and self._leaves:
            leaf = next(iter(self._leaves))
            freed += self._cut(leaf, num_pages - freed)
        return freed

    def clear(self) -> None:
        """Forget everything that is not locked."""
        self.evict(self._num_pages)

    def all_pages(self) -> PageArray:
        """Every page in the tree."""
        return np.concatenate([_NO_PAGES, *(node.pages for node in self._nodes())])

    def prefixes(self) -> Iterator[tuple[str, list[int], list[int]]]:
        """Salt, tokens from the root down and pages of every leaf; for checks."""
        for node in self._nodes():
            if not node.children and node.parent is not None:
                path = list(_to_root(node))[::-1]
                tokens = np.concatenate([above.tokens for above in path])
                yield node.salt, tokens.tolist(), np.concatenate([above.pages for above in path]).tolist()

    def check_integrity(self) -> None:
        """Raise if counts are wrong, or a node has more locks than all of its users can have placed."""
        nodes = list(self._nodes())
        locked = sum(len(node.pages) for node in nodes if node.locks)
        if (sum(len(node.pages) for node in nodes), locked) != (self._num_pages, self._num_locked):
            raise CacheCorruptionError(
                f"the prefix tree counts {self._num_pages} pages, {self._num_locked} of them locked"
            )
        leaves = {node for node in nodes if not (node.children or node.locks) and node.parent is not None}
        if leaves != set(self._leaves):
            raise CacheCorruptionError("the prefix tree lost a leaf that could be evicted, or would evict another node")
        for node in nodes:
            if sum(child.locks for child in node.children.values()) > node.locks:
                raise CacheCorruptionError("a locked prefix continues one that is not locked as often")
            if len(node.tokens) != len(node.pages) * self._pool.page_size:
                raise CacheCorruptionError("a prefix has other pages than its tokens fill")

    def _walk(self, tokens: TokenArray, salt: str) -> tuple[PrefixMatch, int]:
        """The longest match, split off so that a node ends there, and its number of pages."""
        size = self._pool.page_size
        node = self._roots.get(salt) or PrefixNode(_NO_TOKENS, _NO_PAGES, None, salt)
        found = [_NO_PAGES]
        done = 0  # pages
        while (child := node.children.get(self._key(tokens[done * size :]))) is not None:
            shared = _shared_pages(child.tokens, tokens[done * size :], size)
            node = child if shared == len(child.pages) else self._split(child, shared)
            found.append(node.pages)
            done += shared
            if node is not child:
                break
        return PrefixMatch(node, np.concatenate(found)), done

    def _split(self, node: PrefixNode, num_pages: int) -> PrefixNode:
        """Give the first pages of ``node`` a node of their own, above it; users of ``node`` go on using both."""
        parent, length = node.parent, num_pages * self._pool.page_size
        upper = PrefixNode(node.tokens[:length], node.pages[:num_pages], parent, node.salt, locks=node.locks)
        if parent is not None:
            parent.children[self._key(upper.tokens)] = upper
        node.tokens, node.pages, node.parent = node.tokens[length:], node.pages[num_pages:], upper
        upper.children[self._key(node.tokens)] = node
        return upper

    def _cut(self, leaf: PrefixNode, num_pages: int) -> int:
        """Evict from the end of an unlocked leaf, the whole of it if that is not enough."""
        keep = max(0, len(leaf.pages) - num_pages)
        surplus = leaf.pages[keep:]
        self._pool.release(surplus)
        self._num_pages -= len(surplus)
        if keep:
            leaf.tokens, leaf.pages = leaf.tokens[: keep * self._pool.page_size].copy(), leaf.pages[:keep].copy()
            return len(surplus)
        del self._leaves[leaf]
        parent = leaf.parent
        if parent is not None:
            del parent.children[self._key(leaf.tokens)]
            self._note_leaf(parent)
            # Its last child was the least recently used leaf of all, and each use of the parent left a child.
            if parent in self._leaves:
                self._leaves.move_to_end(parent, last=False)
        return len(surplus)

    def _note_leaf(self, node: PrefixNode) -> None:
        """Line up a node that may be evicted now; an empty root is forgotten."""
        if node.children or node.locks:
            return
        if node.parent is not None:
            self._leaves[node] = None
            self._leaves.move_to_end(node)
        elif self._roots.get(node.salt) is node:
            del self._roots[node.salt]

    def _key(self, tokens: TokenArray) -> bytes:
        return tokens[: self._pool.page_size].tobytes()

    def _nodes(self) -> Iterator[PrefixNode]:
        pending = list(self._roots.values())
        while pending:
            node = pending.pop()
            pending.extend(node.children.values())
            yield node


def _to_root(node: PrefixNode) -> Iterator[PrefixNode]:
    above: PrefixNode | None = node
    while above is not None:
        yield above
        above = above.parent


def _shared_pages(ours: TokenArray, theirs: TokenArray, page_size: int) -> int:
    """Whole pages at the start of both that hold the same tokens."""
    length = min(len(ours), len(theirs))
    different = np.flatnonzero(ours[:length] != theirs[:length])
    return int(different[0] if len(different) else length) // page_size
