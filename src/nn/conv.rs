//! Convolutions, with PyTorch's names and first values: weight and bias uniform in
//! `+-1/sqrt(fan in)`.

use super::{Module, computed_in, dotted};
use crate::error::{Error, Result};
use crate::graph::Tensor;
use crate::ops::Conv2dOptions;
use crate::params::{Init, Param, Params};

fn groups_divide(op: &'static str, groups: usize, channels: [usize; 2]) -> Result<()> {
    if groups > 0 && channels.iter().all(|c| c % groups == 0) {
        return Ok(());
    }
    let detail = format!("it must divide the channels {channels:?}");
    Err(Error::Argument { op, argument: "groups", value: groups.to_string(), detail })
}

fn create(params: &Params, name: &str, shape: &[usize], bias: Option<usize>) -> Result<(Param, Option<Param>)> {
    let fan_in: usize = shape[1..].iter().product();
    let bound = 1.0 / (fan_in.max(1) as f32).sqrt();
    let init = Init::Uniform { low: -bound, high: bound };
    let weight = params.create(&dotted(name, "weight"), shape, init.clone())?;
    let bias = bias.map(|channels| params.create(&dotted(name, "bias"), [channels], init)).transpose()?;
    Ok((weight, bias))
}

/// [`Tensor::conv2d`] of `[N, C, H, W]` with a square kernel.
#[derive(Debug, Clone)]
pub struct Conv2d {
    /// `[O, C / groups, K, K]`.
    pub weight: Param,
    /// `[O]`.
    pub bias: Option<Param>,
    /// Stride, padding, dilation, groups.
    pub options: Conv2dOptions,
}

impl Conv2d {
    /// A layer named `name` from `channels[0]` to `channels[1]`.
    ///
    /// # Errors
    /// [`Error::Argument`] unless the groups divide the channels;
    /// [`Error::StateConflict`] if the names are taken by state of another type.
    pub fn new(
        params: &Params,
        name: &str,
        channels: [usize; 2],
        kernel: usize,
        options: Conv2dOptions,
        bias: bool,
    ) -> Result<Self> {
        groups_divide("conv2d", options.groups, channels)?;
        let shape = [channels[1], channels[0] / options.groups, kernel, kernel];
        let (weight, bias) = create(params, name, &shape, bias.then_some(channels[1]))?;
        Ok(Self { weight, bias, options })
    }

    /// A layer without bias whose weight is normal of variance `2 / (O K^2)`: He et al.
    /// 2015 counted by outputs, which keeps the size of gradients through layers with
    /// ReLU (`kaiming_normal_(mode="fan_out", nonlinearity="relu")`), as torchvision's
    /// residual networks begin.
    ///
    /// # Errors
    /// As [`Conv2d::new`].
    pub fn fan_out(
        params: &Params,
        name: &str,
        channels: [usize; 2],
        kernel: usize,
        options: Conv2dOptions,
    ) -> Result<Self> {
        groups_divide("conv2d", options.groups, channels)?;
        let shape = [channels[1], channels[0] / options.groups, kernel, kernel];
        let fan_out = (channels[1] * kernel * kernel).max(1) as f64;
        let init = Init::Normal { mean: 0.0, std: (2.0 / fan_out).sqrt() as f32 };
        Ok(Self { weight: params.create(&dotted(name, "weight"), shape, init)?, bias: None, options })
    }
}

impl Module for Conv2d {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let recorder = x.recorder();
        let bias = self.bias.as_ref().map(|bias| recorder.param(bias)).transpose()?;
        computed_in(x)?.conv2d(&recorder.param(&self.weight)?, bias.as_ref(), self.options)
    }
    fn parameters(&self) -> Vec<Param> {
        std::iter::once(self.weight.clone()).chain(self.bias.clone()).collect()
    }
}

/// [`Tensor::conv_transpose2d`] of `[N, C, H, W]` with a square kernel.
#[derive(Debug, Clone)]
pub struct ConvTranspose2d {
    /// `[C, O / groups, K, K]`.
    pub weight: Param,
    /// `[O]`.
    pub bias: Option<Param>,
    /// Stride, padding, dilation, groups.
    pub options: Conv2dOptions,
    /// Rows and columns added at the end.
    pub output_padding: [usize; 2],
}

impl ConvTranspose2d {
    /// A layer named `name` from `channels[0]` to `channels[1]`, without output padding.
    ///
    /// # Errors
    /// As [`Conv2d::new`].
    pub fn new(
        params: &Params,
        name: &str,
        channels: [usize; 2],
        kernel: usize,
        options: Conv2dOptions,
        bias: bool,
    ) -> Result<Self> {
        groups_divide("conv_transpose2d", options.groups, channels)?;
        let shape = [channels[0], channels[1] / options.groups, kernel, kernel];
        let (weight, bias) = create(params, name, &shape, bias.then_some(channels[1]))?;
        Ok(Self { weight, bias, options, output_padding: [0, 0] })
    }
}

impl Module for ConvTranspose2d {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let recorder = x.recorder();
        let bias = self.bias.as_ref().map(|bias| recorder.param(bias)).transpose()?;
        computed_in(x)?.conv_transpose2d(
            &recorder.param(&self.weight)?,
            bias.as_ref(),
            self.options,
            self.output_padding,
        )
    }
    fn parameters(&self) -> Vec<Param> {
        std::iter::once(self.weight.clone()).chain(self.bias.clone()).collect()
    }
}

/// [`Tensor::conv1d`] of `[N, C, L]`.
#[derive(Debug, Clone)]
pub struct Conv1d {
    /// `[O, C / groups, K]`.
    pub weight: Param,
    /// `[O]`.
    pub bias: Option<Param>,
    /// Places from one output to the next.
    pub stride: usize,
    /// Zeros added on either side.
    pub padding: usize,
    /// Places from one weight to the next.
    pub dilation: usize,
    /// Groups of channels that do not see each other.
    pub groups: usize,
}

impl Conv1d {
    /// A layer named `name` from `channels[0]` to `channels[1]`, of dilation 1 and one group.
    ///
    /// # Errors
    /// [`Error::StateConflict`] if the names are taken by state of another type.
    pub fn new(
        params: &Params,
        name: &str,
        channels: [usize; 2],
        kernel: usize,
        stride: usize,
        padding: usize,
        bias: bool,
    ) -> Result<Self> {
        let (weight, bias) = create(params, name, &[channels[1], channels[0], kernel], bias.then_some(channels[1]))?;
        Ok(Self { weight, bias, stride, padding, dilation: 1, groups: 1 })
    }
}

impl Module for Conv1d {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let recorder = x.recorder();
        let bias = self.bias.as_ref().map(|bias| recorder.param(bias)).transpose()?;
        let weight = recorder.param(&self.weight)?;
        computed_in(x)?.conv1d(&weight, bias.as_ref(), self.stride, self.padding, self.dilation, self.groups)
    }
    fn parameters(&self) -> Vec<Param> {
        std::iter::once(self.weight.clone()).chain(self.bias.clone()).collect()
    }
}
