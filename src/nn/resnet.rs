//! Residual networks (He et al. 2015), with torchvision's names of parameters.
//! First values are torchvision's: convolutions normal of variance 2 / fan out, norms
//! 1 and 0, the last layer uniform as [`Linear`]'s.

use super::{BatchNorm2d, Conv2d, Linear, Module, dotted};
use crate::error::{Error, Result};
use crate::graph::Tensor;
use crate::ops::Conv2dOptions;
use crate::params::{Init, Param, Params};

/// Two 3x3 convolutions with batch norm, and what went in added:
/// `relu(bn2(conv2(relu(bn1(conv1(x))))) + shortcut(x))`. The shortcut is the
/// identity, or a 1x1 convolution with batch norm where stride or channels change
/// (torchvision's `BasicBlock`).
#[derive(Debug, Clone)]
pub struct ResidualBlock {
    /// 3x3, with the block's stride.
    pub conv1: Conv2d,
    /// After `conv1`.
    pub bn1: BatchNorm2d,
    /// 3x3.
    pub conv2: Conv2d,
    /// After `conv2`.
    pub bn2: BatchNorm2d,
    /// The shortcut, if it is not the identity.
    pub downsample: Option<(Conv2d, BatchNorm2d)>,
}

impl ResidualBlock {
    /// A block named `name` from `channels[0]` to `channels[1]`.
    ///
    /// # Errors
    /// [`Error::Argument`] for a stride of 0; [`Error::StateConflict`] if the
    /// names are taken by state of another type.
    pub fn new(params: &Params, name: &str, channels: [usize; 2], stride: usize) -> Result<Self> {
        Self::scaled(params, name, channels, stride, Init::Ones)
    }

    /// The same with these first values of `bn2`'s weight.
    fn scaled(params: &Params, name: &str, channels: [usize; 2], stride: usize, last: Init) -> Result<Self> {
        if stride == 0 {
            let detail = "expected a stride of at least 1".into();
            return Err(Error::Argument { op: "residual_block", argument: "stride", value: "0".into(), detail });
        }
        let [ins, outs] = channels;
        let conv = |part: &str, ins: usize, kernel: usize, stride: usize| {
            let options = Conv2dOptions::new(stride, kernel / 2);
            Conv2d::fan_out(params, &dotted(name, part), [ins, outs], kernel, options)
        };
        let norm = |part: &str| BatchNorm2d::new(params, &dotted(name, part), outs);
        Ok(Self {
            conv1: conv("conv1", ins, 3, stride)?,
            bn1: norm("bn1")?,
            conv2: conv("conv2", outs, 3, 1)?,
            bn2: BatchNorm2d::scaled(params, &dotted(name, "bn2"), outs, last)?,
            downsample: if stride == 1 && ins == outs {
                None
            } else {
                Some((conv("downsample.0", ins, 1, stride)?, norm("downsample.1")?))
            },
        })
    }
}

impl Module for ResidualBlock {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let h = self.bn1.forward(&self.conv1.forward(x)?)?.relu()?;
        let h = self.bn2.forward(&self.conv2.forward(&h)?)?;
        let shortcut = match &self.downsample {
            Some((conv, norm)) => norm.forward(&conv.forward(x)?)?,
            None => x.clone(),
        };
        h.add(&shortcut)?.relu()
    }
    fn parameters(&self) -> Vec<Param> {
        let mut all = [self.conv1.parameters(), self.bn1.parameters()].concat();
        all.extend([self.conv2.parameters(), self.bn2.parameters()].concat());
        if let Some((conv, norm)) = &self.downsample {
            all.extend([conv.parameters(), norm.parameters()].concat());
        }
        all
    }
    fn children_mut(&mut self) -> Vec<&mut dyn Module> {
        let mut all: Vec<&mut dyn Module> = vec![&mut self.conv1, &mut self.bn1, &mut self.conv2, &mut self.bn2];
        if let Some((conv, norm)) = &mut self.downsample {
            all.extend([conv as &mut dyn Module, norm]);
        }
        all
    }
}

/// Sizes of a [`ResNet`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResNetConfig {
    /// Channels of the images.
    pub channels: usize,
    /// Classes.
    pub classes: usize,
    /// True for small images: the stem is one 3x3 convolution of stride 1.
    /// Otherwise it is 7x7 of stride 2 and a 3x3 max pooling of stride 2.
    pub small_stem: bool,
    /// Channels of each stage; all but the first halve rows and columns.
    pub widths: Vec<usize>,
    /// Blocks of each stage.
    pub blocks: usize,
    /// Whether each block begins as its shortcut: the weight of its last norm is 0 at
    /// first, not 1 (torchvision's `zero_init_residual`; Goyal et al. 2017).
    pub zero_init_residual: bool,
}

impl ResNetConfig {
    /// ResNet-18: four stages of two blocks, of 64, 128, 256 and 512 channels.
    #[must_use]
    pub fn resnet18(channels: usize, classes: usize) -> Self {
        Self {
            channels,
            classes,
            small_stem: false,
            widths: vec![64, 128, 256, 512],
            blocks: 2,
            zero_init_residual: false,
        }
    }
}

/// A stem, stages of [`ResidualBlock`]s, the mean over rows and columns, a linear
/// layer. Names: `conv1`, `bn1`, `layer1.0.conv1`, .., `fc`.
#[derive(Debug, Clone)]
pub struct ResNet {
    /// The stem's convolution.
    pub conv1: Conv2d,
    /// After `conv1`.
    pub bn1: BatchNorm2d,
    /// Whether the stem pools.
    pub pools: bool,
    /// The blocks of all stages in order.
    pub blocks: Vec<ResidualBlock>,
    /// To the classes.
    pub fc: Linear,
}

impl ResNet {
    /// A model of the given sizes.
    ///
    /// # Errors
    /// [`Error::Argument`] without stages; [`Error::StateConflict`] if the names
    /// are taken by state of another type.
    pub fn new(params: &Params, config: &ResNetConfig) -> Result<Self> {
        let (Some(&first), Some(&last)) = (config.widths.first(), config.widths.last()) else {
            let detail = "expected the channels of at least one stage".into();
            return Err(Error::Argument { op: "resnet", argument: "widths", value: "[]".into(), detail });
        };
        let (kernel, stem) =
            if config.small_stem { (3, Conv2dOptions::new(1, 1)) } else { (7, Conv2dOptions::new(2, 3)) };
        let conv1 = Conv2d::fan_out(params, "conv1", [config.channels, first], kernel, stem)?;
        let bn1 = BatchNorm2d::new(params, "bn1", first)?;
        let mut blocks = Vec::new();
        let mut ins = first;
        for (stage, &outs) in config.widths.iter().enumerate() {
            for block in 0..config.blocks {
                let stride = if stage > 0 && block == 0 { 2 } else { 1 };
                let name = format!("layer{}.{block}", stage + 1);
                let last = if config.zero_init_residual { Init::Zeros } else { Init::Ones };
                blocks.push(ResidualBlock::scaled(params, &name, [ins, outs], stride, last)?);
                ins = outs;
            }
        }
        let fc = Linear::new(params, "fc", if config.blocks == 0 { first } else { last }, config.classes, true)?;
        Ok(Self { conv1, bn1, pools: !config.small_stem, blocks, fc })
    }
}

impl Module for ResNet {
    /// Logits `[N, classes]` of images `[N, C, H, W]`. The stem and every block are
    /// a checkpoint segment each.
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let recorder = x.recorder();
        let mut h = recorder.checkpoint(x.clone(), |x| {
            let h = self.bn1.forward(&self.conv1.forward(&x)?)?.relu()?;
            if self.pools { h.max_pool2d([3, 3], [2, 2], [1, 1]) } else { Ok(h) }
        })?;
        for block in &self.blocks {
            h = recorder.checkpoint(h, |h| block.forward(&h))?;
        }
        self.fc.forward(&h.mean(&[2, 3], false)?)
    }
    fn parameters(&self) -> Vec<Param> {
        let mut all = [self.conv1.parameters(), self.bn1.parameters()].concat();
        all.extend(self.blocks.iter().flat_map(Module::parameters));
        all.extend(self.fc.parameters());
        all
    }
    fn children_mut(&mut self) -> Vec<&mut dyn Module> {
        let mut all: Vec<&mut dyn Module> = vec![&mut self.conv1, &mut self.bn1];
        all.extend(self.blocks.iter_mut().map(|block| block as &mut dyn Module));
        all.push(&mut self.fc);
        all
    }
}
