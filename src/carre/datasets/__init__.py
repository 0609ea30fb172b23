"""Readers of the image formats people have on disk: arrays, folders, MNIST, CIFAR-10, CelebA, FFHQ."""

from carre.datasets.arrays import load_arrays
from carre.datasets.cifar import load_cifar10
from carre.datasets.dataset import ImageDataset
from carre.datasets.faces import load_celeba, load_ffhq
from carre.datasets.files import DamagedFileError
from carre.datasets.folders import load_image_folder
from carre.datasets.mnist import load_mnist, read_idx
from carre.datasets.normalization import Normalization
from carre.datasets.recognition import load_images

__all__ = [
    "DamagedFileError",
    "ImageDataset",
    "Normalization",
    "load_arrays",
    "load_celeba",
    "load_cifar10",
    "load_ffhq",
    "load_image_folder",
    "load_images",
    "load_mnist",
    "read_idx",
]
