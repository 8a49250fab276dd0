//! The one error type of the library.
//!
//! Every variant says which operation refused, what it was given and what to
//! do about it. An error never leaves the engine unusable, except
//! [`Error::DeviceLost`], which stays until a new device is made.

use crate::dtype::{DType, Shape};

/// The result of everything in this library that can fail.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What went wrong, where, and what to do.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Operand shapes do not fit the operation.
    #[error("{op}: shapes {} do not fit: {detail}", list(.shapes))]
    Shape {
        /// The operation.
        op: &'static str,
        /// The operands' shapes, in order.
        shapes: Vec<Shape>,
        /// The rule that was broken and what would satisfy it.
        detail: String,
    },
    /// An operand has a data type that the operation does not take.
    #[error("{op}: operand {operand} is {found}, but the operation takes {expected}; cast it first")]
    DType {
        /// The operation.
        op: &'static str,
        /// Which operand, counted from 0.
        operand: usize,
        /// Its data type.
        found: DType,
        /// What would be accepted.
        expected: &'static str,
    },
    /// An argument that is not a tensor is out of range.
    #[error("{op}: {argument} = {value} is not valid: {detail}")]
    Argument {
        /// The operation or function.
        op: &'static str,
        /// The argument's name.
        argument: &'static str,
        /// Its value, printed.
        value: String,
        /// What is allowed.
        detail: String,
    },
    /// A tensor of one recording was used in another.
    #[error("{op}: operand {operand} belongs to another recording; pass its data in as an input instead")]
    OtherRecording {
        /// The operation.
        op: &'static str,
        /// Which operand, counted from 0.
        operand: usize,
    },
    /// A tensor was used after its recording had been planned.
    #[error("{op}: this recording was already planned; record a new step to add to it")]
    RecordingClosed {
        /// The operation.
        op: &'static str,
    },
    /// The operation has no gradient, or its gradient has none of its own.
    #[error("{op}: no gradient is defined for it ({detail})")]
    NoGradient {
        /// The operation.
        op: &'static str,
        /// Why, and what to use instead.
        detail: String,
    },
    /// A gradient that was checked differs from finite differences.
    #[error(
        "{op}: the recorded gradient of element {element} of input {input} is {recorded}, but differences give {difference}"
    )]
    Gradient {
        /// The name of what was checked.
        op: String,
        /// Which input, counted from 0.
        input: usize,
        /// Which of its elements, row-major.
        element: usize,
        /// The gradient as recorded.
        recorded: f64,
        /// The difference quotient.
        difference: f64,
    },
    /// A run was given an input that the recording does not have.
    #[error("run: there is no input {name:?}; this step has the inputs {}", known.join(", "))]
    UnknownInput {
        /// The name that was given.
        name: String,
        /// Every input of the step.
        known: Vec<String>,
    },
    /// A run was not given an input that the recording has.
    #[error("run: the input {name:?} ({dtype} {shape}) was not given")]
    MissingInput {
        /// Its name.
        name: String,
        /// Its data type.
        dtype: DType,
        /// Its shape.
        shape: Shape,
    },
    /// Data handed over has another type or length than recorded.
    #[error("{op}: {name:?} is {dtype} {shape}, but was given {found}")]
    Data {
        /// The operation: `run`, `write`, `load`, ...
        op: &'static str,
        /// The input's or the state's name.
        name: String,
        /// The recorded data type.
        dtype: DType,
        /// The recorded shape.
        shape: Shape,
        /// What was given, in words.
        found: String,
    },
    /// State by this name does not exist.
    #[error("{op}: there is no state named {name:?}{}", hint(.similar))]
    UnknownState {
        /// The operation.
        op: &'static str,
        /// The name asked for.
        name: String,
        /// Names that look like it.
        similar: Vec<String>,
    },
    /// State by this name exists already with another type.
    #[error(
        "state {name:?} exists as {existing_dtype} {existing_shape} and was asked for as {dtype} {shape}; use another name"
    )]
    StateConflict {
        /// The name.
        name: String,
        /// Data type that it has.
        existing_dtype: DType,
        /// Shape that it has.
        existing_shape: Shape,
        /// Data type asked for.
        dtype: DType,
        /// Shape asked for.
        shape: Shape,
    },
    /// One value is larger than the device can bind or hold.
    #[error("{what} takes {size_bytes} bytes, above the limit {limit} = {limit_bytes} bytes of {adapter}; split it")]
    Limit {
        /// The value or pass, by name.
        what: String,
        /// What it needs.
        size_bytes: u64,
        /// The limit's name, as WebGPU calls it.
        limit: &'static str,
        /// The limit.
        limit_bytes: u64,
        /// The adapter or profile that has this limit.
        adapter: String,
    },
    /// A policy cannot be applied to this recording.
    #[error("policy {policy}: {detail}")]
    Policy {
        /// The policy, printed.
        policy: String,
        /// Why, and what to do.
        detail: String,
    },
    /// The budget is below the least that any plan of this step needs.
    #[error(
        "a budget of {budget_bytes} bytes cannot be kept: the least budget for this step is {least_budget_bytes} bytes"
    )]
    BudgetTooSmall {
        /// What was asked for, in bytes.
        budget_bytes: u64,
        /// The least that works, in bytes.
        least_budget_bytes: u64,
    },
    /// A plan broke one of the rules that [`crate::plan::check()`] proves.
    #[error("the plan is wrong at dispatch {dispatch}: {detail}")]
    PlanCheck {
        /// Index of the dispatch, or the number of dispatches for a fault of the whole.
        dispatch: usize,
        /// The rule and the values concerned.
        detail: String,
    },
    /// A replayed pass made other bits than at first: its kernel depends on more
    /// than its operands, or the plan gave it other ones.
    #[error(
        "dispatch {dispatch}: {pass} made other bits when it was replayed: {words} words of {value} differ, \
         the first at {first_word}"
    )]
    ReplayDiffers {
        /// Index of the replay in the plan's dispatches.
        dispatch: usize,
        /// The pass.
        pass: String,
        /// The value that differs.
        value: String,
        /// How many of its 32-bit words do.
        words: u64,
        /// Index of the first of them.
        first_word: u64,
    },
    /// No usable adapter was found.
    #[error("no WebGPU adapter was found: looked for {looked_for}; {advice}")]
    NoAdapter {
        /// Backends, power preference and name that were looked for, and what was seen.
        looked_for: String,
        /// What to install or set.
        advice: String,
    },
    /// The device refused to be created.
    #[error("adapter {adapter:?} gave no device: {detail}")]
    NoDevice {
        /// The adapter's name.
        adapter: String,
        /// The reason it gave.
        detail: String,
    },
    /// The device had no memory left. Nothing was allocated; the engine goes on.
    #[error(
        "out of device memory: {what} needs {size_bytes} bytes while {live_bytes} are in use; choose a smaller budget or batch"
    )]
    OutOfMemory {
        /// What was to be allocated.
        what: String,
        /// Its size.
        size_bytes: u64,
        /// What the engine held at that moment.
        live_bytes: u64,
    },
    /// The device refused a command; a fault of this library or of a custom op.
    #[error("{what}: the device refused it: {detail}")]
    Validation {
        /// What was being done.
        what: String,
        /// The device's words.
        detail: String,
    },
    /// The device is gone. Make a new one and load the state's copy into it.
    #[error("the device was lost: {detail}; make a new Gpu and load the saved state")]
    DeviceLost {
        /// The device's words.
        detail: String,
    },
    /// An output's slot was used again by a later run before it was read.
    #[error("the output of run {run} was overwritten by run {latest}: read it within {kept} runs")]
    OutputOverwritten {
        /// The run whose output was asked for.
        run: u64,
        /// The latest run.
        latest: u64,
        /// How many runs an output is kept.
        kept: u64,
    },
    /// A buffer could not be read back.
    #[error("reading {what} failed: {detail}")]
    Read {
        /// What was read.
        what: String,
        /// The device's words.
        detail: String,
    },
    /// A saved file could not be read or written.
    #[error("{path}: {detail}")]
    File {
        /// The file.
        path: String,
        /// What is wrong with it.
        detail: String,
    },
}

fn list(shapes: &[Shape]) -> String {
    let texts: Vec<String> = shapes.iter().map(ToString::to_string).collect();
    texts.join(" and ")
}

fn hint(similar: &[String]) -> String {
    if similar.is_empty() { String::new() } else { format!("; did you mean {}?", similar.join(" or ")) }
}
