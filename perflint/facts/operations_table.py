"""The table of operations, one row each; `operations` says what each word means and looks them up. It is data: to teach the
analysis an operation, add its row. The test of the table runs each row on torch and holds it to what it says, also to what
it does not say: a row without `random` draws no random numbers, one without `waits` waits for nothing.

The words of a row, beside its name; what is not said is the first of each group:
- what it returns: (a tensor) several pair pair-along-dim int ints float bool number list array text none object
- whose memory that is: (new) view alias itself
- its type: (same) widest sums any-type to-float to-bool to-int64 ...
- its dimensions: (any) elementwise reduces scalar loss flattens
- waits:ROAD, or waits:ROAD*TIMES@WHOSE!UNLESS?ONLY: number format truth copy upload transfer shape device overflow
- graphless, random, writes, gradients, factory, not-real, ambiguous
"""

from typing import Final

TENSORS: Final = """
__array__                         m     array view waits:copy
__len__                           m     int
abs                               tm    elementwise
absolute                          tm    elementwise
acos                              tm    to-float elementwise
acosh                             tm    to-float elementwise
adaptive_avg_pool1d               tF
adaptive_avg_pool2d               F
adaptive_avg_pool3d               F
add                               tm    widest elementwise
addcdiv                           tm    widest elementwise
addcmul                           tm    widest elementwise
addmm                             tm    widest
addr                              tm    widest
adjoint                           tm    view
affine_grid                       F
all                               tm    to-bool reduces ambiguous
allclose                          tm    bool waits:truth
alpha_dropout                     tF    alias elementwise random
amax                              tm    reduces
amin                              tm    reduces
aminmax                           tm    several
any                               tm    to-bool reduces ambiguous
arange                            t     factory waits:number@each
arccos                            tm    to-float elementwise
arccosh                           tm    to-float elementwise
arcsin                            tm    to-float elementwise
arcsinh                           tm    to-float elementwise
arctan                            tm    to-float elementwise
arctan2                           tm    widest elementwise
arctanh                           tm    to-float elementwise
argmax                            tm    to-int64 reduces
argmin                            tm    to-int64 reduces
argsort                           tm    to-int64 elementwise
argwhere                          tm    to-int64 waits:shape
as_strided                        tm    view
as_tensor                         t     alias waits:upload
asarray                           t     alias waits:upload
asin                              tm    to-float elementwise
asinh                             tm    to-float elementwise
atan                              tm    to-float elementwise
atan2                             tm    widest elementwise
atanh                             tm    to-float elementwise
atleast_1d                        t     alias
atleast_2d                        t     alias
atleast_3d                        t     alias
avg_pool1d                        tF
avg_pool2d                        F
avg_pool3d                        F
backward                          m     none gradients
baddbmm                           tm    widest
bernoulli                         tm    elementwise random
bernoulli_                        m     itself writes random
bfloat16                          m     alias to-bfloat16 elementwise
bilinear                          tF
binary_cross_entropy              F     loss to-float
binary_cross_entropy_with_logits  F     loss to-float
bincount                          tm    graphless waits:shape
bitwise_and                       tm    widest elementwise
bitwise_not                       tm    elementwise
bitwise_or                        tm    widest elementwise
bitwise_xor                       tm    widest elementwise
block_diag                        t     widest
bmm                               tm
bool                              m     alias to-bool elementwise
broadcast_tensors                 t     several alias
broadcast_to                      tm    view
bucketize                         t     to-int64
byte                              m     alias to-uint8 elementwise
cartesian_prod                    t     alias
cat                               t     widest
cdist                             t
cdouble                           m     not-real alias
ceil                              tm    elementwise
celu                              tF    elementwise
cfloat                            m     not-real alias
chain_matmul                      t     alias
chalf                             m     not-real alias
chunk                             tm    several view
clamp                             tm    widest elementwise
clamp_max                         tm    widest elementwise
clamp_min                         tm    widest elementwise
clip                              tm    widest elementwise
clone                             tm    elementwise
column_stack                      t     widest
complex                           t     not-real
concat                            t     widest
conj                              tm    alias elementwise
conj_physical                     tm    alias elementwise
contiguous                        m     alias elementwise
conv1d                            tF
conv2d                            tF
conv3d                            tF
conv_transpose1d                  tF
conv_transpose2d                  tF
copy_                             m     itself writes waits:transfer@arguments
copysign                          tm    widest elementwise
corrcoef                          tm    to-float waits:number
cos                               tm    to-float elementwise
cosh                              tm    to-float elementwise
cosine_embedding_loss             F     loss to-float
cosine_similarity                 tF
count_nonzero                     tm    to-int64 reduces
cov                               tm    to-float waits:number
cpu                               m     alias elementwise waits:copy
cross                             tl
cross_entropy                     F     loss to-float
ctc_loss                          F     loss to-float
cuda                              m     alias elementwise waits:upload
cummax                            tm    pair
cummin                            tm    pair
cumprod                           tm    sums elementwise
cumsum                            tm    sums elementwise
data                              a     view graphless
data_ptr                          m     int alias
deg2rad                           tm    to-float elementwise
dequantize                        tm    alias to-float32 elementwise
det                               tlm   to-float
detach                            tm    view graphless elementwise
diag                              tm    any-type
diag_embed                        tm
diagflat                          tm
diagonal                          tml   view
diff                              tm
digamma                           tsm   to-float elementwise
dim                               m     int
dist                              tm    to-float scalar
div                               tm    widest elementwise
divide                            tm    widest elementwise
dot                               tm    scalar
double                            m     alias to-float64 elementwise
dropout                           tF    alias elementwise random
dropout1d                         F     alias random
dropout2d                         F     alias random
dropout3d                         F     alias random
dsplit                            tm    several view
dstack                            t     widest
eig                               l     not-real
eigh                              l     several waits:number
eigvals                           l     not-real
eigvalsh                          l     waits:number
einsum                            t     alias
element_size                      m     int
elu                               F     elementwise
empty                             t     factory waits:number@each
empty_like                        t     elementwise graphless
entr                              s     to-float elementwise
eq                                tm    to-bool elementwise
equal                             tm    bool waits:truth
erf                               tsm   to-float elementwise
erfc                              tsm   to-float elementwise
erfinv                            tsm   to-float elementwise
exp                               tm    to-float elementwise
exp2                              tsm   to-float elementwise
expand                            m     view
expand_as                         m     view
expit                             s     to-float elementwise
expm1                             tsm   to-float elementwise
eye                               t     factory waits:number@each
feature_alpha_dropout             tF    alias elementwise random
feature_dropout                   t     alias elementwise random
fill                              t     elementwise
fill_                             tm    itself writes
fix                               tm    elementwise
flatten                           tm    alias flattens
flip                              tm
fliplr                            tm
flipud                            tm
float                             m     alias to-float32 elementwise
float_power                       tm    to-float64 elementwise
floor                             tm    elementwise
floor_divide                      tm    widest elementwise
fmax                              tm    widest elementwise
fmin                              tm    widest elementwise
fmod                              tm    widest elementwise
fold                              F
frac                              tm    elementwise
from_dlpack                       t     view
from_numpy                        t     view
frombuffer                        t     view
full                              t     factory waits:number@each
full_like                         t     elementwise graphless
gather                            tm
gaussian_nll_loss                 F     loss to-float waits:number
ge                                tm    to-bool elementwise
gelu                              F     elementwise
ger                               tm    widest
get_device                        tm    int
glu                               F
grad                              a     alias graphless
greater                           tm    to-bool elementwise
greater_equal                     tm    to-bool elementwise
grid_sample                       F
group_norm                        tF
gt                                tm    to-bool elementwise
gumbel_softmax                    F     random to-float
H                                 a     view
half                              m     alias to-float16 elementwise
hardshrink                        tFm   elementwise
hardsigmoid                       F     elementwise
hardswish                         F     elementwise
hardtanh                          F     elementwise
heaviside                         tm    widest elementwise
hinge_embedding_loss              F     loss to-float
histc                             tm    flattens graphless
hsplit                            tm    several view
hstack                            t     widest
huber_loss                        F     loss to-float
hypot                             tm    widest elementwise
i0                                tsm   to-float elementwise
imag                              ta    view
index_add                         tm
index_copy                        tm
index_fill                        tm
index_put                         tm
index_select                      tm
inner                             tm
int                               m     alias to-int32 elementwise
interpolate                       F
inv                               l     waits:number
inverse                           tm    waits:number
is_complex                        tm    bool
is_conj                           tm    bool
is_contiguous                     m     bool
is_floating_point                 tm    bool
is_inference                      tm    bool
is_neg                            tm    bool
is_nonzero                        tm    bool waits:truth
is_pinned                         m     bool
is_same_size                      tm    bool
is_signed                         tm    bool
is_tensor                         t     bool
isclose                           tm    to-bool elementwise
isfinite                          tm    to-bool elementwise
isin                              t     to-bool
isinf                             tm    to-bool elementwise
isnan                             tm    to-bool elementwise
isneginf                          tm    to-bool elementwise
isposinf                          tm    to-bool elementwise
isreal                            tm    to-bool elementwise
item                              m     number waits:number
kl_div                            F     loss to-float
kron                              tm    widest
kthvalue                          tm    pair
l1_loss                           F     loss to-float
layer_norm                        tF
ldexp                             tm    widest elementwise
le                                tm    to-bool elementwise
leaky_relu                        F     elementwise
lerp                              tm    elementwise
less                              tm    to-bool elementwise
less_equal                        tm    to-bool elementwise
lgamma                            tm    to-float elementwise
linear                            F
linspace                          t     factory waits:number@each
log                               tm    to-float elementwise
log10                             tm    to-float elementwise
log1p                             tsm   to-float elementwise
log2                              tm    to-float elementwise
log_softmax                       tFms  to-float elementwise
logaddexp                         tm    widest elementwise
logdet                            tm    to-float
logical_and                       tm    to-bool elementwise
logical_not                       tm    to-bool elementwise
logical_or                        tm    to-bool elementwise
logical_xor                       tm    to-bool elementwise
logit                             tms   to-float elementwise
logsigmoid                        F     elementwise
logspace                          t     factory waits:number@each
logsumexp                         tms   to-float
long                              m     alias to-int64 elementwise
lt                                tm    to-bool elementwise
margin_ranking_loss               F     loss to-float
masked_fill                       tm
masked_scatter                    tm
masked_select                     tm    flattens waits:shape
matmul                            tml
matrix_exp                        tlm
matrix_norm                       l     to-float
matrix_power                      tlm
max                               tm    reduces pair-along-dim ambiguous
max_pool1d                        tF
max_pool2d                        F
max_pool3d                        tF
maximum                           tm    widest elementwise
mean                              tm    to-float reduces
median                            tm    reduces pair-along-dim
meshgrid                          t     several alias
mH                                a     view
min                               tm    reduces pair-along-dim ambiguous
minimum                           tm    widest elementwise
mish                              F     elementwise
mm                                tm
mode                              tm    pair
moveaxis                          tm    view
movedim                           tm    view
mse_loss                          F     loss to-float
msort                             tm    elementwise
mT                                a     view
mul                               tm    widest elementwise
multi_margin_loss                 F     loss to-float
multilabel_margin_loss            F     loss to-float
multilabel_soft_margin_loss       F     loss to-float
multinomial                       tm    to-int64 random
multiply                          tm    widest elementwise
mv                                tm
nan_to_num                        tm    elementwise
nanmean                           tm    to-float reduces
nanmedian                         tm    reduces pair-along-dim
nansum                            tm    sums reduces
narrow                            tm    view waits:number@arguments
ndimension                        m     int
ndtr                              s     to-float elementwise
ndtri                             s     to-float elementwise
ne                                tm    to-bool elementwise
neg                               tm    elementwise
negative                          tm    elementwise
nelement                          m     int
new                               m     alias graphless ambiguous
new_empty                         m     graphless waits:number@arguments
new_full                          m     graphless waits:number@arguments
new_ones                          m     graphless waits:number@arguments
new_tensor                        m     graphless waits:upload
new_zeros                         m     graphless waits:number@arguments
nextafter                         tm    widest elementwise
nll_loss                          F     loss to-float
nonzero                           tm    to-int64 waits:shape
norm                              tml   to-float reduces
normal                            t     random
normal_                           m     itself writes random
normalize                         F     elementwise
not_equal                         tm    to-bool elementwise
numel                             tm    int
numpy                             m     array view waits:copy
one_hot                           F     to-int64 waits:number*2!others
ones                              t     factory waits:number@each
ones_like                         t     elementwise graphless
outer                             tm    widest
pad                               F
pairwise_distance                 tF    to-float
permute                           tm    view
pin_memory                        m     alias
pixel_shuffle                     tF
pixel_unshuffle                   tF
poisson_nll_loss                  F     loss to-float
polar                             t     not-real
positive                          tm    alias elementwise
pow                               tm    widest elementwise
prelu                             tFm
prod                              tm    sums reduces
qr                                l     several
quantile                          tm
quantize_per_channel              t     not-real
quantize_per_tensor               t     not-real
quantize_per_tensor_dynamic       t     not-real
rad2deg                           tm    to-float elementwise
rand                              t     factory waits:number@each random
rand_like                         t     elementwise graphless random
randint                           t     factory waits:number@each random
randint_like                      t     elementwise graphless random
randn                             t     factory waits:number@each random
randn_like                        t     elementwise graphless random
random_                           m     itself writes random
randperm                          t     factory waits:number@each random
ravel                             tm    alias flattens
real                              ta    view
reciprocal                        tm    to-float elementwise
register_hook                     m     object gradients
relu                              tmF   elementwise
relu6                             F     elementwise
remainder                         tm    widest elementwise
repeat                            m     waits:number@arguments
repeat_interleave                 tm    waits:shape@arguments!output_size
requires_grad_                    m     itself elementwise
reshape                           tm    alias waits:number@arguments
reshape_as                        m     alias
resolve_conj                      tm    alias elementwise
resolve_neg                       tm    alias elementwise
retain_grad                       m     none gradients
rms_norm                          tF
roll                              tm
rot90                             tm
round                             tms   elementwise
row_stack                         t     widest
rrelu                             F     elementwise
rsqrt                             tm    to-float elementwise
scalar_tensor                     t     graphless waits:upload
scaled_dot_product_attention      F
scatter                           tm
scatter_add                       tm
scatter_reduce                    tm
searchsorted                      t     to-int64
select                            tm    view
selu                              tF    elementwise
sgn                               tm    elementwise
share_memory_                     m     itself
short                             m     alias to-int16 elementwise
sigmoid                           tFm   to-float elementwise
sign                              tm    elementwise
signbit                           tm    to-bool elementwise
silu                              F     elementwise
sin                               tm    to-float elementwise
sinc                              tsm   to-float elementwise
sinh                              tm    to-float elementwise
size                              m     ints
slogdet                           l     several
smooth_l1_loss                    F     loss to-float
soft_margin_loss                  F     loss to-float
softmax                           tFms  to-float elementwise
softmin                           F     elementwise
softplus                          F     elementwise
softshrink                        F     elementwise
softsign                          F     to-float elementwise
solve                             l     waits:number
sort                              tm    pair
sparse_coo_tensor                 t     not-real
split                             tm    several view waits:number@arguments ambiguous
split_with_sizes                  tm    several view
sqrt                              tm    to-float elementwise
square                            tm    sums elementwise
squeeze                           tm    view
stack                             t     widest
std                               tm    to-float reduces
std_mean                          t     several
stft                              tm    not-real
storage_offset                    m     int
stride                            m     ints
sub                               tm    widest elementwise
subtract                          tm    widest elementwise
sum                               tm    sums reduces
svd                               l     several waits:number
svdvals                           l     waits:number
swapaxes                          tm    view
swapdims                          tm    view
T                                 a     view
t                                 tm    view
take                              tm
take_along_dim                    tm
tan                               tm    to-float elementwise
tanh                              tFm   to-float elementwise
tanhshrink                        F     to-float elementwise
tensor                            t     graphless waits:upload
tensor_split                      tm    several view
tensordot                         t
threshold                         tF    elementwise
tile                              tm
to                                m     alias any-type elementwise waits:transfer
to_dense                          m     alias
to_dlpack                         t     object alias
to_mkldnn                         m     not-real alias
to_sparse                         m     not-real alias
tolist                            m     list waits:copy
topk                              tm    pair
trace                             tm    sums scalar
transpose                         tm    view
tril                              tm
triplet_margin_loss               F     loss to-float
triu                              tm
true_divide                       tm    widest elementwise
trunc                             tm    elementwise
type                              m     alias any-type elementwise waits:transfer ambiguous
type_as                           m     alias any-type elementwise waits:transfer
unbind                            tm    several view
unflatten                         tm    view
unfold                            F
unfold                            m     view
uniform_                          m     itself writes random
unique                            tm    waits:shape
unique_consecutive                tm    waits:shape
unsafe_chunk                      tm    several view
unsafe_split                      tm    several view
unsqueeze                         tm    view
var                               tm    to-float reduces
var_mean                          t     several
vdot                              tm    scalar
vecdot                            l
vector_norm                       l     to-float reduces
view                              m     view any-type waits:number@arguments
view_as                           m     view
view_as_complex                   t     not-real view
view_as_real                      t     view any-type
vsplit                            tm    several view
vstack                            t     widest
where                             m     widest
where                             t     widest waits:shape!others
xlog1py                           s     widest elementwise
xlogy                             tsm   widest elementwise
zero_                             tm    itself writes
zeros                             t     factory waits:number@each
zeros_like                        t     elementwise graphless
"""
"""Operations on tensors. The second column says where torch has them: m method, a attribute, t `torch`,
F `torch.nn.functional`, l `torch.linalg`, s `torch.special`.

Sources: torch 2.13, run; its `native_functions.yaml` for which are views.
"""

ELSEWHERE: Final = """
accelerate.Accelerator.wait_for_everyone    none waits:device@nothing
builtins.bool                               bool waits:number
builtins.complex                            number waits:number
builtins.float                              float waits:number
builtins.format                             text waits:format
builtins.int                                int waits:number
builtins.max                                alias waits:truth@pairs
builtins.min                                alias waits:truth@pairs
builtins.print                              none waits:format@each
builtins.range                              object waits:number@each
builtins.repr                               text waits:format
builtins.sorted                             list alias waits:truth@pairs
builtins.str                                text waits:format
math.*                                      number waits:number@each
numpy.*                                     array alias waits:copy@each
numpy.average                               number waits:copy@each
numpy.log10                                 number waits:copy@each
numpy.mean                                  number waits:copy@each
torch.amp.GradScaler.get_scale              float waits:number@nothing
torch.amp.GradScaler.step                   object writes waits:overflow@nothing
torch.cuda.Event.synchronize                none waits:device@nothing
torch.cuda.Stream.synchronize               none waits:device@nothing
torch.accelerator.synchronize               none waits:device@nothing
torch.cuda.BFloat16Tensor                   waits:upload
torch.cuda.BoolTensor                       waits:upload
torch.cuda.ByteTensor                       waits:upload
torch.cuda.CharTensor                       waits:upload
torch.cuda.DoubleTensor                     waits:upload
torch.cuda.FloatTensor                      waits:upload
torch.cuda.HalfTensor                       waits:upload
torch.cuda.IntTensor                        waits:upload
torch.cuda.LongTensor                       waits:upload
torch.cuda.ShortTensor                      waits:upload
torch.autograd.Variable                     alias
torch.autograd.backward                     none gradients
torch.autograd.grad                         several
torch.nn.Parameter                          alias
torch.nn.utils.rnn.pad_sequence
torch.save                                  none
torch.cuda.synchronize                      none waits:device@nothing
torch.distributed.barrier                   none waits:device@nothing
torch.distributed.monitored_barrier         none waits:device@nothing
torch.Event.synchronize                     none waits:device@nothing
torch.Stream.synchronize                    none waits:device@nothing
torch.mps.synchronize                       none waits:device@nothing
torch.nn.utils.clip_grad_norm_              scalar to-float writes graphless waits:number@nothing?error_if_nonfinite
torch.xpu.synchronize                       none waits:device@nothing
x[mask]                                     waits:shape
x[mask] = tensor                            writes waits:shape
x[mask] = number                            writes
x[host index]                               waits:upload
x[0-d]                                      view waits:number
x[a:b]                                      view waits:number@each
list[0-d]                                   object waits:number
t in list                                   bool waits:truth@elements
if t                                        bool waits:truth
f"{t}"                                      text waits:format
alpha=t                                     waits:number
"""
"""Functions by qualified name (`math.*`: any function of the module), methods as `class.method`, and what is written without
a call.

Sources: counted with a dispatch mode where a CPU shows it; what only a GPU shows is from NVIDIA's catalogue of waits
(`perf-torch-sync-free`) and the CUDA semantics note of torch.
"""
