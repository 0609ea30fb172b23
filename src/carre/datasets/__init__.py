"""Readers of what people have on disk: tables, arrays, image folders, MNIST, CIFAR-10, CelebA, FFHQ."""

from carre.datasets.arrays import load_arrays
from carre.datasets.cifar import load_cifar10
from carre.datasets.dataset import ImageDataset
from carre.datasets.faces import load_celeba, load_ffhq
from carre.datasets.files import DamagedFileError
from carre.datasets.folders import load_image_folder
from carre.datasets.mnist import load_mnist, read_idx
from carre.datasets.normalization import Normalization
from carre.datasets.recognition import load_images
from carre.datasets.samples import load_samples
from carre.datasets.tables import Table, load_table
from carre.datasets.writing import write_table

__all__ = [
    "DamagedFileError",
    "ImageDataset",
    "Normalization",
    "Table",
    "load_arrays",
    "load_celeba",
    "load_cifar10",
    "load_ffhq",
    "load_image_folder",
    "load_images",
    "load_mnist",
    "load_samples",
    "load_table",
    "read_idx",
    "write_table",
]
