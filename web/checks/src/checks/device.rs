//! The road itself: an adapter, a device, a dispatch, its result read back
//! without blocking, and memory that does not grow when that is repeated.

use js_sys::{Function, Promise};
use serde_json::json;
use wasm_bindgen::JsValue;
use wasm_bindgen_futures::JsFuture;

use super::Outcome;
use crate::report::Reporter;

const SHADER: &str = "
@group(0) @binding(0) var<storage, read_write> data: array<u32>;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    if id.x < arrayLength(&data) {
        data[id.x] = id.x * id.x + 1u;
    }
}
";

const WORDS: u32 = 1 << 20;
const ROUNDS: usize = 40;
/// What a browser's own bookkeeping may add while a page works. A page that kept
/// the buffers of every round, of 4 MiB twice, would hold 320 MiB more.
const FLAT_LIMIT_BYTES: u64 = 64 << 20;

struct Bench {
    info: wgpu::AdapterInfo,
    device: wgpu::Device,
    queue: wgpu::Queue,
    pipeline: wgpu::ComputePipeline,
}

impl Bench {
    async fn new() -> Result<Self, String> {
        let instance = wgpu::Instance::new(wgpu::InstanceDescriptor::new_without_display_handle());
        let adapter = instance
            .request_adapter(&wgpu::RequestAdapterOptions::default())
            .await
            .map_err(|error| error.to_string())?;
        let (device, queue) =
            adapter.request_device(&wgpu::DeviceDescriptor::default()).await.map_err(|error| error.to_string())?;
        let module = device.create_shader_module(wgpu::ShaderModuleDescriptor {
            label: Some("squares"),
            source: wgpu::ShaderSource::Wgsl(SHADER.into()),
        });
        let pipeline = device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
            label: Some("squares"),
            layout: None,
            module: &module,
            entry_point: Some("main"),
            compilation_options: wgpu::PipelineCompilationOptions::default(),
            cache: None,
        });
        Ok(Self { info: adapter.get_info(), device, queue, pipeline })
    }

    /// Computes on fresh buffers, reads the result and compares every word.
    async fn round(&self) -> Result<(), String> {
        let buffer = |label, usage| {
            self.device.create_buffer(&wgpu::BufferDescriptor {
                label: Some(label),
                size: u64::from(WORDS) * 4,
                usage,
                mapped_at_creation: false,
            })
        };
        let data = buffer("data", wgpu::BufferUsages::STORAGE | wgpu::BufferUsages::COPY_SRC);
        let read = buffer("read", wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST);
        let group = self.device.create_bind_group(&wgpu::BindGroupDescriptor {
            label: Some("squares"),
            layout: &self.pipeline.get_bind_group_layout(0),
            entries: &[wgpu::BindGroupEntry { binding: 0, resource: data.as_entire_binding() }],
        });
        let mut encoder = self.device.create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
        {
            let mut pass = encoder.begin_compute_pass(&wgpu::ComputePassDescriptor::default());
            pass.set_pipeline(&self.pipeline);
            pass.set_bind_group(0, &group, &[]);
            pass.dispatch_workgroups(WORDS / 64, 1, 1);
        }
        encoder.copy_buffer_to_buffer(&data, 0, &read, 0, None);
        self.queue.submit([encoder.finish()]);
        map(&read).await?;
        let view = read.get_mapped_range(..).map_err(|error| error.to_string())?;
        let wrong = view
            .chunks_exact(4)
            .zip(0_u32..)
            .filter(|(bytes, i)| **bytes != (i.wrapping_mul(*i) + 1).to_le_bytes())
            .count();
        drop(view);
        read.unmap();
        // A browser frees what is merely forgotten whenever it collects garbage.
        data.destroy();
        read.destroy();
        if wrong > 0 {
            return Err(format!("{wrong} of {WORDS} words are wrong"));
        }
        Ok(())
    }
}

/// Waits for a mapping the way a page must: the callback settles a promise.
async fn map(buffer: &wgpu::Buffer) -> Result<(), String> {
    let promise = Promise::new(&mut |resolve: Function, reject: Function| {
        buffer.map_async(wgpu::MapMode::Read, .., move |result| {
            let settled = match result {
                Ok(()) => resolve.call0(&JsValue::NULL),
                Err(error) => reject.call1(&JsValue::NULL, &error.to_string().into()),
            };
            // Settling a promise runs nothing that could throw.
            drop(settled);
        });
    });
    JsFuture::from(promise).await.map(drop).map_err(|error| format!("{error:?}"))
}

/// One dispatch, every word of its result compared.
pub(super) async fn dispatch() -> Outcome {
    let bench = Bench::new().await?;
    bench.round().await?;
    let limits = bench.device.limits();
    bench.device.destroy();
    Ok(json!({
        "adapter": bench.info.name,
        "storage_buffers": limits.max_storage_buffers_per_shader_stage,
        "words": WORDS,
    }))
}

/// Rounds of allocating, computing, reading and releasing do not add up.
pub(super) async fn flat(report: Reporter) -> Outcome {
    let bench = Bench::new().await?;
    for _ in 0..ROUNDS {
        bench.round().await?;
    }
    report.start_flat("flat memory", FLAT_LIMIT_BYTES).await?;
    for _ in 0..ROUNDS {
        bench.round().await?;
    }
    report.end_flat().await?;
    bench.device.destroy();
    Ok(json!({ "rounds": ROUNDS }))
}
