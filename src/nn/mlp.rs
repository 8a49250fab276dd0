//! The guide's model: blocks of Linear, ReLU, Linear.

use super::{Dropout, Linear, Module, dotted};
use crate::error::Result;
use crate::graph::Tensor;
use crate::params::{Param, Params};

/// `[B, width] -> Linear -> ReLU -> Linear -> [B, width]`, named as PyTorch names
/// `Sequential(Linear, ReLU, Linear)`: `0` and `2`.
#[derive(Debug, Clone)]
pub struct MlpBlock {
    /// `width -> hidden`.
    pub up: Linear,
    /// `hidden -> width`.
    pub down: Linear,
    /// After the activation.
    pub dropout: Dropout,
}

impl Module for MlpBlock {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let h = self.up.forward(x)?.relu()?;
        self.down.forward(&self.dropout.forward(&h)?)
    }
    fn parameters(&self) -> Vec<Param> {
        [self.up.parameters(), self.down.parameters()].concat()
    }
    fn children_mut(&mut self) -> Vec<&mut dyn Module> {
        vec![&mut self.up, &mut self.down, &mut self.dropout]
    }
}

/// A chain of [`MlpBlock`]s named `blocks.0`, `blocks.1`, ...
#[derive(Debug, Clone)]
pub struct Mlp {
    /// The blocks.
    pub blocks: Vec<MlpBlock>,
}

impl Mlp {
    /// `blocks` blocks of the given widths, without dropout.
    ///
    /// # Errors
    /// [`crate::Error::StateConflict`] if the names are taken by state of another type.
    pub fn new(params: &Params, width: usize, hidden: usize, blocks: usize) -> Result<Self> {
        Self::with_dropout(params, width, hidden, blocks, 0.0)
    }

    /// [`Mlp::new`] with dropout of probability `p` after every activation.
    ///
    /// # Errors
    /// As [`Mlp::new`] and [`Dropout::new`].
    pub fn with_dropout(params: &Params, width: usize, hidden: usize, blocks: usize, p: f32) -> Result<Self> {
        let dropout = Dropout::new(p)?;
        let blocks = (0..blocks)
            .map(|i| {
                let name = format!("blocks.{i}");
                Ok(MlpBlock {
                    up: Linear::new(params, &dotted(&name, "0"), width, hidden, true)?,
                    down: Linear::new(params, &dotted(&name, "2"), hidden, width, true)?,
                    dropout,
                })
            })
            .collect::<Result<_>>()?;
        Ok(Self { blocks })
    }

    /// The model with every block as a checkpoint segment.
    ///
    /// # Errors
    /// As the ops that it is made of.
    pub fn forward_checkpointed(&self, x: &Tensor) -> Result<Tensor> {
        let mut h = x.clone();
        for (i, block) in self.blocks.iter().enumerate() {
            h = x.recorder().checkpoint_named(&format!("block{i}"), h, |h| block.forward(&h))?;
        }
        Ok(h)
    }
}

impl Module for Mlp {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let mut h = x.clone();
        for block in &self.blocks {
            h = block.forward(&h)?;
        }
        Ok(h)
    }
    fn parameters(&self) -> Vec<Param> {
        self.blocks.iter().flat_map(Module::parameters).collect()
    }
    fn children_mut(&mut self) -> Vec<&mut dyn Module> {
        self.blocks.iter_mut().map(|block| block as &mut dyn Module).collect()
    }
}
