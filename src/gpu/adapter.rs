//! Choosing an adapter, and saying what was looked for when there is none.

use super::device::GpuBuilder;
use crate::error::{Error, Result};
use crate::profile::{AdapterClass, DeviceProfile, Rates};

/// Which of several adapters is preferred.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Power {
    /// A discrete GPU before an integrated one.
    #[default]
    High,
    /// An integrated GPU before a discrete one.
    Low,
}

impl Power {
    #[cfg(not(target_arch = "wasm32"))]
    fn from_env() -> Option<Self> {
        match wgpu::PowerPreference::from_env()? {
            wgpu::PowerPreference::LowPower => Some(Self::Low),
            wgpu::PowerPreference::HighPerformance => Some(Self::High),
            wgpu::PowerPreference::None => None,
        }
    }
}

/// An adapter's kind, for the cost table and kernel variants.
pub(super) fn class_of(info: &wgpu::AdapterInfo) -> AdapterClass {
    match info.device_type {
        wgpu::DeviceType::Cpu => AdapterClass::Cpu,
        wgpu::DeviceType::IntegratedGpu => AdapterClass::Integrated,
        wgpu::DeviceType::DiscreteGpu | wgpu::DeviceType::VirtualGpu => AdapterClass::Discrete,
        wgpu::DeviceType::Other => AdapterClass::Other,
    }
}

/// What planning needs to know of a device with these limits, further lowered
/// by what the builder injects.
pub(super) fn profile_of(info: &wgpu::AdapterInfo, limits: &wgpu::Limits, builder: &GpuBuilder) -> DeviceProfile {
    let class = class_of(info);
    let buffer = limits.max_buffer_size.min(builder.max_buffer_bytes.unwrap_or(u64::MAX));
    let binding = limits.max_storage_buffer_binding_size.min(builder.max_binding_bytes.unwrap_or(u64::MAX));
    DeviceProfile {
        name: display_name(info),
        class,
        max_storage_buffers: limits.max_storage_buffers_per_shader_stage,
        max_binding_bytes: binding.min(buffer) & !3,
        max_buffer_bytes: buffer & !3,
        max_workgroups_per_dimension: limits.max_compute_workgroups_per_dimension,
        // WebGPU's default on every device, so that plans do not depend on it.
        offset_alignment_bytes: 256,
        planning: builder.planning,
        rates: Rates::of_class(class),
    }
}

/// The adapter's name, or what is known where a browser keeps it to itself.
pub(super) fn display_name(info: &wgpu::AdapterInfo) -> String {
    if info.name.is_empty() { format!("unnamed {} adapter", info.backend) } else { info.name.clone() }
}

/// The adapters to try, best first.
///
/// # Errors
/// [`Error::NoAdapter`] with what was looked for, what was seen, what to do.
#[cfg(not(target_arch = "wasm32"))]
pub(super) async fn choose(builder: &GpuBuilder) -> Result<Vec<wgpu::Adapter>> {
    let descriptor = wgpu::InstanceDescriptor::new_without_display_handle_from_env;
    let backends = descriptor().backends;
    let name = builder.adapter_name.clone().or_else(|| std::env::var("WGPU_ADAPTER_NAME").ok());
    let power = builder.power.or_else(Power::from_env).unwrap_or_default();
    let mut seen = Vec::new();
    // OpenGL is started only if nothing else serves: its drivers are slow to load.
    for group in [backends - wgpu::Backends::GL, backends & wgpu::Backends::GL] {
        if group.is_empty() {
            continue;
        }
        let instance = wgpu::Instance::new(wgpu::InstanceDescriptor { backends: group, ..descriptor() });
        let all = instance.enumerate_adapters(group).await;
        seen.extend(all.iter().map(wgpu::Adapter::get_info));
        let mut fitting: Vec<_> = all.into_iter().filter(|a| serves(a, name.as_deref(), builder.software)).collect();
        fitting.sort_by_key(|adapter| rank(adapter.get_info().device_type, power));
        if !fitting.is_empty() {
            return Ok(fitting);
        }
    }
    let mut looked_for = format!(
        "backends {}, {} power{}",
        list(backends & wgpu::Instance::enabled_backend_features()),
        if power == Power::High { "high" } else { "low" },
        if builder.software { ", software adapters only" } else { "" },
    );
    if let Some(name) = name {
        looked_for += &format!(", a name containing {name:?}");
    }
    looked_for += &seen_text(&seen);
    Err(Error::NoAdapter { looked_for, advice: advice(!seen.is_empty()) })
}

#[cfg(not(target_arch = "wasm32"))]
fn list(backends: wgpu::Backends) -> String {
    let names: Vec<String> =
        backends.iter_names().map(|(name, _)| name.to_lowercase()).filter(|name| !name.contains("webgpu")).collect();
    if names.is_empty() { "none (see WGPU_BACKEND)".into() } else { names.join("+") }
}

#[cfg(not(target_arch = "wasm32"))]
fn seen_text(seen: &[wgpu::AdapterInfo]) -> String {
    if seen.is_empty() {
        return "; saw no adapter at all".into();
    }
    let names: Vec<String> =
        seen.iter().map(|i| format!("{:?} ({}, {})", i.name, i.backend, class_of(i).name())).collect();
    format!("; saw {}, which did not fit", names.join(", "))
}

#[cfg(not(target_arch = "wasm32"))]
fn advice(saw_some: bool) -> String {
    if saw_some {
        return "ask for another name or backend (WGPU_ADAPTER_NAME, WGPU_BACKEND), or for none".into();
    }
    "install a GPU driver, or a software adapter: on Debian and Ubuntu `apt-get install mesa-vulkan-drivers`, \
     on Fedora `dnf install mesa-vulkan-drivers`; if one is installed, check VK_DRIVER_FILES and WGPU_BACKEND"
        .into()
}

#[cfg(not(target_arch = "wasm32"))]
fn serves(adapter: &wgpu::Adapter, name: Option<&str>, software: bool) -> bool {
    let info = adapter.get_info();
    let computes = adapter.get_downlevel_capabilities().flags.contains(wgpu::DownlevelFlags::COMPUTE_SHADERS);
    computes
        && adapter.limits().max_storage_buffers_per_shader_stage >= 8
        && name.is_none_or(|name| info.name.to_lowercase().contains(&name.to_lowercase()))
        && (!software || info.device_type == wgpu::DeviceType::Cpu)
}

/// Smaller is better. Software comes last, but it is taken when there is nothing else.
#[cfg(not(target_arch = "wasm32"))]
const fn rank(kind: wgpu::DeviceType, power: Power) -> u8 {
    match (kind, power) {
        (wgpu::DeviceType::DiscreteGpu, Power::High) | (wgpu::DeviceType::IntegratedGpu, Power::Low) => 0,
        (wgpu::DeviceType::DiscreteGpu | wgpu::DeviceType::IntegratedGpu, _) => 1,
        (wgpu::DeviceType::VirtualGpu, _) => 2,
        (wgpu::DeviceType::Other, _) => 3,
        (wgpu::DeviceType::Cpu, _) => 4,
    }
}

/// The one adapter that the browser offers.
///
/// # Errors
/// [`Error::NoAdapter`] with what to switch on in the browser.
#[cfg(target_arch = "wasm32")]
pub(super) async fn choose(builder: &GpuBuilder) -> Result<Vec<wgpu::Adapter>> {
    let instance = wgpu::Instance::new(wgpu::InstanceDescriptor::new_without_display_handle());
    let options = wgpu::RequestAdapterOptions {
        power_preference: match builder.power.unwrap_or_default() {
            Power::High => wgpu::PowerPreference::HighPerformance,
            Power::Low => wgpu::PowerPreference::LowPower,
        },
        force_fallback_adapter: builder.software,
        ..Default::default()
    };
    let adapter = instance.request_adapter(&options).await.ok();
    let fits = adapter.filter(|adapter| {
        let name = adapter.get_info().name.to_lowercase();
        builder.adapter_name.as_ref().is_none_or(|wanted| name.contains(&wanted.to_lowercase()))
    });
    match fits {
        Some(adapter) => Ok(vec![adapter]),
        None => Err(Error::NoAdapter {
            looked_for: format!(
                "navigator.gpu, {:?} power{}{}",
                builder.power.unwrap_or_default(),
                if builder.software { ", a fallback adapter" } else { "" },
                builder.adapter_name.as_ref().map_or_else(String::new, |n| format!(", a name containing {n:?}")),
            ),
            advice: "use a browser with WebGPU from a secure page (https or localhost); Chromium without a GPU needs \
                     --enable-unsafe-webgpu --use-webgpu-adapter=swiftshader, Firefox needs dom.webgpu.enabled and \
                     gfx.webgpu.ignore-blocklist in about:config"
                .into(),
        }),
    }
}

#[cfg(all(test, not(target_arch = "wasm32")))]
mod tests {
    use super::*;

    #[test]
    fn software_is_last_and_power_decides_between_gpus() {
        use wgpu::DeviceType::{Cpu, DiscreteGpu, IntegratedGpu};
        assert!(rank(DiscreteGpu, Power::High) < rank(IntegratedGpu, Power::High));
        assert!(rank(IntegratedGpu, Power::Low) < rank(DiscreteGpu, Power::Low));
        assert!(rank(DiscreteGpu, Power::Low) < rank(Cpu, Power::Low));
    }
}
