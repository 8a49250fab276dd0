//! The ladder's device: pipelines, bound operands, timed dispatches.

use std::time::Instant;

use super::{Case, EPILOGUE, Kernel, Uniforms};

/// A device with the bindings that every kernel of the ladder has.
pub(super) struct Gpu {
    device: wgpu::Device,
    queue: wgpu::Queue,
    layout: wgpu::BindGroupLayout,
    pipeline_layout: wgpu::PipelineLayout,
}

/// A, B and C as three ranges of one buffer, bound and ready to dispatch.
pub(super) struct Bound {
    arena: wgpu::Buffer,
    group: wgpu::BindGroup,
    c_start: u64,
    c_size: u64,
}

impl Gpu {
    pub(super) fn new() -> Result<Self, Box<dyn std::error::Error>> {
        let instance = wgpu::Instance::new(wgpu::InstanceDescriptor::new_without_display_handle());
        let adapter = pollster::block_on(instance.request_adapter(&wgpu::RequestAdapterOptions::default()))?;
        println!("adapter: {}", adapter.get_info().name);
        // WebGPU's default limits: the floor every kernel must run on.
        let (device, queue) = pollster::block_on(adapter.request_device(&wgpu::DeviceDescriptor::default()))?;
        let entry = |binding, ty| wgpu::BindGroupLayoutEntry {
            binding,
            visibility: wgpu::ShaderStages::COMPUTE,
            ty: wgpu::BindingType::Buffer { ty, has_dynamic_offset: false, min_binding_size: None },
            count: None,
        };
        let storage = wgpu::BufferBindingType::Storage { read_only: false };
        let layout = device.create_bind_group_layout(&wgpu::BindGroupLayoutDescriptor {
            label: Some("matmul"),
            entries: &[
                entry(0, wgpu::BufferBindingType::Uniform),
                entry(1, storage),
                entry(2, storage),
                entry(3, storage),
            ],
        });
        let pipeline_layout = device.create_pipeline_layout(&wgpu::PipelineLayoutDescriptor {
            label: Some("matmul"),
            bind_group_layouts: &[Some(&layout)],
            immediate_size: 0,
        });
        Ok(Self { device, queue, layout, pipeline_layout })
    }

    pub(super) fn pipeline(&self, kernel: &Kernel, case: &Case) -> wgpu::ComputePipeline {
        let module = self.device.create_shader_module(wgpu::ShaderModuleDescriptor {
            label: Some(&kernel.name),
            source: wgpu::ShaderSource::Wgsl(format!("{EPILOGUE}\n{}", kernel.text).into()),
        });
        let mut constants = kernel.constants.clone();
        if kernel.by_layout {
            constants.push(("A_TRANSPOSED", f64::from(u8::from(case.a_transposed))));
            constants.push(("B_TRANSPOSED", f64::from(u8::from(case.b_transposed))));
        }
        self.device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
            label: Some(&kernel.name),
            layout: Some(&self.pipeline_layout),
            module: &module,
            entry_point: Some("main"),
            compilation_options: wgpu::PipelineCompilationOptions { constants: &constants, ..Default::default() },
            cache: None,
        })
    }

    pub(super) fn bind(&self, u: &Uniforms, a: &[f32], b: &[f32], c: &[f32]) -> Bound {
        let usage = wgpu::BufferUsages::COPY_DST | wgpu::BufferUsages::COPY_SRC;
        let ends = [a, b, c].into_iter().scan(0_u64, |end, part| {
            let start = *end;
            *end += (size_of_val(part) as u64).max(16).next_multiple_of(256);
            Some((start, *end))
        });
        let ranges: Vec<(u64, u64)> = ends.collect();
        let arena = self.device.create_buffer(&wgpu::BufferDescriptor {
            label: Some("arena"),
            size: ranges[2].1,
            usage: usage | wgpu::BufferUsages::STORAGE,
            mapped_at_creation: false,
        });
        for (part, range) in [a, b, c].iter().zip(&ranges) {
            self.queue.write_buffer(&arena, range.0, bytemuck::cast_slice(part));
        }
        let uniforms = self.device.create_buffer(&wgpu::BufferDescriptor {
            label: Some("uniforms"),
            size: size_of::<Uniforms>() as u64,
            usage: usage | wgpu::BufferUsages::UNIFORM,
            mapped_at_creation: false,
        });
        self.queue.write_buffer(&uniforms, 0, bytemuck::bytes_of(u));
        let storage = |i: usize| {
            wgpu::BindingResource::Buffer(wgpu::BufferBinding {
                buffer: &arena,
                offset: ranges[i].0,
                size: std::num::NonZeroU64::new(ranges[i].1 - ranges[i].0),
            })
        };
        let group = self.device.create_bind_group(&wgpu::BindGroupDescriptor {
            label: Some("matmul"),
            layout: &self.layout,
            entries: &[
                wgpu::BindGroupEntry { binding: 0, resource: uniforms.as_entire_binding() },
                wgpu::BindGroupEntry { binding: 1, resource: storage(0) },
                wgpu::BindGroupEntry { binding: 2, resource: storage(1) },
                wgpu::BindGroupEntry { binding: 3, resource: storage(2) },
            ],
        });
        Bound { arena, group, c_start: ranges[2].0, c_size: size_of_val(c) as u64 }
    }

    /// Runs one dispatch `times` times in one pass and waits; gives the seconds it took.
    pub(super) fn run(&self, pipeline: &wgpu::ComputePipeline, bound: &Bound, grid: [u32; 3], times: usize) -> f64 {
        let start = Instant::now();
        let mut encoder = self.device.create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
        {
            let mut pass = encoder.begin_compute_pass(&wgpu::ComputePassDescriptor::default());
            pass.set_pipeline(pipeline);
            pass.set_bind_group(0, &bound.group, &[]);
            for _ in 0..times {
                pass.dispatch_workgroups(grid[0], grid[1], grid[2]);
            }
        }
        self.queue.submit([encoder.finish()]);
        self.wait();
        start.elapsed().as_secs_f64()
    }

    pub(super) fn wait(&self) {
        self.device.poll(wgpu::PollType::wait_indefinitely()).expect("the device is lost");
    }

    pub(super) fn read_c(&self, bound: &Bound) -> Vec<f32> {
        let staging = self.device.create_buffer(&wgpu::BufferDescriptor {
            label: Some("staging"),
            size: bound.c_size,
            usage: wgpu::BufferUsages::COPY_DST | wgpu::BufferUsages::MAP_READ,
            mapped_at_creation: false,
        });
        let mut encoder = self.device.create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
        encoder.copy_buffer_to_buffer(&bound.arena, bound.c_start, &staging, 0, bound.c_size);
        self.queue.submit([encoder.finish()]);
        staging.slice(..).map_async(wgpu::MapMode::Read, |result| result.expect("mapping failed"));
        self.wait();
        let view = staging.slice(..).get_mapped_range().expect("just mapped");
        bytemuck::cast_slice(&view).to_vec()
    }
}
