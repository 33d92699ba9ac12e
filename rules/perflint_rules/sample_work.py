"""What making one sample of a dataset takes: decoding, or no more than a read of what is ready. No rule by itself."""

import ast
from collections.abc import Iterator
from enum import Enum

from perflint.api import Code, External, LoaderCall, Option, Scope, ancestors, flow_of, words
from perflint_rules.pictures import images, is_quick

OWN_READERS = Option("readers", (), "Names of further functions and methods that read or decode a sample")
_DECODES = words(
    """
    PIL.Image.open cv2.imread cv2.imreadmulti cv2.imdecode cv2.VideoCapture imageio.imread imageio.v2.imread imageio.v3.imread
    imageio.mimread imageio.get_reader skimage.io.imread matplotlib.pyplot.imread matplotlib.image.imread tifffile.imread
    scipy.misc.imread scipy.io.wavfile.read scipy.io.loadmat rasterio.open mmcv.imread mmcv.imfrombytes kornia.io.load_image
    torchvision.io.read_video
    torchvision.datasets.folder.default_loader torchvision.datasets.folder.pil_loader decord.VideoReader av.open
    torchaudio.load librosa.load librosa.core.load soundfile.read pydub.AudioSegment.from_file
    numpy.loadtxt numpy.genfromtxt gzip.open h5py.File pandas.read_csv pandas.read_parquet pandas.read_pickle pandas.read_json
    pandas.read_excel nibabel.load pydicom.dcmread pydicom.read_file SimpleITK.ReadImage nrrd.read pyvista.read trimesh.load
    open3d.io.read_point_cloud open3d.io.read_triangle_mesh plyfile.PlyData.read laspy.read
    """
)
_OPENS = words(
    """
    builtins.open io.open numpy.load torch.load pickle.load json.load safetensors.torch.load_file torchvision.io.read_image
    torchvision.io.decode_image torchvision.io.decode_jpeg
    """
)
"""What gets a sample that is ready: a read of a few hundred kilobytes takes less than workers do for handing it over.

Pictures that torchvision decodes are among them: there is no image of PIL to make a tensor of, and of eight readings of such
findings one was useful.
"""
_COMPUTES = words(
    """
    scipy.ndimage.zoom scipy.ndimage.rotate scipy.ndimage.affine_transform scipy.ndimage.map_coordinates
    scipy.ndimage.gaussian_filter skimage.transform.resize skimage.transform.rotate skimage.transform.rescale cv2.resize
    cv2.warpAffine cv2.remap librosa.stft librosa.feature.melspectrogram librosa.feature.mfcc librosa.resample
    """
)
"""What is done to a sample that is ready, and takes longer than to read it."""
_KNOWN = _DECODES | _OPENS | _COMPUTES
_HANDLES = words(
    """
    cv2.VideoCapture imageio.get_reader rasterio.open decord.VideoReader av.open gzip.open h5py.File builtins.open io.open
    """
)
"""What only opens a file: each sample reads by what is kept."""
_READY = ("torchvision.datasets.", "torchaudio.datasets.")
_DRAWS = words("random randint randrange choice uniform rand")
_TOKENISES = words("tokenizer tokenize encode_plus batch_encode_plus")


class _Gain(Enum):
    """Whether workers pay for what a call does."""

    PAYS = "decodes"
    LITTLE = "reads what is ready, tokenises or draws"
    BESIDE_A_READ = "computes: they pay if the sample is read, too"


def sample_work(code: Code, loader: LoaderCall) -> tuple[str, bool] | None:
    """The call that takes longest for a sample of a loader, as it is written, and whether workers pay for it; None: no work.

    Reading what is ready, tokenising and drawing numbers take little beside a step.
    """
    first: dict[_Gain, str] = {}
    for scope in loader.code_of_each_sample():
        for work, gain in _works(code, loader, scope):
            first.setdefault(gain, work)
    long = first.get(_Gain.PAYS) or images(loader.samples)
    if long is not None:
        return long, True
    return (first[_Gain.LITTLE], _Gain.BESIDE_A_READ in first) if _Gain.LITTLE in first else None


def _works(code: Code, loader: LoaderCall, scope: Scope) -> Iterator[tuple[str, _Gain]]:
    """The calls of a function that read, decode, tokenise, compute, or draw for each part of a sample."""
    for call, is_first in loader.sample_calls(scope):
        name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
        if _is_of_ready_dataset(code, scope, call) or name in code.option(OWN_READERS):
            yield ast.unparse(call.func), _Gain.PAYS
        elif name in _TOKENISES:
            yield ast.unparse(call.func), _Gain.LITTLE
        loop = flow_of(scope).loop(call) if name in _DRAWS else None
        if loop is not None and isinstance(loop.statement, ast.For):
            yield ast.unparse(call.func), _Gain.LITTLE
        value = code.at(scope).value(call.func)
        if value.must(lambda a: isinstance(a, External) and a.qualname in _KNOWN):
            names = {a.qualname for a in value.alternatives if isinstance(a, External)}
            if is_first and names.isdisjoint(_HANDLES):
                continue
            computes = _Gain.BESIDE_A_READ if names <= _COMPUTES else _Gain.LITTLE
            yield ast.unparse(call.func), _Gain.PAYS if names <= _DECODES else computes
    for node in flow_of(scope).order:  # `self.images[i]`, of a dataset that this one takes its samples from
        match node:
            case ast.Subscript(value=ast.Attribute() as held, ctx=ast.Load()):
                pictures = code.at(scope).value(held)
                if images(pictures) is not None:
                    yield ast.unparse(node), _Gain.LITTLE if is_quick(pictures) else _Gain.PAYS


def _is_of_ready_dataset(code: Code, scope: Scope, call: ast.Call) -> bool:
    """`super().__getitem__(index)` of a dataset of torchvision or torchaudio, which reads and decodes a file."""
    match call.func:
        case ast.Attribute(value=ast.Call(func=ast.Name(id="super")), attr="__getitem__") if scope.owner is not None:
            above = ancestors(code.facts.inference, scope.owner)
            return any(isinstance(base, str) and base.startswith(_READY) for base in above)
    return False
