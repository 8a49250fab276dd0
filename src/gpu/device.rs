//! The device: opened once, cheap to clone, shared by everything that uses it.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use super::adapter::{Power, choose, display_name, profile_of};
use super::arena::Arena;
use super::fault::Faults;
use super::memory::{Ledger, MemoryStats};
use super::pipeline::Pipelines;
use super::run::InFlight;
use super::wait::{Signal, Turn, Waiter, poll_device};
use crate::error::{Error, Result};
use crate::plan::PlanOptions;
use crate::profile::{AdapterClass, DeviceProfile};
use crate::shared::Shared;

/// Estimated time of the work in one submit, in nanoseconds: far below what
/// makes a driver's watchdog fire (about two seconds), far above what a submit costs.
const SUBMIT_NS: f64 = 100e6;

/// Which limits a device is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LimitsMode {
    /// All that the adapter has.
    #[default]
    Adapter,
    /// WebGPU's defaults, the floor that every adapter has.
    WebGpuDefaults,
}

/// Choices made before a device is opened.
#[derive(Debug, Clone, Default)]
pub struct GpuBuilder {
    pub(super) power: Option<Power>,
    pub(super) adapter_name: Option<String>,
    pub(super) limits: LimitsMode,
    pub(super) poison: bool,
    pub(super) software: bool,
    pub(super) max_binding_bytes: Option<u64>,
    pub(super) max_buffer_bytes: Option<u64>,
    pub(super) submit_ns: Option<f64>,
    pub(super) planning: PlanOptions,
}

impl GpuBuilder {
    /// Prefers a discrete or an integrated GPU. Natively `WGPU_POWER_PREF` decides if this is not called.
    #[must_use]
    pub fn power(mut self, power: Power) -> Self {
        self.power = Some(power);
        self
    }

    /// Takes only an adapter whose name contains this, ignoring case.
    /// Natively `WGPU_ADAPTER_NAME` decides if this is not called.
    #[must_use]
    pub fn adapter_name(mut self, part: impl Into<String>) -> Self {
        self.adapter_name = Some(part.into());
        self
    }

    /// Asks for the adapter's own limits (the default) or for WebGPU's defaults.
    #[must_use]
    pub fn limits(mut self, limits: LimitsMode) -> Self {
        self.limits = limits;
        self
    }

    /// Takes only a software adapter.
    #[must_use]
    pub fn software(mut self, only: bool) -> Self {
        self.software = only;
        self
    }

    /// Fills recycled memory with NaN before use: a kernel that does not
    /// write all that it owns shows. Costs a dispatch per value.
    #[must_use]
    pub fn poison(mut self, on: bool) -> Self {
        self.poison = on;
        self
    }

    /// Lowers the largest storage binding, as if the adapter had no more.
    #[must_use]
    pub fn max_binding_bytes(mut self, bytes: u64) -> Self {
        self.max_binding_bytes = Some(bytes);
        self
    }

    /// Lowers the largest buffer, as if the adapter had no more.
    #[must_use]
    pub fn max_buffer_bytes(mut self, bytes: u64) -> Self {
        self.max_buffer_bytes = Some(bytes);
        self
    }

    /// Bounds the estimated time of the work in one submit, in milliseconds (default 100).
    #[must_use]
    pub fn submit_ms(mut self, ms: f64) -> Self {
        self.submit_ns = Some(ms * 1e6);
        self
    }

    /// Says how hard to search for plans under a budget.
    #[must_use]
    pub fn planning(mut self, options: PlanOptions) -> Self {
        self.planning = options;
        self
    }

    /// Opens a device on the best adapter that fits.
    ///
    /// # Errors
    /// [`Error::NoAdapter`] if none fits, [`Error::NoDevice`] if those that do refuse.
    pub async fn build(self) -> Result<Gpu> {
        let mut refusal = None;
        for adapter in choose(&self).await? {
            match self.open(&adapter).await {
                Ok(gpu) => return Ok(gpu),
                Err(error) => {
                    refusal.get_or_insert(error);
                }
            }
        }
        Err(refusal.unwrap_or_else(|| Error::NoAdapter { looked_for: "any".into(), advice: String::new() }))
    }

    /// [`Self::build`], blocking.
    ///
    /// # Errors
    /// As [`Self::build`].
    #[cfg(not(target_arch = "wasm32"))]
    pub fn build_blocking(self) -> Result<Gpu> {
        pollster::block_on(self.build())
    }

    async fn open(&self, adapter: &wgpu::Adapter) -> Result<Gpu> {
        let info = adapter.get_info();
        let limits = match self.limits {
            LimitsMode::Adapter => adapter.limits(),
            LimitsMode::WebGpuDefaults => wgpu::Limits::default(),
        };
        let descriptor = wgpu::DeviceDescriptor {
            label: Some("remat"),
            // Nothing optional is used: an adapter without f16, subgroups or timestamps serves as well.
            required_features: wgpu::Features::empty(),
            required_limits: limits,
            experimental_features: wgpu::ExperimentalFeatures::disabled(),
            // Memory is what this library is about: blocks no larger than needed.
            memory_hints: wgpu::MemoryHints::MemoryUsage,
            trace: wgpu::Trace::Off,
        };
        let opened = adapter.request_device(&descriptor).await;
        let (device, queue) =
            opened.map_err(|error| Error::NoDevice { adapter: display_name(&info), detail: error.to_string() })?;
        Ok(Gpu { inner: Shared::new(Inner::new(device, queue, info, self)) })
    }
}

/// A device: picks an adapter, owns the memory, runs one step at a time.
///
/// A cheap handle; clones share everything.
#[derive(Debug, Clone)]
pub struct Gpu {
    pub(crate) inner: Shared<Inner>,
}

/// What the handles share.
#[derive(Debug)]
pub(crate) struct Inner {
    pub(super) device: wgpu::Device,
    pub(super) queue: wgpu::Queue,
    pub(super) info: wgpu::AdapterInfo,
    pub(super) profile: DeviceProfile,
    pub(super) faults: Faults,
    pub(super) waiter: Waiter,
    pub(super) ledger: Ledger,
    pub(super) pipelines: Pipelines,
    pub(super) arena: Mutex<Arena>,
    pub(super) in_flight: Mutex<InFlight>,
    pub(super) turn: Turn,
    pub(super) poison: bool,
    pub(super) submit_ns: f64,
    /// Bytes handed to `write_buffer` since the last submit.
    pub(super) staged_bytes: AtomicU64,
    /// Bytes staged and submitted since the last wait for the device.
    pub(super) unfinished_bytes: AtomicU64,
    /// Buffer creations until one is refused; 0 for never.
    refuse_after: AtomicU64,
}

impl Inner {
    fn new(device: wgpu::Device, queue: wgpu::Queue, info: wgpu::AdapterInfo, builder: &GpuBuilder) -> Self {
        let faults = Faults::default();
        let waiter = Waiter::start(&device, &faults);
        let seen = faults.clone();
        device.on_uncaptured_error(std::sync::Arc::new(move |error| seen.uncaptured(&error)));
        let (lost, waiting) = (faults.clone(), waiter.clone());
        device.set_device_lost_callback(move |reason, message| {
            lost.lose(format!("{reason:?} {message}").trim().to_owned());
            waiting.set_all();
        });
        let profile = profile_of(&info, &device.limits(), builder);
        Self {
            device,
            queue,
            info,
            profile,
            faults,
            waiter,
            ledger: Ledger::default(),
            pipelines: Pipelines::default(),
            arena: Mutex::default(),
            in_flight: Mutex::default(),
            turn: Turn::default(),
            poison: builder.poison,
            submit_ns: builder.submit_ns.unwrap_or(SUBMIT_NS),
            staged_bytes: AtomicU64::new(0),
            unfinished_bytes: AtomicU64::new(0),
            refuse_after: AtomicU64::new(0),
        }
    }

    /// Lets finished work be noticed and dropped buffers come back.
    pub(super) fn poll(&self) {
        poll_device(&self.device, wgpu::PollType::Poll, &self.faults);
    }

    /// Submits, and forgets what was staged: it goes with the commands.
    pub(super) fn submit(&self, commands: impl IntoIterator<Item = wgpu::CommandBuffer>) -> wgpu::SubmissionIndex {
        self.staged_bytes.store(0, Ordering::Relaxed);
        self.queue.submit(commands)
    }

    /// A signal that is set when all that was submitted up to `index` is done.
    pub(super) fn done_signal(&self, index: wgpu::SubmissionIndex) -> Signal {
        let signal = Signal::default();
        let set = signal.clone();
        self.queue.on_submitted_work_done(move || set.set(true));
        self.waiter.watch(index, &signal);
        if self.faults.is_lost() {
            signal.set(false);
        }
        signal
    }

    /// Waits until the device has done all that was handed to it.
    pub(super) async fn idle(&self) -> Result<()> {
        let index = self.submit([]);
        let staged = self.unfinished_bytes.load(Ordering::Relaxed);
        self.done_signal(index).wait().await;
        self.unfinished_bytes.fetch_sub(staged, Ordering::Relaxed);
        // A buffer that was in use comes back with the next poll after the work.
        self.poll();
        self.faults.check()
    }

    /// True if a test asked for this creation to be refused.
    pub(super) fn injected_refusal(&self) -> bool {
        let counted = self.refuse_after.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1));
        counted == Ok(1)
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.waiter.stop();
    }
}

/// A fault that tests can cause.
#[doc(hidden)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Inject {
    /// The creation of the nth buffer from now on (counted from 1) is refused.
    AllocationFailure(u64),
    /// The device refuses a command.
    ValidationError,
    /// The device is destroyed.
    DeviceLoss,
}

impl Gpu {
    /// Opens a device on the best adapter, with the adapter's own limits.
    ///
    /// Natively wgpu's environment variables are honoured: `WGPU_BACKEND`,
    /// `WGPU_ADAPTER_NAME`, `WGPU_POWER_PREF`. Software adapters are taken if
    /// there is nothing else; [`Self::is_software`] tells.
    ///
    /// # Errors
    /// [`Error::NoAdapter`] or [`Error::NoDevice`].
    pub async fn new() -> Result<Self> {
        Self::builder().build().await
    }

    /// [`Self::new`], blocking.
    ///
    /// # Errors
    /// As [`Self::new`].
    #[cfg(not(target_arch = "wasm32"))]
    pub fn new_blocking() -> Result<Self> {
        pollster::block_on(Self::new())
    }

    /// Choices before a device is opened.
    #[must_use]
    pub fn builder() -> GpuBuilder {
        GpuBuilder::default()
    }

    /// For tests: `REMAT_TEST_LIMITS=default|adapter` chooses the limits (default: WebGPU's defaults),
    /// `REMAT_POISON=0|1` switches poison (default: on).
    ///
    /// # Errors
    /// As [`Self::new`].
    #[doc(hidden)]
    pub async fn for_tests() -> Result<Self> {
        Self::test_builder().build().await
    }

    /// The builder of [`Self::for_tests`].
    #[doc(hidden)]
    #[must_use]
    pub fn test_builder() -> GpuBuilder {
        let variable = |name| std::env::var(name).unwrap_or_default();
        let limits = match variable("REMAT_TEST_LIMITS").as_str() {
            "adapter" => LimitsMode::Adapter,
            _ => LimitsMode::WebGpuDefaults,
        };
        Self::builder().limits(limits).poison(variable("REMAT_POISON") != "0")
    }

    /// Limits and class of the device, for planning.
    #[must_use]
    pub fn profile(&self) -> &DeviceProfile {
        &self.inner.profile
    }

    /// The adapter's name.
    #[must_use]
    pub fn adapter_name(&self) -> &str {
        &self.inner.profile.name
    }

    /// The backend by which the adapter is reached ("vulkan", "metal", ...).
    #[must_use]
    pub fn backend(&self) -> String {
        self.inner.info.backend.to_string()
    }

    /// True for a software adapter.
    #[must_use]
    pub fn is_software(&self) -> bool {
        self.inner.profile.class == AdapterClass::Cpu
    }

    /// True if recycled memory is filled with NaN before use.
    #[must_use]
    pub fn is_poisoning(&self) -> bool {
        self.inner.poison
    }

    /// What the engine holds of the device's memory.
    #[must_use]
    pub fn memory(&self) -> MemoryStats {
        self.inner.ledger.stats()
    }

    /// Makes the peak start anew from what is held now.
    pub fn reset_peak(&self) {
        self.inner.ledger.reset_peak();
    }

    /// The error that the device reported outside of any call, if one is
    /// waiting; the loss of the device, always.
    ///
    /// # Errors
    /// That error.
    pub fn check(&self) -> Result<()> {
        self.inner.poll();
        self.inner.faults.check()
    }

    /// Waits until the device has done all that was handed to it.
    ///
    /// # Errors
    /// As [`Self::check`].
    pub async fn wait_idle(&self) -> Result<()> {
        self.inner.faults.check()?;
        self.inner.idle().await
    }

    /// [`Self::wait_idle`], blocking.
    ///
    /// # Errors
    /// As [`Self::check`].
    #[cfg(not(target_arch = "wasm32"))]
    pub fn wait_idle_blocking(&self) -> Result<()> {
        pollster::block_on(self.wait_idle())
    }

    /// Bytes of this engine's buffers by wgpu's own account, where its backend
    /// has one: buffers that wgpu makes for itself are left out by their name.
    /// It counts the padding that aligns an allocation to that allocation.
    #[must_use]
    pub fn allocator_bytes(&self) -> Option<u64> {
        self.inner.poll();
        let report = self.inner.device.generate_allocator_report()?;
        Some(report.allocations.iter().filter(|a| a.name.starts_with("remat ")).map(|a| a.size).sum())
    }

    /// Name and size of every living allocation by wgpu's own account.
    #[doc(hidden)]
    #[must_use]
    pub fn allocator_list(&self) -> Vec<(String, u64)> {
        self.inner.poll();
        let report = self.inner.device.generate_allocator_report();
        report.map_or_else(Vec::new, |r| r.allocations.iter().map(|a| (a.name.clone(), a.size)).collect())
    }

    /// Causes a fault, for tests.
    #[doc(hidden)]
    pub fn inject(&self, fault: Inject) {
        match fault {
            Inject::AllocationFailure(nth) => self.inner.refuse_after.store(nth, Ordering::Relaxed),
            Inject::ValidationError => {
                let entry = wgpu::BindGroupLayoutEntry {
                    binding: 0,
                    visibility: wgpu::ShaderStages::COMPUTE,
                    ty: wgpu::BindingType::Buffer {
                        ty: wgpu::BufferBindingType::Uniform,
                        has_dynamic_offset: false,
                        min_binding_size: None,
                    },
                    count: None,
                };
                let _ = self.inner.device.create_bind_group_layout(&wgpu::BindGroupLayoutDescriptor {
                    label: Some("injected: one binding twice"),
                    entries: &[entry, entry],
                });
            }
            Inject::DeviceLoss => {
                self.inner.device.destroy();
                self.inner.poll();
            }
        }
    }
}
