"""Readers of what people have on disk: tables, arrays, image folders, MNIST, CIFAR-10, CelebA, FFHQ."""

from carre.arguments import check_room
from carre.data._delimited import CellError
from carre.data.arrays import load_arrays
from carre.data.cifar import load_cifar10
from carre.data.columns import ColumnConcern, ColumnWarning, column_concerns
from carre.data.frames import from_anndata, load_anndata
from carre.data.image_dataset import ImageDataset, Normalization
from carre.data.image_folders import load_celeba, load_ffhq, load_image_folder
from carre.data.mnist import load_mnist, read_idx
from carre.data.samples import load_images, load_samples
from carre.data.sources import Block, Source, open_source
from carre.data.table import Table, load_table, write_table
from carre.files import DamagedFileError

__all__ = [
    "Block",
    "CellError",
    "ColumnConcern",
    "ColumnWarning",
    "DamagedFileError",
    "ImageDataset",
    "Normalization",
    "Source",
    "Table",
    "column_concerns",
    "from_anndata",
    "load_anndata",
    "load_arrays",
    "load_celeba",
    "load_cifar10",
    "load_ffhq",
    "load_image_folder",
    "load_images",
    "load_mnist",
    "load_samples",
    "load_table",
    "open_source",
    "read_idx",
    "write_table",
]

check_room(__name__, but=("Block", "ImageDataset", "Normalization", "Source"))
