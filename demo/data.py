"""Scikit-learn's handwritten digits: 1797 images of 8 x 8, shipped inside the package, split once, batched alike."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import Tensor
from torch.utils.data import DataLoader, TensorDataset

TEST_SHARE = 0.2
BATCH_SIZE = 64


class Digits(NamedTuple):
    """Images as float32 in [0, 1], shaped (N, 8, 8); labels as int64, shaped (N,)."""

    train_images: Tensor
    train_labels: Tensor
    test_images: Tensor
    test_labels: Tensor

    def epoch(self, number: int) -> Iterator[tuple[Tensor, Tensor]]:
        """The shuffled batches of one epoch: the same ones whoever asks. The last, smaller batch is dropped."""
        loader = DataLoader(
            TensorDataset(self.train_images, self.train_labels),
            batch_size=BATCH_SIZE,
            shuffle=True,
            drop_last=True,
            generator=torch.Generator().manual_seed(number),
        )
        yield from ((images, labels) for images, labels in loader)

    @property
    def steps_per_epoch(self) -> int:
        """Batches in one epoch."""
        return len(self.train_images) // BATCH_SIZE


def load() -> Digits:
    """The digits, one fifth of them held out for the test, each class in proportion."""
    bunch = load_digits()
    images = torch.tensor(bunch.images, dtype=torch.float32) / 16
    labels = torch.tensor(bunch.target, dtype=torch.int64)
    train, test = train_test_split(range(len(labels)), test_size=TEST_SHARE, random_state=0, stratify=labels.numpy())
    return Digits(images[train], labels[train], images[test], labels[test])
