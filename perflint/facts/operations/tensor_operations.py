"""The table of operations: what tensors have as methods and attributes, and often `torch` as functions, too.

It is data: to teach the analysis an operation, add its row, in words that `operations` explains. The test of the table runs
each row on torch and holds it to what it says, also to what it does not say: a row without `random` draws no random numbers,
one without `waits` waits for nothing.
"""

from typing import Final

TENSOR_OPERATIONS: Final = """
__array__                         m     array view waits:copy
__len__                           m     int
abs                               tm    elementwise
absolute                          tm    elementwise
acos                              tm    to-float elementwise
acosh                             tm    to-float elementwise
add                               tm    widest elementwise
addcdiv                           tm    widest elementwise
addcmul                           tm    widest elementwise
addmm                             tm    widest
addr                              tm    widest
adjoint                           tm    view
all                               tm    to-bool reduces ambiguous
allclose                          tm    bool waits:truth
amax                              tm    reduces
amin                              tm    reduces
aminmax                           tm    several
any                               tm    to-bool reduces ambiguous
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
asin                              tm    to-float elementwise
asinh                             tm    to-float elementwise
atan                              tm    to-float elementwise
atan2                             tm    widest elementwise
atanh                             tm    to-float elementwise
backward                          m     none gradients
baddbmm                           tm    widest
bernoulli                         tm    elementwise random
bernoulli_                        m     itself writes random
bfloat16                          m     alias to-bfloat16 elementwise
bincount                          tm    graphless waits:shape
bitwise_and                       tm    widest elementwise
bitwise_not                       tm    elementwise
bitwise_or                        tm    widest elementwise
bitwise_xor                       tm    widest elementwise
bmm                               tm
bool                              m     alias to-bool elementwise
broadcast_to                      tm    view
byte                              m     alias to-uint8 elementwise
cdouble                           m     not-real alias
ceil                              tm    elementwise
cfloat                            m     not-real alias
chalf                             m     not-real alias
chunk                             tm    several view
clamp                             tm    widest elementwise waits:number@mixed
clamp_                            m     itself writes elementwise waits:number@mixed
clamp_max                         tm    widest elementwise
clamp_min                         tm    widest elementwise
clip                              tm    widest elementwise waits:number@mixed
clip_                             m     itself writes elementwise waits:number@mixed
clone                             tm    elementwise
conj                              tm    alias elementwise
conj_physical                     tm    alias elementwise
contiguous                        m     alias elementwise
copy_                             m     itself writes waits:transfer@arguments
copysign                          tm    widest elementwise
corrcoef                          tm    to-float waits:number
cos                               tm    to-float elementwise
cosh                              tm    to-float elementwise
count_nonzero                     tm    to-int64 reduces
cov                               tm    to-float waits:number
cpu                               m     alias elementwise waits:copy
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
dsplit                            tm    several view
element_size                      m     int
eq                                tm    to-bool elementwise
equal                             tm    bool waits:truth
erf                               tsm   to-float elementwise
erfc                              tsm   to-float elementwise
erfinv                            tsm   to-float elementwise
exp                               tm    to-float elementwise
exp2                              tsm   to-float elementwise
expand                            m     view
expand_as                         m     view
expm1                             tsm   to-float elementwise
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
frac                              tm    elementwise
gather                            tm
ge                                tm    to-bool elementwise
ger                               tm    widest
get_device                        tm    int
grad                              a     alias graphless
greater                           tm    to-bool elementwise
greater_equal                     tm    to-bool elementwise
gt                                tm    to-bool elementwise
H                                 a     view
half                              m     alias to-float16 elementwise
hardshrink                        tFm   elementwise
heaviside                         tm    widest elementwise
histc                             tm    flattens graphless
hsplit                            tm    several view
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
isclose                           tm    to-bool elementwise
isfinite                          tm    to-bool elementwise
isinf                             tm    to-bool elementwise
isnan                             tm    to-bool elementwise
isneginf                          tm    to-bool elementwise
isposinf                          tm    to-bool elementwise
isreal                            tm    to-bool elementwise
item                              m     number waits:number
kron                              tm    widest
kthvalue                          tm    pair
ldexp                             tm    widest elementwise
le                                tm    to-bool elementwise
lerp                              tm    elementwise
less                              tm    to-bool elementwise
less_equal                        tm    to-bool elementwise
lgamma                            tm    to-float elementwise
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
logsumexp                         tms   to-float
long                              m     alias to-int64 elementwise
lt                                tm    to-bool elementwise
masked_fill                       tm
masked_scatter                    tm
masked_select                     tm    flattens waits:shape
matmul                            tml
matrix_exp                        tlm
matrix_power                      tlm
max                               tm    reduces pair-along-dim ambiguous
maximum                           tm    widest elementwise
mean                              tm    to-float reduces
median                            tm    reduces pair-along-dim
mH                                a     view
min                               tm    reduces pair-along-dim ambiguous
minimum                           tm    widest elementwise
mm                                tm
mode                              tm    pair
moveaxis                          tm    view
movedim                           tm    view
msort                             tm    elementwise
mT                                a     view
mul                               tm    widest elementwise
multinomial                       tm    to-int64 random
multiply                          tm    widest elementwise
mv                                tm
nan_to_num                        tm    elementwise
nanmean                           tm    to-float reduces
nanmedian                         tm    reduces pair-along-dim
nansum                            tm    sums reduces
narrow                            tm    view waits:number@arguments
ndimension                        m     int
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
nonzero                           tm    to-int64 waits:shape
norm                              tml   to-float reduces
normal_                           m     itself writes random
not_equal                         tm    to-bool elementwise
numel                             tm    int
numpy                             m     array view waits:copy?force
outer                             tm    widest
permute                           tm    view
pin_memory                        m     alias
positive                          tm    alias elementwise
pow                               tm    widest elementwise
prelu                             tFm
prod                              tm    sums reduces
quantile                          tm
rad2deg                           tm    to-float elementwise
random_                           m     itself writes random
ravel                             tm    alias flattens
real                              ta    view
reciprocal                        tm    to-float elementwise
register_hook                     m     object gradients
relu                              tmF   elementwise
remainder                         tm    widest elementwise
repeat                            m     waits:number@arguments
repeat_interleave                 tm    waits:shape@arguments!output_size
requires_grad_                    m     itself elementwise
reshape                           tm    alias waits:number@arguments
reshape_as                        m     alias
resolve_conj                      tm    alias elementwise
resolve_neg                       tm    alias elementwise
retain_grad                       m     none gradients
roll                              tm
rot90                             tm
round                             tms   elementwise
rsqrt                             tm    to-float elementwise
scatter                           tm
scatter_add                       tm
scatter_reduce                    tm
select                            tm    view
sgn                               tm    elementwise
share_memory_                     m     itself
short                             m     alias to-int16 elementwise
sigmoid                           tFm   to-float elementwise
sign                              tm    elementwise
signbit                           tm    to-bool elementwise
sin                               tm    to-float elementwise
sinc                              tsm   to-float elementwise
sinh                              tm    to-float elementwise
size                              m     ints
softmax                           tFms  to-float elementwise
sort                              tm    pair
split                             tm    several view waits:number@arguments ambiguous
split_with_sizes                  tm    several view
sqrt                              tm    to-float elementwise
square                            tm    sums elementwise
squeeze                           tm    view
std                               tm    to-float reduces
stft                              tm    not-real
storage_offset                    m     int
stride                            m     ints
sub                               tm    widest elementwise
subtract                          tm    widest elementwise
sum                               tm    sums reduces
swapaxes                          tm    view
swapdims                          tm    view
T                                 a     view
t                                 tm    view
take                              tm
take_along_dim                    tm
tan                               tm    to-float elementwise
tanh                              tFm   to-float elementwise
tensor_split                      tm    several view
tile                              tm
to                                m     alias any-type elementwise waits:transfer
to_dense                          m     alias
to_mkldnn                         m     not-real alias
to_sparse                         m     not-real alias waits:shape
to_sparse_coo                     m     not-real alias waits:shape
to_sparse_csc                     m     not-real alias waits:shape
to_sparse_csr                     m     not-real alias waits:shape
tolist                            m     list waits:copy
topk                              tm    pair
trace                             tm    sums scalar
transpose                         tm    view
tril                              tm
triu                              tm
true_divide                       tm    widest elementwise
trunc                             tm    elementwise
type                              m     alias any-type elementwise waits:transfer ambiguous
type_as                           m     alias any-type elementwise waits:transfer
unbind                            tm    several view
unflatten                         tm    view
unfold                            m     view
uniform_                          m     itself writes random
unique                            tm    waits:shape
unique_consecutive                tm    waits:shape
unsafe_chunk                      tm    several view
unsafe_split                      tm    several view
unsqueeze                         tm    view
var                               tm    to-float reduces
vdot                              tm    scalar
view                              m     view any-type waits:number@arguments
view_as                           m     view
vsplit                            tm    several view
where                             m     widest
xlogy                             tsm   widest elementwise
zero_                             tm    itself writes
"""
"""The second column says where torch has them: m method, a attribute, t `torch`, F `torch.nn.functional`, l `torch.linalg`,
s `torch.special`.

Sources: torch 2.13, run; its `native_functions.yaml` for which are views.
"""
