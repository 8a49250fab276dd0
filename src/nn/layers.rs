//! Linear, embedding, layer norm and dropout.

use super::{Lora, Module, computed_in, dotted};
use crate::error::{Error, Result};
use crate::graph::Tensor;
use crate::params::{Init, Param, Params};

/// `y = x W^T + b`; `weight [out, in]`, `bias [out]`; with an adapter, what that
/// gives added.
#[derive(Debug, Clone)]
pub struct Linear {
    /// `[out, in]`.
    pub weight: Param,
    /// `[out]`.
    pub bias: Option<Param>,
    /// An adapter; see [`super::add_lora`].
    pub lora: Option<Lora>,
}

impl Linear {
    /// A layer named `name`, initialised as PyTorch's: both uniform in
    /// `+-1/sqrt(inputs)`.
    ///
    /// # Errors
    /// [`Error::StateConflict`] if the names are taken by state of another type.
    pub fn new(params: &Params, name: &str, inputs: usize, outputs: usize, bias: bool) -> Result<Self> {
        let init = Self::first_values(inputs);
        Self::with_init(params, name, [inputs, outputs], init.clone(), bias.then_some(init))
    }

    /// Uniform in `+-1/sqrt(inputs)`, PyTorch's `kaiming_uniform_(a=sqrt(5))`.
    pub(super) fn first_values(inputs: usize) -> Init {
        let bound = 1.0 / (inputs.max(1) as f32).sqrt();
        Init::Uniform { low: -bound, high: bound }
    }

    /// A layer from `inputs` to `outputs` with first values of its own for the
    /// weight and, if it has one, for the bias.
    ///
    /// # Errors
    /// As [`Linear::new`].
    pub fn with_init(
        params: &Params,
        name: &str,
        [inputs, outputs]: [usize; 2],
        weight: Init,
        bias: Option<Init>,
    ) -> Result<Self> {
        let weight = params.create(&dotted(name, "weight"), [outputs, inputs], weight)?;
        let bias = bias.map(|init| params.create(&dotted(name, "bias"), [outputs], init)).transpose()?;
        Ok(Self::of(weight, bias))
    }

    /// A layer of these parameters.
    #[must_use]
    pub const fn of(weight: Param, bias: Option<Param>) -> Self {
        Self { weight, bias, lora: None }
    }

    /// Its dotted name: its weight's without `.weight` (`_weight` in PyTorch's attention).
    #[must_use]
    pub fn name(&self) -> &str {
        let name = self.weight.name();
        name.strip_suffix("weight").map_or(name, |name| name.trim_end_matches(['.', '_']))
    }

    /// Outputs `first..first + count` only, computed from those rows of the weight.
    pub(super) fn forward_part(&self, x: &Tensor, first: usize, count: usize) -> Result<Tensor> {
        self.forward_with(x, |rows| rows.narrow(0, first, count))
    }

    /// `part` picks from everything that has a row per output.
    fn forward_with(&self, x: &Tensor, part: impl Fn(&Tensor) -> Result<Tensor>) -> Result<Tensor> {
        let x = &computed_in(x)?;
        let recorder = x.recorder();
        let rows = |param: &Param| part(&recorder.param(param)?);
        let bias = self.bias.as_ref().map(rows).transpose()?;
        let y = x.linear(&rows(&self.weight)?, bias.as_ref())?;
        match &self.lora {
            Some(lora) => y.add(&lora.forward(x, rows(&lora.b)?)?),
            None => Ok(y),
        }
    }
}

impl Module for Linear {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.forward_with(x, |rows| Ok(rows.clone()))
    }
    fn parameters(&self) -> Vec<Param> {
        let adapter = self.lora.iter().flat_map(|lora| [lora.a.clone(), lora.b.clone()]);
        std::iter::once(self.weight.clone()).chain(self.bias.clone()).chain(adapter).collect()
    }
    fn children_mut(&mut self) -> Vec<&mut dyn Module> {
        self.lora.iter_mut().map(|lora| &mut lora.dropout as &mut dyn Module).collect()
    }
    fn linears_mut(&mut self) -> Vec<&mut Self> {
        vec![self]
    }
}

/// Rows of `weight [V, D]` by index: `[..] -> [.., D]`.
#[derive(Debug, Clone)]
pub struct Embedding {
    /// `[V, D]`.
    pub weight: Param,
}

impl Embedding {
    /// A layer named `name`, normal with standard deviation `std` (PyTorch: 1).
    ///
    /// # Errors
    /// [`Error::StateConflict`] if the name is taken by state of another type.
    pub fn new(params: &Params, name: &str, rows: usize, width: usize, std: f32) -> Result<Self> {
        let init = Init::Normal { mean: 0.0, std };
        Ok(Self { weight: params.create(&dotted(name, "weight"), [rows, width], init)? })
    }
}

impl Module for Embedding {
    fn forward(&self, ids: &Tensor) -> Result<Tensor> {
        // Rows are converted, not the table; its gradient adds up in f32 then.
        let recorder = ids.recorder();
        let rows = recorder.state(&self.weight)?.embedding(ids)?;
        rows.to_dtype(recorder.autocast_dtype().unwrap_or(rows.dtype()))
    }
    fn parameters(&self) -> Vec<Param> {
        vec![self.weight.clone()]
    }
}

/// Layer norm over the last axis with weight and bias `[C]`.
#[derive(Debug, Clone)]
pub struct LayerNorm {
    /// `[C]`, ones at first.
    pub weight: Param,
    /// `[C]`, zeros at first.
    pub bias: Param,
    /// Added to the variance.
    pub eps: f32,
}

impl LayerNorm {
    /// A layer named `name` with eps 1e-5.
    ///
    /// # Errors
    /// [`Error::StateConflict`] if the names are taken by state of another type.
    pub fn new(params: &Params, name: &str, width: usize) -> Result<Self> {
        Ok(Self {
            weight: params.create(&dotted(name, "weight"), [width], Init::Ones)?,
            bias: params.create(&dotted(name, "bias"), [width], Init::Zeros)?,
            eps: 1e-5,
        })
    }
}

impl Module for LayerNorm {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        // A few numbers per channel, which the kernel reads as they are.
        let recorder = x.recorder();
        computed_in(x)?.layer_norm(Some(&recorder.state(&self.weight)?), Some(&recorder.state(&self.bias)?), self.eps)
    }
    fn parameters(&self) -> Vec<Param> {
        vec![self.weight.clone(), self.bias.clone()]
    }
}

/// Dropout with probability `p` while training; the identity otherwise.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Dropout {
    /// Probability of a zero, `0 <= p < 1`.
    pub p: f32,
    /// False in evaluation.
    pub training: bool,
}

impl Dropout {
    /// A layer that drops while training.
    ///
    /// # Errors
    /// [`Error::Argument`] unless `0 <= p < 1`.
    pub fn new(p: f32) -> Result<Self> {
        if (0.0..1.0).contains(&p) {
            Ok(Self { p, training: true })
        } else {
            Err(Error::Argument {
                op: "dropout",
                argument: "p",
                value: p.to_string(),
                detail: "expected 0 <= p < 1".into(),
            })
        }
    }
}

impl Module for Dropout {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        if self.training && self.p > 0.0 { x.dropout(self.p) } else { Ok(x.clone()) }
    }
    fn parameters(&self) -> Vec<Param> {
        Vec::new()
    }
    fn set_training(&mut self, training: bool) {
        self.training = training;
    }
}
