//! Norms: root mean square, group, instance, batch. First values: weights 1, biases 0.

use super::{Module, computed_in, dotted};
use crate::dtype::{DType, TensorType};
use crate::error::{Error, Result};
use crate::fuse::program::Category;
use crate::graph::Tensor;
use crate::params::{Init, Param, Params};

/// [`Tensor::rms_norm`] over the last axis.
#[derive(Debug, Clone)]
pub struct RmsNorm {
    /// `[C]`.
    pub weight: Param,
    /// Added to the mean of squares.
    pub eps: f32,
}

impl RmsNorm {
    /// A layer named `name` with eps 1e-6.
    ///
    /// # Errors
    /// [`crate::Error::StateConflict`] if the name is taken by state of another type.
    pub fn new(params: &Params, name: &str, width: usize) -> Result<Self> {
        Ok(Self { weight: params.create(&dotted(name, "weight"), [width], Init::Ones)?, eps: 1e-6 })
    }
}

impl Module for RmsNorm {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        computed_in(x)?.rms_norm(Some(&x.recorder().param(&self.weight)?), self.eps)
    }
    fn parameters(&self) -> Vec<Param> {
        vec![self.weight.clone()]
    }
}

/// [`Tensor::group_norm`] of `[N, C, ..]`.
#[derive(Debug, Clone)]
pub struct GroupNorm {
    /// `[C]`.
    pub weight: Param,
    /// `[C]`.
    pub bias: Param,
    /// Number of groups; divides `C`.
    pub groups: usize,
    /// Added to the variance.
    pub eps: f32,
}

impl GroupNorm {
    /// A layer named `name` with eps 1e-5.
    ///
    /// # Errors
    /// [`crate::Error::StateConflict`] if the names are taken by state of another type.
    pub fn new(params: &Params, name: &str, groups: usize, channels: usize) -> Result<Self> {
        Ok(Self {
            weight: params.create(&dotted(name, "weight"), [channels], Init::Ones)?,
            bias: params.create(&dotted(name, "bias"), [channels], Init::Zeros)?,
            groups,
            eps: 1e-5,
        })
    }
}

impl Module for GroupNorm {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let recorder = x.recorder();
        let (weight, bias) = (recorder.param(&self.weight)?, recorder.param(&self.bias)?);
        computed_in(x)?.group_norm(self.groups, Some(&weight), Some(&bias), self.eps)
    }
    fn parameters(&self) -> Vec<Param> {
        vec![self.weight.clone(), self.bias.clone()]
    }
}

/// [`Tensor::instance_norm`] of `[N, C, ..]`, the same in training and in evaluation
/// (PyTorch's `nn.InstanceNorm1d`, `2d`, `3d` without running statistics).
#[derive(Debug, Clone)]
pub struct InstanceNorm {
    /// Weight and bias, `[C]` each, if the layer has them.
    pub affine: Option<(Param, Param)>,
    /// `C`.
    pub channels: usize,
    /// Added to the variance.
    pub eps: f32,
}

impl InstanceNorm {
    /// A layer named `name` with eps 1e-5; `affine` gives it a weight and a bias, which
    /// PyTorch's has only if asked for.
    ///
    /// # Errors
    /// [`crate::Error::StateConflict`] if the names are taken by state of another type.
    pub fn new(params: &Params, name: &str, channels: usize, affine: bool) -> Result<Self> {
        let pair = || -> Result<_> {
            let weight = params.create(&dotted(name, "weight"), [channels], Init::Ones)?;
            Ok((weight, params.create(&dotted(name, "bias"), [channels], Init::Zeros)?))
        };
        Ok(Self { affine: affine.then(pair).transpose()?, channels, eps: 1e-5 })
    }
}

impl Module for InstanceNorm {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        const OP: &str = "instance_norm";
        let refused = |detail: String| Error::Shape { op: OP, shapes: vec![x.shape().clone()], detail };
        if x.dims().get(1) != Some(&self.channels) {
            return Err(refused(format!("the layer has {} channels: expected [N, {0}, ..]", self.channels)));
        }
        if x.dims()[2..].iter().product::<usize>() == 1 {
            return Err(refused(
                "it needs more than one value per channel and sample, or the result is the bias".into(),
            ));
        }
        let x = computed_in(x)?;
        let recorder = x.recorder();
        let Some((weight, bias)) = &self.affine else { return x.instance_norm(None, None, self.eps) };
        x.instance_norm(Some(&recorder.param(weight)?), Some(&recorder.param(bias)?), self.eps)
    }
    fn parameters(&self) -> Vec<Param> {
        self.affine.iter().flat_map(|(weight, bias)| [weight.clone(), bias.clone()]).collect()
    }
}

/// Batch norm of `[N, C, H, W]`. In training it uses the batch's mean and variance
/// and moves its running ones towards them, once per run; in evaluation it uses those.
#[derive(Debug, Clone)]
pub struct BatchNorm2d {
    /// `[C]`.
    pub weight: Param,
    /// `[C]`.
    pub bias: Param,
    /// `[C]`, at first 0; state, not trained.
    pub running_mean: Param,
    /// `[C]`, at first 1; of unbiased variances, as PyTorch's.
    pub running_var: Param,
    /// `[1]`, `i32`: runs in training so far.
    pub num_batches_tracked: Param,
    /// Share of the batch in the running statistics.
    pub momentum: f32,
    /// Added to the variance.
    pub eps: f32,
    /// False in evaluation.
    pub training: bool,
}

impl BatchNorm2d {
    /// A layer named `name` for training, with momentum 0.1 and eps 1e-5.
    ///
    /// # Errors
    /// [`crate::Error::StateConflict`] if the names are taken by state of another type.
    pub fn new(params: &Params, name: &str, channels: usize) -> Result<Self> {
        Self::scaled(params, name, channels, Init::Ones)
    }

    /// The same with these first values of the weight.
    pub(super) fn scaled(params: &Params, name: &str, channels: usize, weight: Init) -> Result<Self> {
        let float = || TensorType::new(DType::F32, [channels]);
        let state = |what: &str, ty, init| params.create_typed(&dotted(name, what), ty, Category::Other, init);
        Ok(Self {
            weight: params.create(&dotted(name, "weight"), [channels], weight)?,
            bias: params.create(&dotted(name, "bias"), [channels], Init::Zeros)?,
            running_mean: state("running_mean", float(), Init::Zeros)?,
            running_var: state("running_var", float(), Init::Ones)?,
            num_batches_tracked: state("num_batches_tracked", TensorType::new(DType::I32, [1]), Init::Zeros)?,
            momentum: 0.1,
            eps: 1e-5,
            training: true,
        })
    }
}

impl Module for BatchNorm2d {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let x = computed_in(x)?;
        let recorder = x.recorder();
        let (weight, bias) = (recorder.param(&self.weight)?, recorder.param(&self.bias)?);
        let (mean, var) = (recorder.param(&self.running_mean)?, recorder.param(&self.running_var)?);
        if !self.training {
            return x.batch_norm_eval(&mean, &var, Some(&weight), Some(&bias), self.eps);
        }
        let (y, batch_mean, batch_var) = x.batch_norm_train(Some(&weight), Some(&bias), self.eps)?;
        let channels = self.weight.ty().shape.element_count();
        let count = x.element_count() as f64 / channels.max(1) as f64;
        if count <= 1.0 {
            return Err(Error::Shape {
                op: "batch_norm",
                shapes: vec![x.shape().clone()],
                detail: "training needs more than one value per channel, or the running variance has no meaning".into(),
            });
        }
        let unbiased = (count / (count - 1.0)) as f32;
        let keep = 1.0 - self.momentum;
        let moved = |running: &Tensor, batch: &Tensor, scale: f32| {
            running.mul_scalar(keep)?.add(&batch.mul_scalar(self.momentum * scale)?)
        };
        recorder.assign(&self.running_mean, &moved(&mean, &batch_mean, 1.0)?)?;
        recorder.assign(&self.running_var, &moved(&var, &batch_var, unbiased)?)?;
        let runs = recorder.param(&self.num_batches_tracked)?.add_scalar(1_i32)?;
        recorder.assign(&self.num_batches_tracked, &runs)?;
        Ok(y)
    }
    fn parameters(&self) -> Vec<Param> {
        vec![self.weight.clone(), self.bias.clone()]
    }
    fn set_training(&mut self, training: bool) {
        self.training = training;
    }
}
