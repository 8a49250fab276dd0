//! What planning and fusion know of a device: limits and class, as pure data.

use crate::plan::PlanOptions;

/// The kind of adapter, which decides kernel variants and the cost table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AdapterClass {
    /// A software adapter (lavapipe, SwiftShader, WARP).
    Cpu,
    /// A GPU that shares the host's memory.
    Integrated,
    /// A GPU with memory of its own.
    Discrete,
    /// Unknown, as in a browser that does not say.
    Other,
}

impl AdapterClass {
    /// Short name, as reports print it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cpu => "software",
            Self::Integrated => "integrated",
            Self::Discrete => "discrete",
            Self::Other => "other",
        }
    }
}

/// Two rates from which a pass's time is estimated.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rates {
    /// Floating-point operations per nanosecond (GFLOP/s).
    pub flops_per_ns: f64,
    /// Bytes read and written per nanosecond (GB/s).
    pub bytes_per_ns: f64,
    /// Fixed nanoseconds per dispatch.
    pub dispatch_ns: f64,
}

/// Limits and class of a device, without the device.
///
/// The default has WebGPU's default limits, the floor on which every kernel runs.
#[derive(Debug, Clone, PartialEq)]
pub struct DeviceProfile {
    /// Name for messages.
    pub name: String,
    /// Kernel variants and cost table are chosen by this.
    pub class: AdapterClass,
    /// Most storage buffers that one dispatch may bind.
    pub max_storage_buffers: u32,
    /// Largest storage binding, in bytes.
    pub max_binding_bytes: u64,
    /// Largest buffer, in bytes.
    pub max_buffer_bytes: u64,
    /// Most workgroups along one axis of a dispatch.
    pub max_workgroups_per_dimension: u32,
    /// Offsets of storage and uniform bindings are multiples of this, in bytes.
    pub offset_alignment_bytes: u64,
    /// Rates of the cost model.
    pub rates: Rates,
    /// How hard the planner searches.
    pub planning: PlanOptions,
}

impl DeviceProfile {
    /// WebGPU's default limits with the rates of `class`.
    #[must_use]
    pub fn webgpu_defaults(class: AdapterClass) -> Self {
        Self {
            name: format!("WebGPU's default limits ({})", class.name()),
            class,
            max_storage_buffers: 8,
            max_binding_bytes: 128 << 20,
            max_buffer_bytes: 256 << 20,
            max_workgroups_per_dimension: 65_535,
            offset_alignment_bytes: 256,
            rates: Rates::of_class(class),
            planning: PlanOptions::default(),
        }
    }

    /// Storage bindings that a pass may use: one is left spare, since Metal
    /// takes a hidden one for buffer sizes.
    #[must_use]
    pub fn usable_storage_buffers(&self) -> usize {
        (self.max_storage_buffers as usize).saturating_sub(1).clamp(1, 7)
    }

    /// Spreads `groups` workgroups over x, y and z within the limit per axis.
    /// Kernels form a linear index and guard it against the surplus.
    #[must_use]
    pub fn split_grid(&self, groups: u64) -> [u32; 3] {
        let limit = u64::from(self.max_workgroups_per_dimension);
        if groups <= limit {
            return [u32::try_from(groups).unwrap_or(u32::MAX), 1, 1];
        }
        // Rows of even length: hardly any workgroup is surplus.
        let rows = groups.div_ceil(limit);
        let x = groups.div_ceil(rows);
        let y = rows.min(limit);
        let z = rows.div_ceil(y);
        let narrow = |n: u64| u32::try_from(n).unwrap_or(u32::MAX);
        [narrow(x), narrow(y), narrow(z)]
    }
}

impl Default for DeviceProfile {
    fn default() -> Self {
        Self::webgpu_defaults(AdapterClass::Cpu)
    }
}

impl Rates {
    /// The table of rates per adapter class; rough on purpose: plans compare
    /// passes with each other on one adapter only.
    #[must_use]
    pub const fn of_class(class: AdapterClass) -> Self {
        match class {
            AdapterClass::Cpu => Self { flops_per_ns: 25.0, bytes_per_ns: 6.0, dispatch_ns: 30_000.0 },
            AdapterClass::Integrated => Self { flops_per_ns: 500.0, bytes_per_ns: 50.0, dispatch_ns: 5_000.0 },
            AdapterClass::Discrete | AdapterClass::Other => {
                Self { flops_per_ns: 5_000.0, bytes_per_ns: 400.0, dispatch_ns: 3_000.0 }
            }
        }
    }
}
