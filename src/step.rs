//! A step: recorded once, planned once, run again and again.

use crate::checkpoint::Policy;
use crate::error::Result;
use crate::fuse::program::Program;
use crate::gpu::{Executable, Gpu, InputData, Output, RunOutputs, Verified};
use crate::graph::{Recorder, Tensor, TensorTree};
use crate::params::Params;
use crate::plan::{ParetoPoint, Plan, Planning};
use crate::profile::DeviceProfile;
use crate::shared::Shared;

/// A recording fused and planned for a device profile, without a device: the
/// report of a step far too large for this machine can be read from it.
#[derive(Debug)]
pub struct PlannedStep<O> {
    /// The passes.
    pub program: Shared<Program>,
    /// The plan.
    pub plan: Plan,
    outputs: O,
    params: Option<Params>,
}

/// A recording fused into passes, to be planned under several policies.
#[derive(Debug)]
pub struct RecordedStep<O> {
    planning: Planning,
    outputs: O,
    params: Option<Params>,
}

impl<O: TensorTree> RecordedStep<O> {
    /// Records and fuses for a device with `profile`.
    ///
    /// # Errors
    /// What `record` returns; [`crate::Error::OtherRecording`] for an output of
    /// another recording; [`crate::Error::Limit`].
    pub fn new(profile: &DeviceProfile, record: impl FnOnce(&Recorder) -> Result<O>) -> Result<Self> {
        let recorder = Recorder::new();
        let outputs = record(&recorder)?;
        let params = recorder.params();
        let labels: Vec<(String, &Tensor)> = outputs
            .tensors()
            .into_iter()
            .enumerate()
            .map(|(i, t)| (recorder.name_of(t).unwrap_or_else(|| format!("output{i}")), t))
            .collect();
        let graph = recorder.finish(&labels)?;
        let program = Shared::new(crate::fuse::fuse(&graph, profile)?);
        Ok(Self { planning: Planning::new(program, profile.clone()), outputs, params })
    }

    /// The passes, the same under every policy.
    #[must_use]
    pub fn program(&self) -> &Shared<Program> {
        self.planning.program()
    }

    /// Peak against estimated time of at most `points` plans: see [`crate::plan::pareto`].
    ///
    /// # Errors
    /// [`crate::Error::Limit`], [`crate::Error::PlanCheck`].
    pub fn pareto(&self, points: usize) -> Result<Vec<ParetoPoint>> {
        self.planning.pareto(points)
    }

    /// Plans under a policy. Budgets share one search, which the first one makes.
    ///
    /// # Errors
    /// [`crate::Error::Policy`], [`crate::Error::BudgetTooSmall`], [`crate::Error::Limit`].
    pub fn plan(&self, policy: &Policy) -> Result<Plan> {
        self.planning.plan(policy)
    }
}

impl<O: TensorTree> PlannedStep<O> {
    /// Records, fuses and plans.
    ///
    /// # Errors
    /// As [`RecordedStep::new`] and [`RecordedStep::plan`].
    pub fn new(profile: &DeviceProfile, policy: &Policy, record: impl FnOnce(&Recorder) -> Result<O>) -> Result<Self> {
        let recorded = RecordedStep::new(profile, record)?;
        let plan = recorded.plan(policy)?;
        Ok(Self {
            program: recorded.planning.program().clone(),
            plan,
            outputs: recorded.outputs,
            params: recorded.params,
        })
    }
}

/// A planned step on a device. Shapes are fixed; other shapes are another step,
/// which may share the same parameters.
#[derive(Debug)]
pub struct Step<O: TensorTree> {
    executable: Executable,
    outputs: O,
}

impl<O: TensorTree> Step<O> {
    /// Runs the step: uploads the inputs, encodes and submits. Waits until at
    /// most two earlier runs are in flight, not for this run. What it returns
    /// has the shape of what the recording's closure returned; read it when it is wanted.
    ///
    /// # Errors
    /// [`crate::Error::UnknownInput`], [`crate::Error::MissingInput`],
    /// [`crate::Error::Data`]; [`crate::Error::DeviceLost`]. The engine stays usable.
    pub async fn run(&self, inputs: &[(&str, InputData<'_>)]) -> Result<O::With<Output>> {
        self.in_shape(self.executable.run(inputs).await?)
    }

    /// [`Step::run`], blocking until it is submitted. Natively only.
    ///
    /// # Errors
    /// As [`Step::run`].
    #[cfg(not(target_arch = "wasm32"))]
    pub fn run_blocking(&self, inputs: &[(&str, InputData<'_>)]) -> Result<O::With<Output>> {
        pollster::block_on(self.run(inputs))
    }

    /// [`Step::run`] that also compares whatever a replay makes with what its pass
    /// made at first: see [`Executable::verify`].
    ///
    /// # Errors
    /// As [`Executable::verify`].
    pub async fn verify(&self, inputs: &[(&str, InputData<'_>)]) -> Result<(O::With<Output>, Verified)> {
        let (run, verified) = self.executable.verify(inputs).await?;
        Ok((self.in_shape(run)?, verified))
    }

    /// A run's outputs in the shape of what the recording's closure returned.
    fn in_shape(&self, run: RunOutputs) -> Result<O::With<Output>> {
        let label = || crate::Error::Read { what: "outputs".into(), detail: "a run handed back too few".into() };
        self.outputs.with(&mut run.outputs.into_iter()).ok_or_else(label)
    }

    /// The plan that it runs.
    #[must_use]
    pub fn plan(&self) -> &Plan {
        self.executable.plan()
    }

    /// The passes that it runs.
    #[must_use]
    pub fn program(&self) -> &Program {
        self.executable.program()
    }

    /// The plan in words: passes, what is saved, what is replayed, the peak.
    #[must_use]
    pub fn report(&self) -> String {
        self.plan().report(self.program()).to_string()
    }

    /// Bytes that the step holds, counted at the place that creates buffers.
    #[must_use]
    pub fn measured_peak_bytes(&self) -> u64 {
        self.executable.measured_peak_bytes()
    }
}

impl Gpu {
    /// Records `record`, plans it under `policy` and makes it ready to run. A
    /// budget that cannot be kept is refused before anything is allocated.
    ///
    /// # Errors
    /// As [`PlannedStep::new`]; [`crate::Error::OutOfMemory`] and
    /// [`crate::Error::Validation`] from the device.
    pub async fn step<O: TensorTree>(
        &self,
        policy: Policy,
        record: impl FnOnce(&Recorder) -> Result<O>,
    ) -> Result<Step<O>> {
        self.load_step(PlannedStep::new(self.profile(), &policy, record)?).await
    }

    /// Makes a planned step ready to run on this device, for whose profile it was planned.
    ///
    /// # Errors
    /// As [`Gpu::step`].
    pub async fn load_step<O: TensorTree>(&self, planned: PlannedStep<O>) -> Result<Step<O>> {
        let params = planned.params.unwrap_or_else(|| Params::new(self, 0));
        let executable = Executable::new(self, planned.program, planned.plan, &params).await?;
        Ok(Step { executable, outputs: planned.outputs })
    }

    /// [`Gpu::step`], blocking. Natively only.
    ///
    /// # Errors
    /// As [`Gpu::step`].
    #[cfg(not(target_arch = "wasm32"))]
    pub fn step_blocking<O: TensorTree>(
        &self,
        policy: Policy,
        record: impl FnOnce(&Recorder) -> Result<O>,
    ) -> Result<Step<O>> {
        pollster::block_on(self.step(policy, record))
    }
}

/// Inputs of a run: `inputs! { "x" => &x, "lr" => 1e-3_f32 }`.
#[macro_export]
macro_rules! inputs {
    ($($name:expr => $value:expr),* $(,)?) => {
        &[$(($name, $crate::gpu::InputData::from($value))),*][..] as &[(&str, $crate::gpu::InputData<'_>)]
    };
}
