"""The table of operations: functions and operators that are no methods of tensors, of torch, numpy, Python and others.

It is data, as `tensor_operations` is.
"""

from typing import Final

TORCH_FUNCTIONS: Final = """
adaptive_avg_pool1d               tF
adaptive_avg_pool2d               F
adaptive_avg_pool3d               F
affine_grid                       F
alpha_dropout                     tF    alias elementwise random
arange                            t     factory waits:number@each
as_tensor                         t     alias waits:upload
asarray                           t     alias waits:upload
atleast_1d                        t     alias
atleast_2d                        t     alias
atleast_3d                        t     alias
avg_pool1d                        tF
avg_pool2d                        F
avg_pool3d                        F
bartlett_window                   t     factory
bilinear                          tF
binary_cross_entropy              F     loss to-float
binary_cross_entropy_with_logits  F     loss to-float
blackman_window                   t     factory
block_diag                        t     widest
broadcast_tensors                 t     several alias
bucketize                         t     to-int64
cartesian_prod                    t     alias
cat                               t     widest
cdist                             t
celu                              tF    elementwise
chain_matmul                      t     alias
column_stack                      t     widest
complex                           t     not-real
concat                            t     widest
conv1d                            tF
conv2d                            tF
conv3d                            tF
conv_transpose1d                  tF
conv_transpose2d                  tF
cosine_embedding_loss             F     loss to-float
cosine_similarity                 tF
cross                             tl
cross_entropy                     F     loss to-float
ctc_loss                          F     loss to-float
dropout                           tF    alias elementwise random
dropout1d                         F     alias random
dropout2d                         F     alias random
dropout3d                         F     alias random
dstack                            t     widest
eig                               l     not-real
eigh                              l     several waits:number
eigvals                           l     not-real
eigvalsh                          l     waits:number
einsum                            t     alias
elu                               F     elementwise
empty                             t     factory waits:number@each
empty_like                        t     elementwise graphless
entr                              s     to-float elementwise
expit                             s     to-float elementwise
eye                               t     factory waits:number@each
feature_alpha_dropout             tF    alias elementwise random
feature_dropout                   t     alias elementwise random
fill                              t     elementwise
fold                              F
from_dlpack                       t     view
from_numpy                        t     view
frombuffer                        t     view
full                              t     factory waits:number@each
full_like                         t     elementwise graphless
gaussian_nll_loss                 F     loss to-float waits:number
gelu                              F     elementwise
glu                               F
grid_sample                       F
group_norm                        tF
gumbel_softmax                    F     random to-float
hamming_window                    t     factory
hann_window                       t     factory
hardsigmoid                       F     elementwise
hardswish                         F     elementwise
hardtanh                          F     elementwise
hinge_embedding_loss              F     loss to-float
hstack                            t     widest
huber_loss                        F     loss to-float
interpolate                       F
inv                               l     waits:number
is_tensor                         t     bool
isin                              t     to-bool
kaiser_window                     t     factory
kl_div                            F     loss to-float
l1_loss                           F     loss to-float
layer_norm                        tF
leaky_relu                        F     elementwise
linear                            F
linspace                          t     factory waits:number@each
logsigmoid                        F     elementwise
logspace                          t     factory waits:number@each
margin_ranking_loss               F     loss to-float
matrix_norm                       l     to-float
max_pool1d                        tF
max_pool2d                        F
max_pool3d                        tF
meshgrid                          t     several alias
mish                              F     elementwise
mse_loss                          F     loss to-float
multi_margin_loss                 F     loss to-float
multilabel_margin_loss            F     loss to-float
multilabel_soft_margin_loss       F     loss to-float
ndtr                              s     to-float elementwise
ndtri                             s     to-float elementwise
nll_loss                          F     loss to-float
normal                            t     random
normalize                         F     elementwise
one_hot                           F     to-int64 waits:number*2!others
ones                              t     factory waits:number@each
ones_like                         t     elementwise graphless
pad                               F
pairwise_distance                 tF    to-float
pixel_shuffle                     tF
pixel_unshuffle                   tF
poisson_nll_loss                  F     loss to-float
polar                             t     not-real
qr                                l     several
quantize_per_channel              t     not-real
quantize_per_tensor               t     not-real
quantize_per_tensor_dynamic       t     not-real
rand                              t     factory waits:number@each random
rand_like                         t     elementwise graphless random
randint                           t     factory waits:number@each random
randint_like                      t     elementwise graphless random
randn                             t     factory waits:number@each random
randn_like                        t     elementwise graphless random
randperm                          t     factory waits:number@each random
relu6                             F     elementwise
rms_norm                          tF
row_stack                         t     widest
rrelu                             F     elementwise
scalar_tensor                     t     graphless waits:upload
scaled_dot_product_attention      F
searchsorted                      t     to-int64
selu                              tF    elementwise
silu                              F     elementwise
slogdet                           l     several
smooth_l1_loss                    F     loss to-float
soft_margin_loss                  F     loss to-float
softmin                           F     elementwise
softplus                          F     elementwise
softshrink                        F     elementwise
softsign                          F     to-float elementwise
solve                             l     waits:number
sparse_coo_tensor                 t     not-real
stack                             t     widest
std_mean                          t     several
svd                               l     several waits:number
svdvals                           l     waits:number
tanhshrink                        F     to-float elementwise
tensor                            t     graphless waits:upload
tensordot                         t
threshold                         tF    elementwise
to_dlpack                         t     object alias
triplet_margin_loss               F     loss to-float
unfold                            F
var_mean                          t     several
vecdot                            l
vector_norm                       l     to-float reduces
view_as_complex                   t     not-real view
view_as_real                      t     view any-type
vstack                            t     widest
where                             t     widest waits:shape!others
xlog1py                           s     widest elementwise
zeros                             t     factory waits:number@each
zeros_like                        t     elementwise graphless
"""
"""Functions of torch that tensors do not have. The second column, and the sources: as in `tensor_operations`."""

ELSEWHERE: Final = """
accelerate.Accelerator.wait_for_everyone    none waits:device@nothing
MinkowskiEngine.SparseTensor                object waits:shape@many!coordinate_map_key
apex.parallel.LARC.step                     object waits:truth@many
apex.parallel.LARC.LARC.step                object waits:truth@many
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
lightly.utils.lars.LARS.step                object waits:truth@many
math.*                                      number waits:number@each
numpy.*                                     array alias waits:copy@each
numpy.average                               number waits:copy@each
numpy.mean                                  number waits:copy@each
pl_bolts.optimizers.LARS.step               object waits:truth@many
pl_bolts.optimizers.lars.LARS.step          object waits:truth@many
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
torch.Tensor                                waits:upload
torch.autograd.Variable                     alias
torch.autograd.backward                     none gradients
torch.autograd.grad                         several
torch.distributions.*.log_prob              object waits:truth@any!validate_args
torch.distributions.Bernoulli               object waits:truth@any!validate_args
torch.distributions.Beta                    object waits:truth*3@any!validate_args
torch.distributions.Binomial                object waits:truth*2@any!validate_args
torch.distributions.Categorical             object waits:truth@any!validate_args
torch.distributions.Cauchy                  object waits:truth*2@any!validate_args
torch.distributions.ContinuousBernoulli     object waits:truth@any!validate_args
torch.distributions.Dirichlet               object waits:truth@any!validate_args
torch.distributions.Exponential             object waits:truth@any!validate_args
torch.distributions.Gamma                   object waits:truth*2@any!validate_args
torch.distributions.Geometric               object waits:truth*2@any!validate_args
torch.distributions.Gumbel                  object waits:truth*4@any!validate_args
torch.distributions.Laplace                 object waits:truth*2@any!validate_args
torch.distributions.LogNormal               object waits:truth*4@any!validate_args
torch.distributions.Multinomial             object waits:truth*5@any!validate_args
torch.distributions.MultivariateNormal      object waits:truth*4@any!validate_args
torch.distributions.NegativeBinomial        object waits:truth*2@any!validate_args
torch.distributions.Normal                  object waits:truth*2@any!validate_args
torch.distributions.OneHotCategorical       object waits:truth*3@any!validate_args
torch.distributions.Pareto                  object waits:truth*3@any!validate_args
torch.distributions.Poisson                 object waits:truth@any!validate_args
torch.distributions.StudentT                object waits:truth*4@any!validate_args
torch.distributions.Uniform                 object waits:truth*2@any!validate_args
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
torch.optim.LBFGS.step                      object waits:truth@many
torch.xpu.synchronize                       none waits:device@nothing
torch_optimizer.A2GradExp.step              object waits:truth@many
torch_optimizer.A2GradInc.step              object waits:truth@many
torch_optimizer.A2GradUni.step              object waits:truth@many
torch_optimizer.Adafactor.step              object waits:truth@many
torch_optimizer.AdamP.step                  object waits:truth@many
torch_optimizer.LARS.step                   object waits:truth@many
torch_optimizer.Lamb.step                   object waits:truth@many
torch_optimizer.NovoGrad.step               object waits:truth@many
torch_optimizer.SGDP.step                   object waits:truth@many
torch_optimizer.SWATS.step                  object waits:truth@many
x[mask]                                     waits:shape
x[mask] = tensor                            writes waits:shape
x[mask] = number                            writes
x[key] = host tensor                        writes waits:upload
x[host index]                               waits:upload
x[0-d]                                      view waits:number
x[a:b]                                      view waits:number@each
list[0-d]                                   object waits:number
t in list                                   bool waits:truth@elements
if t                                        bool waits:truth
f"{t}"                                      text waits:format
alpha=t                                     waits:number
backward in anomaly mode                    none waits:truth
"""
"""Functions by qualified name (`math.*`: any function of the module), methods as `class.method`, and what is written without
a call.

Sources: counted with a dispatch mode where a CPU shows it, also those of torch_optimizer 0.3 and lightly 1.6; what only a GPU
shows is from NVIDIA's catalogue of waits (`perf-torch-sync-free`) and the CUDA semantics note of torch.
"""
