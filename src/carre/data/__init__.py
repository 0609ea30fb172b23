"""Readers of what people have on disk: tables, arrays, image folders, MNIST, CIFAR-10, CelebA, FFHQ."""

from carre.data.arrays import load_arrays
from carre.data.cifar import load_cifar10
from carre.data.dataset import ImageDataset
from carre.data.faces import load_celeba, load_ffhq
from carre.data.files import DamagedFileError
from carre.data.folders import load_image_folder
from carre.data.mnist import load_mnist, read_idx
from carre.data.normalization import Normalization
from carre.data.recognition import load_images
from carre.data.samples import load_samples
from carre.data.tables import Table, load_table
from carre.data.writing import write_table

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
