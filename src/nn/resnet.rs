//! Residual networks (He et al. 2015), with torchvision's names of parameters.
//! First values are torchvision's: convolutions normal of variance 2 / fan out, norms
//! 1 and 0, the last layer uniform as [`Linear`]'s.

use super::{BatchNorm2d, Conv2d, Linear, Module, dotted};
use crate::error::{Error, Result};
use crate::graph::Tensor;
use crate::ops::Conv2dOptions;
use crate::params::{Init, Param, Params};

/// Convolutions with batch norm, and what went in added:
/// `relu(bn_n(conv_n(.. relu(bn1(conv1(x))))) + shortcut(x))`. The shortcut is the
/// identity, or a 1x1 convolution with batch norm where stride or channels change.
#[derive(Debug, Clone)]
pub struct ResidualBlock {
    /// `conv1` and `bn1`, `conv2` and `bn2`, ..
    pub layers: Vec<(Conv2d, BatchNorm2d)>,
    /// The shortcut, if it is not the identity.
    pub downsample: Option<(Conv2d, BatchNorm2d)>,
}

impl ResidualBlock {
    /// Two 3x3 convolutions from `channels[0]` to `channels[1]`, the first with the
    /// stride (torchvision's `BasicBlock`).
    ///
    /// # Errors
    /// [`Error::Argument`] for a stride of 0; [`Error::StateConflict`] if the
    /// names are taken by state of another type.
    pub fn new(params: &Params, name: &str, channels: [usize; 2], stride: usize) -> Result<Self> {
        Self::basic(params, name, channels, stride, Init::Ones)
    }

    /// 1x1 from `channels[0]` to `channels[1]`, 3x3 with the stride, 1x1 to four times
    /// as many channels (torchvision's `Bottleneck`).
    ///
    /// # Errors
    /// As [`ResidualBlock::new`]; [`Error::Argument`] for more than 2^29 channels.
    pub fn bottleneck(params: &Params, name: &str, channels: [usize; 2], stride: usize) -> Result<Self> {
        Self::narrowed(params, name, channels, stride, Init::Ones)
    }

    fn basic(params: &Params, name: &str, [ins, outs]: [usize; 2], stride: usize, last: Init) -> Result<Self> {
        Self::of(params, name, ins, stride, &[(outs, 3, stride), (outs, 3, 1)], last)
    }

    fn narrowed(params: &Params, name: &str, [ins, width]: [usize; 2], stride: usize, last: Init) -> Result<Self> {
        let outs = width.checked_mul(4).filter(|outs| *outs <= 1 << 31).ok_or_else(|| Error::Argument {
            op: "residual_block",
            argument: "channels",
            value: width.to_string(),
            detail: "four times as many channels are too many".into(),
        })?;
        Self::of(params, name, ins, stride, &[(width, 1, 1), (width, 3, stride), (outs, 1, 1)], last)
    }

    /// Layers of channels, kernel and stride; `last` are the first values of the last
    /// norm's weight.
    fn of(
        params: &Params,
        name: &str,
        ins: usize,
        stride: usize,
        sizes: &[(usize, usize, usize)],
        last: Init,
    ) -> Result<Self> {
        if stride == 0 {
            let detail = "expected a stride of at least 1".into();
            return Err(Error::Argument { op: "residual_block", argument: "stride", value: "0".into(), detail });
        }
        let layer = |[conv, norm]: [String; 2], channels: [usize; 2], kernel: usize, stride: usize, scale: Init| {
            let options = Conv2dOptions::new(stride, kernel / 2);
            let conv = Conv2d::fan_out(params, &dotted(name, &conv), channels, kernel, options)?;
            Ok((conv, BatchNorm2d::scaled(params, &dotted(name, &norm), channels[1], scale)?))
        };
        let (mut layers, mut channels) = (Vec::new(), ins);
        for (index, &(outs, kernel, stride)) in sizes.iter().enumerate() {
            let names = ["conv", "bn"].map(|part| format!("{part}{}", index + 1));
            let scale = if index + 1 == sizes.len() { last.clone() } else { Init::Ones };
            layers.push(layer(names, [channels, outs], kernel, stride, scale)?);
            channels = outs;
        }
        let names = ["downsample.0", "downsample.1"].map(str::to_owned);
        let downsample = (stride != 1 || ins != channels)
            .then(|| layer(names, [ins, channels], 1, stride, Init::Ones))
            .transpose()?;
        Ok(Self { layers, downsample })
    }

    fn pairs(&self) -> impl Iterator<Item = &(Conv2d, BatchNorm2d)> {
        self.layers.iter().chain(&self.downsample)
    }
}

impl Module for ResidualBlock {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let mut h = x.clone();
        for (index, (conv, norm)) in self.layers.iter().enumerate() {
            let before = if index == 0 { h } else { h.relu()? };
            h = norm.forward(&conv.forward(&before)?)?;
        }
        let shortcut = match &self.downsample {
            Some((conv, norm)) => norm.forward(&conv.forward(x)?)?,
            None => x.clone(),
        };
        h.add(&shortcut)?.relu()
    }
    fn parameters(&self) -> Vec<Param> {
        self.pairs().flat_map(|(conv, norm)| [conv.parameters(), norm.parameters()].concat()).collect()
    }
    fn children_mut(&mut self) -> Vec<&mut dyn Module> {
        let pairs = self.layers.iter_mut().chain(&mut self.downsample);
        pairs.flat_map(|(conv, norm)| [conv as &mut dyn Module, norm]).collect()
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
    /// Number of blocks of each stage; a stage beyond the list has none.
    pub blocks: Vec<usize>,
    /// Blocks are [`ResidualBlock::bottleneck`]s, and stages four times as wide as `widths`.
    pub bottleneck: bool,
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
            blocks: vec![2; 4],
            bottleneck: false,
            zero_init_residual: false,
        }
    }

    /// ResNet-50: four stages of 3, 4, 6 and 3 bottlenecks, of 256 to 2048 channels.
    #[must_use]
    pub fn resnet50(channels: usize, classes: usize) -> Self {
        Self { blocks: vec![3, 4, 6, 3], bottleneck: true, ..Self::resnet18(channels, classes) }
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
        let Some(&first) = config.widths.first() else {
            let detail = "expected the channels of at least one stage".into();
            return Err(Error::Argument { op: "resnet", argument: "widths", value: "[]".into(), detail });
        };
        let (kernel, stem) =
            if config.small_stem { (3, Conv2dOptions::new(1, 1)) } else { (7, Conv2dOptions::new(2, 3)) };
        let conv1 = Conv2d::fan_out(params, "conv1", [config.channels, first], kernel, stem)?;
        let bn1 = BatchNorm2d::new(params, "bn1", first)?;
        let mut blocks = Vec::new();
        let mut ins = first;
        for (stage, (&width, &count)) in config.widths.iter().zip(&config.blocks).enumerate() {
            for block in 0..count {
                let stride = if stage > 0 && block == 0 { 2 } else { 1 };
                let name = format!("layer{}.{block}", stage + 1);
                let last = if config.zero_init_residual { Init::Zeros } else { Init::Ones };
                let make = if config.bottleneck { ResidualBlock::narrowed } else { ResidualBlock::basic };
                blocks.push(make(params, &name, [ins, width], stride, last)?);
                ins = if config.bottleneck { 4 * width } else { width };
            }
        }
        let fc = Linear::new(params, "fc", ins, config.classes, true)?;
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
