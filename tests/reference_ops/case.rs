//! One case of the reference: its data, how it is recorded, what is wrong with
//! what came out. Shared by the native tests and the browsers' checks.

use std::collections::BTreeMap;

use remat::dtype::{DType, TensorType};
use remat::error::Result;
use remat::gpu::InputData;
use remat::graph::{Recorder, Tensor};
use safetensors::SafeTensors;
use serde_json::Value;

use super::table;

/// Ops whose values are built on transcendental functions of WGSL, which are
/// allowed rtol 1e-4 and atol 1e-5.
const TRANSCENDENTAL: &[&str] = &[
    "attention",
    "bce_with_logits",
    "cos",
    "cross_entropy",
    "elu",
    "erf",
    "exp",
    "expm1",
    "gelu",
    "gelu_tanh",
    "kl_div",
    "ln",
    "log1p",
    "log_softmax",
    "logsumexp",
    "mish",
    "pow",
    "powf",
    "rope",
    "sigmoid",
    "silu",
    "sin",
    "softmax",
    "softplus",
    "tanh",
];

/// Where in a graph a case's op stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// Between inputs and outputs.
    Alone,
    /// Between other ops, which leave every number as it is: times 2, times 0.5.
    Amid,
    /// The same in a segment.
    Segment,
}

/// Type and words of a run's inputs, by name.
pub(crate) type Data = BTreeMap<String, (DType, Vec<u32>)>;

/// A case of `ops.json` with its tensors.
pub(crate) struct Case<'a> {
    pub(crate) id: &'a str,
    op: &'a str,
    about: &'a Value,
    file: SafeTensors<'a>,
    record: table::Record,
}

impl<'a> Case<'a> {
    /// The case that `ops.json` describes, with the tensors of `ops.safetensors`;
    /// none if the table has no such op.
    pub(crate) fn new(about: &'a Value, tensors: &'a [u8]) -> Option<Self> {
        let (id, op) = (about["id"].as_str().unwrap(), about["op"].as_str().unwrap());
        let (_, record) = table::TABLE.iter().find(|(name, _)| *name == op)?;
        Some(Self { id, op, about, file: SafeTensors::deserialize(tensors).unwrap(), record: *record })
    }

    fn count(&self, key: &str) -> usize {
        usize::try_from(self.about[key].as_u64().unwrap()).unwrap()
    }

    fn has_gradient(&self) -> bool {
        self.about["grad"].as_bool().unwrap()
    }

    fn words(&self, name: &str) -> Option<Vec<u32>> {
        self.file.tensor(&format!("{}/{name}", self.id)).ok().map(|view| bytemuck::pod_collect_to_vec(view.data()))
    }

    fn ty(&self, name: &str) -> TensorType {
        let view = self.file.tensor(&format!("{}/{name}", self.id)).unwrap();
        let dtype = if view.dtype() == safetensors::Dtype::F32 { DType::F32 } else { DType::I32 };
        TensorType::new(dtype, view.shape())
    }

    /// The case's inputs `in0..` and, for its gradient, those of its outputs `gout0..`.
    pub(crate) fn data(&self) -> Data {
        let mut data = BTreeMap::new();
        for i in 0..self.count("inputs") {
            let name = format!("in{i}");
            let (dtype, words) = (self.ty(&name).dtype, self.words(&name).unwrap());
            data.insert(name, (dtype, words));
        }
        if self.has_gradient() {
            for o in 0..self.count("outputs") {
                data.extend(self.words(&format!("gout{o}")).map(|words| (format!("gout{o}"), (DType::F32, words))));
            }
        }
        data
    }

    /// Records the op at that place and its gradients; its results in the order of [`Self::names`].
    pub(crate) fn record(&self, g: &Recorder, place: Place) -> Result<Vec<Tensor>> {
        let x: Vec<Tensor> = (0..self.count("inputs"))
            .map(|i| g.typed_input(&format!("in{i}"), self.ty(&format!("in{i}"))))
            .collect::<Result<_>>()?;
        let attrs = &self.about["attrs"];
        let amid = |x: &[Tensor]| -> Result<Vec<Tensor>> {
            let y = (self.record)(g, &x.iter().map(there_and_back).collect::<Result<Vec<_>>>()?, attrs)?;
            y.iter().map(there_and_back).collect()
        };
        let mut results = match place {
            Place::Alone => (self.record)(g, &x, attrs)?,
            Place::Amid => amid(&x)?,
            Place::Segment => g.checkpoint(x.clone(), |x| amid(&x))?,
        };
        assert_eq!(results.len(), self.count("outputs"), "{}", self.id);
        let mut loss = g.zeros([])?;
        for (o, y) in results.iter().enumerate() {
            let expected = self.ty(&format!("out{o}"));
            // The file has no scalars: they are [1] there.
            let same = *y.shape() == expected.shape || (y.rank() == 0 && expected.shape.dims() == [1]);
            assert!(same, "{}/out{o} is {}, expected {}", self.id, y.shape(), expected.shape);
            if self.has_gradient() && self.words(&format!("gout{o}")).is_some() {
                let gout = g.input::<f32>(&format!("gout{o}"), y.shape())?;
                loss = loss.add(&y.mul(&gout)?.sum_all()?)?;
            }
        }
        if self.has_gradient() {
            results.extend(g.gradients(&loss, &self.wanted().map(|i| &x[i]).collect::<Vec<_>>())?);
        }
        Ok(results)
    }

    /// The inputs whose gradient the file has.
    fn wanted(&self) -> impl Iterator<Item = usize> {
        (0..self.count("inputs")).filter(|i| self.words(&format!("gin{i}")).is_some())
    }

    /// What [`Self::record`] returns: `out0..`, then `gin..`.
    pub(crate) fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = (0..self.count("outputs")).map(|o| format!("out{o}")).collect();
        if self.has_gradient() {
            names.extend(self.wanted().map(|i| format!("gin{i}")));
        }
        names
    }

    /// What is wrong with the words of the results, if anything is.
    pub(crate) fn differences(&self, found: &[Vec<u32>]) -> Vec<String> {
        let names = self.names();
        names.iter().zip(found).filter_map(|(name, found)| self.difference(name, found)).collect()
    }

    fn difference(&self, name: &str, found: &[u32]) -> Option<String> {
        let what = format!("{}/{name}", self.id);
        let expected = self.words(name).unwrap();
        if found.len() != expected.len() {
            return Some(format!("{what} has {} elements, not {}", found.len(), expected.len()));
        }
        if self.ty(name).dtype != DType::F32 {
            return (found != expected).then(|| format!("{what}: {found:?}, expected {expected:?}"));
        }
        let (rtol, least) = if TRANSCENDENTAL.contains(&self.op) { (1e-4, 1e-5) } else { (2e-5, 2e-6) };
        let floats = |words: &[u32]| words.iter().map(|w| f64::from(f32::from_bits(*w))).collect::<Vec<_>>();
        let (found, expected) = (floats(found), floats(&expected));
        let largest = expected.iter().fold(0.0_f64, |m, v| m.max(v.abs()));
        let atol = (2e-6 * largest).max(least);
        let wrong = found.iter().zip(&expected).position(|(f, e)| {
            let close = (f - e).abs() <= atol + rtol * e.abs();
            !(close || f == e || (f.is_nan() && e.is_nan()))
        })?;
        Some(format!("{what}[{wrong}]: {}, expected {}", found[wrong], expected[wrong]))
    }
}

/// An input of that type.
pub(crate) fn input_data(dtype: DType, words: &[u32]) -> InputData<'static> {
    if dtype == DType::F32 {
        words.iter().map(|&w| f32::from_bits(w)).collect::<Vec<_>>().into()
    } else {
        words.iter().map(|w| w.cast_signed()).collect::<Vec<_>>().into()
    }
}

/// The same numbers by way of two more ops.
fn there_and_back(x: &Tensor) -> Result<Tensor> {
    if x.dtype() == DType::F32 { x.mul_scalar(2.0_f32)?.mul_scalar(0.5_f32) } else { Ok(x.clone()) }
}
