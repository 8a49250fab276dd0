//! U-Net (Ronneberger et al. 2015), with padded convolutions and batch norm.

use super::{BatchNorm2d, Conv2d, ConvTranspose2d, Module, dotted};
use crate::error::{Error, Result};
use crate::graph::Tensor;
use crate::ops::Conv2dOptions;
use crate::params::{Param, Params};

/// Twice a 3x3 convolution, batch norm and ReLU.
#[derive(Debug, Clone)]
pub struct DoubleConv {
    /// The convolutions and their norms, in order.
    pub layers: [(Conv2d, BatchNorm2d); 2],
}

impl DoubleConv {
    /// A block named `name` from `channels[0]` to `channels[1]`, with the parts
    /// `conv1`, `bn1`, `conv2`, `bn2`.
    ///
    /// # Errors
    /// [`Error::StateConflict`] if the names are taken by state of another type.
    pub fn new(params: &Params, name: &str, channels: [usize; 2]) -> Result<Self> {
        let [ins, outs] = channels;
        let layer = |number: usize, ins: usize| -> Result<_> {
            let options = Conv2dOptions::new(1, 1);
            let conv = Conv2d::new(params, &dotted(name, &format!("conv{number}")), [ins, outs], 3, options, false)?;
            Ok((conv, BatchNorm2d::new(params, &dotted(name, &format!("bn{number}")), outs)?))
        };
        Ok(Self { layers: [layer(1, ins)?, layer(2, outs)?] })
    }
}

impl Module for DoubleConv {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let mut h = x.clone();
        for (conv, norm) in &self.layers {
            h = norm.forward(&conv.forward(&h)?)?.relu()?;
        }
        Ok(h)
    }
    fn parameters(&self) -> Vec<Param> {
        self.layers.iter().flat_map(|(conv, norm)| [conv.parameters(), norm.parameters()].concat()).collect()
    }
    fn children_mut(&mut self) -> Vec<&mut dyn Module> {
        self.layers.iter_mut().flat_map(|(conv, norm)| [conv as &mut dyn Module, norm]).collect()
    }
}

/// A U-Net: halved by max pooling `depth` times with the channels doubled, then
/// doubled by transposed convolutions and joined with what had that size before.
/// Names: `down.I`, `bottom`, `up.I`, `merge.I`, `head`.
#[derive(Debug, Clone)]
pub struct UNet {
    /// The way down, widest images first.
    pub down: Vec<DoubleConv>,
    /// At the smallest size.
    pub bottom: DoubleConv,
    /// The way up, in order: twice the size, then the join's block.
    pub up: Vec<(ConvTranspose2d, DoubleConv)>,
    /// 1x1, to the classes.
    pub head: Conv2d,
}

impl UNet {
    /// A model from `channels[0]` to `channels[1]` per pixel, `width` channels at
    /// the images' own size and `depth` halvings.
    ///
    /// # Errors
    /// [`Error::Argument`] for widths beyond `usize`; [`Error::StateConflict`] if the
    /// names are taken by state of another type.
    pub fn new(params: &Params, channels: [usize; 2], width: usize, depth: usize) -> Result<Self> {
        let at = |level: usize| {
            let factor = u32::try_from(level).ok().and_then(|level| 2_usize.checked_pow(level + 1));
            factor.and_then(|factor| width.checked_mul(factor / 2).filter(|w| *w < 1 << 30)).ok_or(Error::Argument {
                op: "unet",
                argument: "depth",
                value: depth.to_string(),
                detail: format!("{width} channels doubled so often are too many"),
            })
        };
        at(depth)?;
        let (mut down, mut ins) = (Vec::new(), channels[0]);
        for level in 0..depth {
            down.push(DoubleConv::new(params, &format!("down.{level}"), [ins, at(level)?])?);
            ins = at(level)?;
        }
        let bottom = DoubleConv::new(params, "bottom", [ins, at(depth)?])?;
        let mut up = Vec::new();
        for (step, level) in (0..depth).rev().enumerate() {
            let (wide, narrow) = (at(level + 1)?, at(level)?);
            let options = Conv2dOptions::new(2, 0);
            let grow = ConvTranspose2d::new(params, &format!("up.{step}"), [wide, narrow], 2, options, true)?;
            up.push((grow, DoubleConv::new(params, &format!("merge.{step}"), [wide, narrow])?));
        }
        let head = Conv2d::new(params, "head", [at(0)?, channels[1]], 1, Conv2dOptions::new(1, 0), true)?;
        Ok(Self { down, bottom, up, head })
    }
}

impl Module for UNet {
    /// `[N, channels[1], H, W]` of images `[N, channels[0], H, W]`, rows and columns
    /// in multiples of `2^depth`. Every block is a checkpoint segment.
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let fits = |d: &usize| u32::try_from(self.down.len()).is_ok_and(|depth| d.trailing_zeros() >= depth);
        if x.rank() != 4 || !x.dims()[2..].iter().all(fits) {
            let detail = format!("it needs [N, C, H, W] with rows and columns in multiples of 2^{}", self.down.len());
            return Err(Error::Shape { op: "unet", shapes: vec![x.shape().clone()], detail });
        }
        let recorder = x.recorder();
        let (mut h, mut kept) = (x.clone(), Vec::new());
        for block in &self.down {
            let wide = recorder.checkpoint(h, |h| block.forward(&h))?;
            h = wide.max_pool2d([2, 2], [2, 2], [0, 0])?;
            kept.push(wide);
        }
        h = recorder.checkpoint(h, |h| self.bottom.forward(&h))?;
        for ((grow, merge), wide) in self.up.iter().zip(kept.into_iter().rev()) {
            h = recorder
                .checkpoint((h, wide), |(h, wide)| merge.forward(&Tensor::cat(&[wide, grow.forward(&h)?], 1)?))?;
        }
        self.head.forward(&h)
    }
    fn parameters(&self) -> Vec<Param> {
        let mut all: Vec<Param> = self.down.iter().flat_map(Module::parameters).collect();
        all.extend(self.bottom.parameters());
        all.extend(self.up.iter().flat_map(|(grow, merge)| [grow.parameters(), merge.parameters()].concat()));
        all.extend(self.head.parameters());
        all
    }
    fn children_mut(&mut self) -> Vec<&mut dyn Module> {
        let mut all: Vec<&mut dyn Module> = self.down.iter_mut().map(|block| block as &mut dyn Module).collect();
        all.push(&mut self.bottom);
        all.extend(self.up.iter_mut().flat_map(|(grow, merge)| [grow as &mut dyn Module, merge]));
        all.push(&mut self.head);
        all
    }
}
