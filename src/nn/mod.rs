//! Layers: parameters with stable dotted names, and how they are applied.
//!
//! A layer owns [`Param`] handles only; the numbers live in the
//! [`crate::params::Params`] that it was made with, so any number of steps share
//! them. Initialisation follows PyTorch's defaults, from the seed of the
//! `Params` and the parameter's name.

mod attention;
mod bert;
mod cache;
mod conv;
mod gpt;
mod layers;
mod llama;
mod lora;
mod mlp;
mod norm;
mod resnet;
mod unet;

pub use attention::{AttentionConfig, MultiHeadAttention, ProjectionLayout};
pub use bert::{BertConfig, BertEncoder};
pub use cache::{CacheStep, KeyValueCache};
pub use conv::{Conv1d, Conv2d, ConvTranspose2d};
pub use gpt::{Activation, Gpt, GptConfig, TransformerBlock};
pub use layers::{Dropout, Embedding, LayerNorm, Linear};
pub use llama::{Llama, LlamaConfig, SwiGlu};
pub use lora::{Lora, LoraConfig, add_lora, merge_lora};
pub use mlp::{Mlp, MlpBlock};
pub use norm::{BatchNorm2d, GroupNorm, InstanceNorm, RmsNorm};
pub use resnet::{ResNet, ResNetConfig, ResidualBlock};
pub use unet::{DoubleConv, UNet};

use crate::error::Result;
use crate::graph::Tensor;
use crate::params::Param;

/// A layer from one tensor to one tensor. Needs no macro to implement.
///
/// A layer made of others names them in [`Module::children_mut`]; modes and
/// adapters reach them that way.
pub trait Module {
    /// Records the layer on `x`.
    ///
    /// # Errors
    /// As the ops that it is made of.
    fn forward(&self, x: &Tensor) -> Result<Tensor>;

    /// Its parameters, in the order in which they were created.
    fn parameters(&self) -> Vec<Param>;

    /// The layers that it is made of.
    fn children_mut(&mut self) -> Vec<&mut dyn Module> {
        Vec::new()
    }

    /// Switches dropout, batch norm and the like, at every depth, between what they
    /// do in training and in evaluation. A layer is made for training.
    fn set_training(&mut self, training: bool) {
        self.children_mut().into_iter().for_each(|child| child.set_training(training));
    }

    /// Every [`Linear`] in it, at any depth.
    fn linears_mut(&mut self) -> Vec<&mut Linear> {
        self.children_mut().into_iter().flat_map(|child| child.linears_mut()).collect()
    }

    /// The same layer, over the same state, for evaluation.
    #[must_use]
    fn eval(&self) -> Self
    where
        Self: Sized + Clone,
    {
        let mut layer = self.clone();
        layer.set_training(false);
        layer
    }

    /// The same layer, over the same state, for training.
    #[must_use]
    fn train(&self) -> Self
    where
        Self: Sized + Clone,
    {
        let mut layer = self.clone();
        layer.set_training(true);
        layer
    }

    /// [`Param::freeze`] for each of its parameters.
    fn freeze(&self) {
        self.parameters().iter().for_each(Param::freeze);
    }

    /// [`Param::unfreeze`] for each of its parameters.
    fn unfreeze(&self) {
        self.parameters().iter().for_each(Param::unfreeze);
    }
}

/// `x` as a layer takes it: floats in the data type of the innermost
/// [`crate::graph::Recorder::autocast`], as its parameters come.
fn computed_in(x: &Tensor) -> Result<Tensor> {
    let wanted = x.recorder().autocast_dtype().filter(|_| x.dtype().is_float());
    x.to_dtype(wanted.unwrap_or(x.dtype()))
}

/// Joins a prefix and a name with a dot; an empty prefix adds none.
fn dotted(prefix: &str, name: &str) -> String {
    if prefix.is_empty() { name.to_owned() } else { format!("{prefix}.{name}") }
}
