//! The recorder: what a step's closure is given.

use std::collections::{HashMap, HashSet};
use std::sync::Mutex;

use super::{Graph, Node, NodeId, Source, Tensor, TensorTree, Value, ValueId};
use crate::dtype::{DType, Element, Shape, TensorType};
use crate::error::{Error, Result};
use crate::fuse::program::{Category, InputInfo, Mark, Phase, Segment, SegmentId, StateInfo};
use crate::ops::Op;
use crate::params::{Param, Params};
use crate::shared::{Shared, lock};

/// Records operations into a [`Graph`]. A cheap handle: clones record into the
/// same recording.
#[derive(Debug, Clone)]
pub struct Recorder {
    inner: Shared<Mutex<Recording>>,
}

#[derive(Debug, Default)]
struct Recording {
    graph: Graph,
    params: Option<Params>,
    /// Index and value of each input and each state, by name.
    inputs: HashMap<String, (usize, ValueId)>,
    states: HashMap<String, (usize, ValueId)>,
    /// Constants asked for by [`Recorder::shared_constant`].
    shared: HashMap<String, (ValueId, TensorType)>,
    /// States that a node writes.
    written: HashSet<u32>,
    segment: Option<SegmentId>,
    phase: Option<Phase>,
    autocast: Option<DType>,
    /// The cast of each parameter in each segment.
    casts: HashMap<(ValueId, Option<SegmentId>, DType), ValueId>,
    /// Random operations recorded so far: each draws from a stream of its own.
    random_streams: u32,
    closed: bool,
}

/// Where new nodes are recorded; restored by [`Recorder::set_scope`].
#[derive(Debug, Clone, Copy)]
pub(crate) struct Scope {
    pub(crate) segment: Option<SegmentId>,
    pub(crate) phase: Phase,
}

impl Default for Recorder {
    fn default() -> Self {
        Self::new()
    }
}

impl Recorder {
    /// An empty recording.
    #[must_use]
    pub fn new() -> Self {
        Self { inner: Shared::new(Mutex::new(Recording::default())) }
    }

    /// A named input of every run, of element type `T`.
    ///
    /// # Errors
    /// [`Error::Argument`] if the name was used for another type or shape.
    pub fn input<T: Element>(&self, name: &str, shape: impl Into<Shape>) -> Result<Tensor> {
        self.typed_input(name, TensorType::new(T::DTYPE, shape))
    }

    /// A named input of every run. Asking twice for one name gives one input.
    ///
    /// # Errors
    /// [`Error::Argument`] if the name was used for another type, or the type
    /// is `bool`, which has no host representation (compare an integer input).
    pub fn typed_input(&self, name: &str, ty: TensorType) -> Result<Tensor> {
        if ty.dtype == DType::Bool {
            return Err(Error::DType { op: "input", operand: 0, found: DType::Bool, expected: "f32, f16, i32 or u32" });
        }
        let mut rec = self.open("input")?;
        if let Some(&(index, id)) = rec.inputs.get(name) {
            let existing = &rec.graph.inputs[index].ty;
            if *existing != ty {
                return Err(Error::Argument {
                    op: "input",
                    argument: "name",
                    value: format!("{name:?}"),
                    detail: format!("it is already an input of type {existing}, and was asked for as {ty}"),
                });
            }
            drop(rec);
            return Ok(Tensor::new(self.clone(), id, ty));
        }
        let index = rec.graph.inputs.len() as u32;
        rec.graph.inputs.push(InputInfo { name: name.to_owned(), ty: ty.clone() });
        let id = rec.graph.push_value(ty.clone(), Source::Input(index));
        rec.inputs.insert(name.to_owned(), (index as usize, id));
        drop(rec);
        Ok(Tensor::new(self.clone(), id, ty))
    }

    /// A scalar `f32` input of every run, such as a learning rate.
    ///
    /// # Errors
    /// As [`Recorder::input`].
    pub fn scalar_input(&self, name: &str) -> Result<Tensor> {
        self.input::<f32>(name, [])
    }

    /// A constant, copied now.
    ///
    /// # Errors
    /// [`Error::Data`] if `data` has not as many elements as `shape`.
    pub fn constant<T: Element>(&self, data: &[T], shape: impl Into<Shape>) -> Result<Tensor> {
        let ty = TensorType::new(T::DTYPE, shape);
        if data.len() as u64 != ty.shape.element_count() {
            return Err(Error::Data {
                op: "constant",
                name: "data".into(),
                dtype: ty.dtype,
                shape: ty.shape,
                found: format!("{} elements", data.len()),
            });
        }
        let mut rec = self.open("constant")?;
        let index = rec.graph.constants.len() as u32;
        let bytes: &[u8] = bytemuck::cast_slice(data);
        rec.graph.constants.push(bytes.into());
        let id = rec.graph.push_value(ty.clone(), Source::Constant(index));
        drop(rec);
        Ok(Tensor::new(self.clone(), id, ty))
    }

    /// The constant of this key; made now if it was not asked for before.
    pub(crate) fn shared_constant<T: Element>(
        &self,
        key: String,
        data: impl FnOnce() -> Vec<T>,
        shape: impl Into<Shape>,
    ) -> Result<Tensor> {
        let made = self.open("constant")?.shared.get(&key).cloned();
        if let Some((id, ty)) = made {
            return Ok(Tensor::new(self.clone(), id, ty));
        }
        let tensor = self.constant(&data(), shape)?;
        self.open("constant")?.shared.insert(key, (tensor.id(), tensor.ty().clone()));
        Ok(tensor)
    }

    /// Reads state. Every read in a recording, wherever it stands, sees the
    /// value before the run; writes commit once per run. Inside
    /// [`Recorder::autocast`] a parameter comes in the data type named there.
    ///
    /// # Errors
    /// [`Error::Argument`] if this recording uses another [`Params`] already;
    /// [`Error::StateConflict`] if the name stood for state of another type before.
    pub fn param(&self, param: &Param) -> Result<Tensor> {
        let stored = self.state(param)?;
        let (dtype, segment) = {
            let rec = lock(&self.inner);
            (rec.autocast, rec.segment)
        };
        let wanted = dtype.filter(|_| param.category() == Category::Parameter && stored.dtype().is_float());
        let Some(dtype) = wanted.filter(|dtype| *dtype != stored.dtype()) else { return Ok(stored) };
        let key = (stored.id(), segment, dtype);
        let known = lock(&self.inner).casts.get(&key).copied();
        if let Some(id) = known {
            return Ok(Tensor::new(self.clone(), id, TensorType::new(dtype, stored.shape())));
        }
        let cast = stored.to_dtype(dtype)?;
        lock(&self.inner).casts.insert(key, cast.id());
        Ok(cast)
    }

    /// Records `body` so that it computes in `dtype` with parameters that stay as
    /// they are: [`Recorder::param`] gives a parameter (not other state) converted
    /// to `dtype`, the embedding layer its rows, and other layers convert their input. All that follows from them is
    /// `dtype`, except for what is `f32` by its rule, such as cross-entropy. The
    /// gradients of parameters have the parameters' own type.
    ///
    /// A conversion is recorded once in each segment that reads the parameter, so
    /// a replay repeats it. Call optimisers outside. See `docs/precision.md`.
    ///
    /// ```
    /// # use remat::{Result, dtype::DType, graph::{Recorder, Tensor}, params::{Init, Params}};
    /// # fn example(g: &Recorder, params: &Params) -> Result<Tensor> {
    /// let weight = params.create("weight", [4, 4], Init::Ones)?;
    /// let y = g.autocast(DType::F16, || {
    ///     let x = g.input::<f32>("x", [2, 4])?.to_f16()?;
    ///     x.matmul_t(&g.param(&weight)?)
    /// })?;
    /// assert_eq!(y.dtype(), DType::F16);
    /// # Ok(y) }
    /// # example(&Recorder::new(), &Params::offline(0)).unwrap();
    /// ```
    ///
    /// # Errors
    /// [`Error::DType`] unless `dtype` is a float type; what `body` returns.
    pub fn autocast<T>(&self, dtype: DType, body: impl FnOnce() -> Result<T>) -> Result<T> {
        if !dtype.is_float() {
            return Err(Error::DType { op: "autocast", operand: 0, found: dtype, expected: "f16 or f32" });
        }
        let outer = self.open("autocast")?.autocast.replace(dtype);
        let result = body();
        lock(&self.inner).autocast = outer;
        result
    }

    /// The data type of the innermost [`Recorder::autocast`] around what is recorded now.
    #[must_use]
    pub fn autocast_dtype(&self) -> Option<DType> {
        lock(&self.inner).autocast
    }

    /// Reads state as [`Recorder::param`] does, but always in its own data type.
    ///
    /// # Errors
    /// As [`Recorder::param`].
    pub fn state(&self, param: &Param) -> Result<Tensor> {
        let mut rec = self.open("param")?;
        if rec.params.as_ref().is_some_and(|p| !p.is_same(param.params())) {
            return Err(Error::Argument {
                op: "param",
                argument: "param",
                value: format!("{:?}", param.name()),
                detail: "this recording already uses state of another Params; keep one step's state in one".into(),
            });
        }
        rec.params.get_or_insert_with(|| param.params().clone());
        let ty = param.ty().clone();
        let id = match rec.states.get(param.name()) {
            Some(&(index, id)) => {
                let existing = rec.graph.states[index].ty.clone();
                if existing != ty {
                    return Err(Error::StateConflict {
                        name: param.name().to_owned(),
                        existing_dtype: existing.dtype,
                        existing_shape: existing.shape,
                        dtype: ty.dtype,
                        shape: ty.shape,
                    });
                }
                id
            }
            None => {
                let index = rec.graph.states.len();
                rec.graph.states.push(StateInfo {
                    name: param.name().to_owned(),
                    ty: ty.clone(),
                    category: param.category(),
                });
                let id = rec.graph.push_value(ty.clone(), Source::State(index as u32));
                rec.states.insert(param.name().to_owned(), (index, id));
                id
            }
        };
        drop(rec);
        Ok(Tensor::new(self.clone(), id, ty))
    }

    /// Records `body` as a checkpoint segment: policies may drop what it makes
    /// inside and replay it during backward. `inputs` is what the closure is
    /// given; tensors that it captures count as well.
    ///
    /// # Errors
    /// What `body` returns, and [`Error::OtherRecording`] for inputs of another recording.
    pub fn checkpoint<I: TensorTree, O: TensorTree>(&self, inputs: I, body: impl FnOnce(I) -> Result<O>) -> Result<O> {
        let count = lock(&self.inner).graph.segments.len();
        self.checkpoint_named(&format!("segment{count}"), inputs, body)
    }

    /// [`Recorder::checkpoint`] with a name for reports.
    ///
    /// # Errors
    /// As [`Recorder::checkpoint`].
    pub fn checkpoint_named<I: TensorTree, O: TensorTree>(
        &self,
        name: &str,
        inputs: I,
        body: impl FnOnce(I) -> Result<O>,
    ) -> Result<O> {
        self.segment(name, None, inputs, body)
    }

    /// [`Recorder::checkpoint_named`] with a wish that every policy honours:
    /// [`Mark::Save`] keeps whatever backward needs of the segment's values, even
    /// where the policy drops segments; [`Mark::Recompute`] drops and replays what
    /// only the segment itself reads, even under policy none. A mark on a value or
    /// on a segment inside outranks that of the segment around.
    ///
    /// # Errors
    /// As [`Recorder::checkpoint`].
    pub fn checkpoint_marked<I: TensorTree, O: TensorTree>(
        &self,
        name: &str,
        mark: Mark,
        inputs: I,
        body: impl FnOnce(I) -> Result<O>,
    ) -> Result<O> {
        self.segment(name, Some(mark), inputs, body)
    }

    fn segment<I: TensorTree, O: TensorTree>(
        &self,
        name: &str,
        mark: Option<Mark>,
        inputs: I,
        body: impl FnOnce(I) -> Result<O>,
    ) -> Result<O> {
        for (operand, tensor) in inputs.tensors().iter().enumerate() {
            if !self.is_same(tensor.recorder()) {
                return Err(Error::OtherRecording { op: "checkpoint", operand });
            }
        }
        let outer = self.scope();
        let id = {
            let mut rec = self.open("checkpoint")?;
            let id = SegmentId(rec.graph.segments.len() as u32);
            rec.graph.segments.push(Segment { name: name.to_owned(), parent: outer.segment, mark });
            id
        };
        self.set_scope(Scope { segment: Some(id), ..outer });
        let result = body(inputs);
        self.set_scope(outer);
        result
    }

    /// Gradients of the scalar `loss` with respect to each of `wrt`, as
    /// recorded values. A tensor that the loss does not depend on gets zeros.
    ///
    /// # Errors
    /// [`Error::Shape`] if `loss` is not a scalar, [`Error::NoGradient`] if an
    /// op between has no gradient, [`Error::OtherRecording`] for tensors of another recording.
    pub fn gradients(&self, loss: &Tensor, wrt: &[&Tensor]) -> Result<Vec<Tensor>> {
        if !self.is_same(loss.recorder()) {
            return Err(Error::OtherRecording { op: "gradients", operand: 0 });
        }
        {
            let mut rec = self.open("gradients")?;
            let first = NodeId(rec.graph.nodes.len() as u32);
            rec.graph.sweeps.push(first);
        }
        crate::grad::gradients(loss, wrt)
    }

    /// The seed of random operations: the `u32` input `"seed"` of every run.
    ///
    /// # Errors
    /// As [`Recorder::input`].
    pub fn seed(&self) -> Result<Tensor> {
        self.input::<u32>("seed", [])
    }

    /// The number of the step, counted from 0: the `u32` input `"step"` of every run.
    ///
    /// # Errors
    /// As [`Recorder::input`].
    pub fn step_count(&self) -> Result<Tensor> {
        self.input::<u32>("step", [])
    }

    /// A number that no other random operation of this recording has.
    pub(crate) fn next_random_stream(&self) -> u32 {
        let mut rec = lock(&self.inner);
        rec.random_streams += 1;
        rec.random_streams - 1
    }

    /// True if both record into the same recording.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        Shared::ptr_eq(&self.inner, &other.inner)
    }

    /// Records `op`; the road that every operation takes.
    ///
    /// # Errors
    /// What the op's shape rule says; [`Error::OtherRecording`] for mixed recordings;
    /// [`Error::Argument`] if it overwrites what is no state, or a state that this
    /// recording writes already.
    pub fn record(&self, op: Shared<dyn Op>, inputs: &[&Tensor]) -> Result<Vec<Tensor>> {
        let name = op.name();
        for (operand, tensor) in inputs.iter().enumerate() {
            if !self.is_same(tensor.recorder()) {
                return Err(Error::OtherRecording { op: name, operand });
            }
        }
        let types: Vec<&TensorType> = inputs.iter().map(|t| t.ty()).collect();
        let output_types = op.output_types(&types)?;
        let mut rec = self.open(name)?;
        let mut writes = Vec::new();
        for &write in op.state_writes() {
            let source = inputs.get(write).map(|t| rec.graph.value(t.id()).source);
            let Some(Source::State(state)) = source else {
                return Err(Error::Argument {
                    op: name,
                    argument: "operand",
                    value: write.to_string(),
                    detail: "it is overwritten, so it must be state, as Recorder::param gives it".into(),
                });
            };
            if rec.written.contains(&state) {
                let value = rec.graph.states[state as usize].name.clone();
                let detail = "this recording writes it already, and a state is written once per run".into();
                return Err(Error::Argument { op: name, argument: "state", value, detail });
            }
            writes.push(state);
        }
        rec.written.extend(writes);
        let node = NodeId(rec.graph.nodes.len() as u32);
        let mut outputs = Vec::with_capacity(output_types.len());
        let mut tensors = Vec::with_capacity(output_types.len());
        for (output, ty) in output_types.into_iter().enumerate() {
            let id = rec.graph.push_value(ty.clone(), Source::Node { node, output: output as u32 });
            outputs.push(id);
            tensors.push(Tensor::new(self.clone(), id, ty));
        }
        let phase = if op.state_writes().is_empty() { rec.phase.unwrap_or(Phase::Forward) } else { Phase::Update };
        let segment = if phase == Phase::Update { None } else { rec.segment };
        let inputs = inputs.iter().map(|t| t.id()).collect();
        rec.graph.nodes.push(Node { op, inputs, outputs, segment, phase });
        drop(rec);
        Ok(tensors)
    }

    pub(crate) fn set_name(&self, id: ValueId, name: &str) {
        // The values of a recording that was planned are gone.
        if let Some(value) = lock(&self.inner).graph.values.get_mut(id.index()) {
            value.name = Some(name.to_owned());
        }
    }

    pub(crate) fn set_mark(&self, id: ValueId, mark: Mark) {
        if let Some(value) = lock(&self.inner).graph.values.get_mut(id.index()) {
            value.mark = Some(mark);
        }
    }

    /// The name given to a tensor by [`Tensor::named`].
    pub(crate) fn name_of(&self, tensor: &Tensor) -> Option<String> {
        lock(&self.inner).graph.values.get(tensor.id().index()).and_then(|v| v.name.clone())
    }

    pub(crate) fn mark_parameter_gradient(&self, id: ValueId) {
        lock(&self.inner).graph.values[id.index()].is_parameter_gradient = true;
    }

    pub(crate) fn scope(&self) -> Scope {
        let rec = lock(&self.inner);
        Scope { segment: rec.segment, phase: rec.phase.unwrap_or(Phase::Forward) }
    }

    pub(crate) fn set_scope(&self, scope: Scope) {
        let mut rec = lock(&self.inner);
        rec.segment = scope.segment;
        rec.phase = Some(scope.phase);
    }

    /// Looks at the recording while nothing is added to it.
    pub(crate) fn with_graph<R>(&self, look: impl FnOnce(&Graph) -> R) -> R {
        look(&lock(&self.inner).graph)
    }

    /// The state that this recording uses, once it used one.
    #[must_use]
    pub fn params(&self) -> Option<Params> {
        lock(&self.inner).params.clone()
    }

    /// Ends the recording with what a run hands back.
    ///
    /// # Errors
    /// [`Error::OtherRecording`] if an output is of another recording.
    pub fn finish(&self, outputs: &[(String, &Tensor)]) -> Result<Graph> {
        for (operand, (_, tensor)) in outputs.iter().enumerate() {
            if !self.is_same(tensor.recorder()) {
                return Err(Error::OtherRecording { op: "step", operand });
            }
        }
        let mut rec = self.open("step")?;
        rec.closed = true;
        rec.graph.outputs = outputs.iter().map(|(name, t)| (name.clone(), t.id())).collect();
        Ok(std::mem::take(&mut rec.graph))
    }

    fn open(&self, op: &'static str) -> Result<std::sync::MutexGuard<'_, Recording>> {
        let rec = lock(&self.inner);
        if rec.closed { Err(Error::RecordingClosed { op }) } else { Ok(rec) }
    }
}

impl Graph {
    fn push_value(&mut self, ty: TensorType, source: Source) -> ValueId {
        let id = ValueId(self.values.len() as u32);
        self.values.push(Value { ty, source, name: None, mark: None, is_parameter_gradient: false });
        id
    }
}
