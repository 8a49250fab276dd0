//! Layers: parameters with stable dotted names, and how they are applied.
//!
//! A layer owns [`Param`] handles only; the numbers live in the
//! [`crate::params::Params`] that it was made with, so any number of steps share
//! them. Initialisation follows PyTorch's defaults, from the seed of the
//! `Params` and the parameter's name.

mod attention;
mod conv;
mod gpt;
mod layers;
mod llama;
mod mlp;
mod norm;
mod resnet;
mod unet;

pub use attention::{AttentionConfig, MultiHeadAttention};
pub use conv::{Conv1d, Conv2d, ConvTranspose2d};
pub use gpt::{Activation, Gpt, GptConfig, TransformerBlock};
pub use layers::{Dropout, Embedding, LayerNorm, Linear};
pub use llama::{Llama, LlamaConfig, SwiGlu};
pub use mlp::{Mlp, MlpBlock};
pub use norm::{BatchNorm2d, GroupNorm, RmsNorm};
pub use resnet::{ResNet, ResNetConfig, ResidualBlock};
pub use unet::{DoubleConv, UNet};

use crate::error::Result;
use crate::graph::Tensor;
use crate::params::Param;

/// A layer from one tensor to one tensor. Needs no macro to implement.
pub trait Module {
    /// Records the layer on `x`.
    ///
    /// # Errors
    /// As the ops that it is made of.
    fn forward(&self, x: &Tensor) -> Result<Tensor>;

    /// Its parameters, in the order in which they were created.
    fn parameters(&self) -> Vec<Param>;
}

/// Joins a prefix and a name with a dot; an empty prefix adds none.
fn dotted(prefix: &str, name: &str) -> String {
    if prefix.is_empty() { name.to_owned() } else { format!("{prefix}.{name}") }
}
