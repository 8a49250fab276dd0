//! Linear, embedding, layer norm and dropout.

use super::{Module, dotted};
use crate::error::{Error, Result};
use crate::graph::Tensor;
use crate::params::{Init, Param, Params};

/// `y = x W^T + b`; `weight [out, in]`, `bias [out]`.
#[derive(Debug, Clone)]
pub struct Linear {
    /// `[out, in]`.
    pub weight: Param,
    /// `[out]`.
    pub bias: Option<Param>,
}

impl Linear {
    /// A layer named `name`, initialised as PyTorch's: both uniform in
    /// `+-1/sqrt(inputs)`.
    ///
    /// # Errors
    /// [`Error::StateConflict`] if the names are taken by state of another type.
    pub fn new(params: &Params, name: &str, inputs: usize, outputs: usize, bias: bool) -> Result<Self> {
        let bound = 1.0 / (inputs.max(1) as f32).sqrt();
        let init = Init::Uniform { low: -bound, high: bound };
        Self::with_init(params, name, [inputs, outputs], init.clone(), bias.then_some(init))
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
        Ok(Self { weight, bias })
    }
}

impl Module for Linear {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let recorder = x.recorder();
        let weight = recorder.param(&self.weight)?;
        match &self.bias {
            Some(bias) => x.linear(&weight, Some(&recorder.param(bias)?)),
            None => x.linear(&weight, None),
        }
    }
    fn parameters(&self) -> Vec<Param> {
        std::iter::once(self.weight.clone()).chain(self.bias.clone()).collect()
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
        ids.recorder().param(&self.weight)?.embedding(ids)
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
        let recorder = x.recorder();
        x.layer_norm(Some(&recorder.param(&self.weight)?), Some(&recorder.param(&self.bias)?), self.eps)
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

    /// The same layer for evaluation: the identity.
    #[must_use]
    pub fn eval(self) -> Self {
        Self { training: false, ..self }
    }
}

impl Module for Dropout {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        if self.training && self.p > 0.0 { x.dropout(self.p) } else { Ok(x.clone()) }
    }
    fn parameters(&self) -> Vec<Param> {
        Vec::new()
    }
}
