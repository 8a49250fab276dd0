//! The plainest way to run a program: every storage in a buffer of its own,
//! every pass once, in recorded order. A reference for the planner and the
//! runner, and a test bed for ops that needs neither.

use std::collections::BTreeMap;

use remat::fuse::program::{Operand, Program, StorageKind};
use remat::graph::Recorder;
use remat::profile::DeviceProfile;

/// A device with WebGPU's default limits.
pub(crate) struct Naive {
    device: wgpu::Device,
    queue: wgpu::Queue,
}

impl Naive {
    pub(crate) fn new() -> Self {
        let instance = wgpu::Instance::new(wgpu::InstanceDescriptor::new_without_display_handle());
        let adapter = pollster::block_on(instance.request_adapter(&wgpu::RequestAdapterOptions::default()))
            .expect("no adapter: install mesa-vulkan-drivers");
        let (device, queue) =
            pollster::block_on(adapter.request_device(&wgpu::DeviceDescriptor::default())).expect("no device");
        Self { device, queue }
    }

    /// Records, fuses and runs; inputs by name as raw words. Returns the outputs' words.
    pub(crate) fn run_recording(
        &self,
        inputs: &BTreeMap<String, Vec<u32>>,
        record: impl FnOnce(&Recorder) -> remat::error::Result<Vec<remat::graph::Tensor>>,
    ) -> remat::error::Result<Vec<Vec<u32>>> {
        let recorder = Recorder::new();
        let outputs = record(&recorder)?;
        let named: Vec<(String, &remat::graph::Tensor)> =
            outputs.iter().enumerate().map(|(i, t)| (format!("out{i}"), t)).collect();
        let graph = recorder.finish(&named)?;
        let program = remat::fuse::fuse(&graph, &DeviceProfile::default())?;
        program.validate()?;
        Ok(self.run(&program, inputs, &BTreeMap::new()).0)
    }

    /// Runs a program; returns outputs and the states after the run.
    pub(crate) fn run(
        &self,
        program: &Program,
        inputs: &BTreeMap<String, Vec<u32>>,
        states: &BTreeMap<String, Vec<u32>>,
    ) -> (Vec<Vec<u32>>, BTreeMap<String, Vec<u32>>) {
        let usage = wgpu::BufferUsages::STORAGE | wgpu::BufferUsages::COPY_DST | wgpu::BufferUsages::COPY_SRC;
        let buffers: Vec<wgpu::Buffer> = program
            .storages
            .iter()
            .map(|storage| {
                let buffer = self.device.create_buffer(&wgpu::BufferDescriptor {
                    label: Some(&storage.name),
                    size: storage.bytes,
                    usage,
                    mapped_at_creation: false,
                });
                let words: Vec<u32> = match storage.kind {
                    // A kernel that leaves an element unwritten shows up as NaN.
                    StorageKind::Transient => vec![u32::MAX; (storage.bytes / 4) as usize],
                    StorageKind::Input(i) => inputs[&program.inputs[i as usize].name].clone(),
                    StorageKind::Constant(i) => bytemuck::pod_collect_to_vec(&program.constants[i as usize]),
                    StorageKind::State(i) => states[&program.states[i as usize].name].clone(),
                };
                assert_eq!(words.len() as u64 * 4, storage.bytes, "{}", storage.name);
                self.queue.write_buffer(&buffer, 0, bytemuck::cast_slice(&words));
                buffer
            })
            .collect();
        // An in-place output is the buffer of what it overwrites.
        let mut place: Vec<usize> = (0..buffers.len()).collect();
        for pass in &program.passes {
            for operand in &pass.operands {
                if let Operand::InPlace { input, output } = operand {
                    place[output.index()] = place[input.index()];
                }
            }
            self.dispatch(program, pass, &buffers, &place);
        }
        let outputs = program
            .outputs
            .iter()
            .map(|output| output.storage.map_or_else(Vec::new, |s| self.read(&buffers[place[s.index()]])))
            .collect();
        let after = program
            .storages
            .iter()
            .zip(&buffers)
            .filter_map(|(storage, buffer)| match storage.kind {
                StorageKind::State(i) => Some((program.states[i as usize].name.clone(), self.read(buffer))),
                _ => None,
            })
            .collect();
        (outputs, after)
    }

    fn dispatch(
        &self,
        program: &Program,
        pass: &remat::fuse::program::Pass,
        buffers: &[wgpu::Buffer],
        place: &[usize],
    ) {
        let kernel = &program.kernels[pass.kernel.index()];
        let module = self.device.create_shader_module(wgpu::ShaderModuleDescriptor {
            label: Some(&kernel.name),
            source: wgpu::ShaderSource::Wgsl(kernel.source.as_ref().into()),
        });
        let constants: Vec<(&str, f64)> = kernel.constants.clone();
        let storage = wgpu::BufferBindingType::Storage { read_only: false };
        let entry = |binding: u32, ty| wgpu::BindGroupLayoutEntry {
            binding,
            visibility: wgpu::ShaderStages::COMPUTE,
            ty: wgpu::BindingType::Buffer { ty, has_dynamic_offset: false, min_binding_size: None },
            count: None,
        };
        let mut layout_entries = Vec::new();
        if kernel.uniform_words > 0 {
            layout_entries.push(entry(0, wgpu::BufferBindingType::Uniform));
        }
        layout_entries.extend((0..pass.operands.len()).map(|i| entry(i as u32 + 1, storage)));
        let layout = self
            .device
            .create_bind_group_layout(&wgpu::BindGroupLayoutDescriptor { label: None, entries: &layout_entries });
        let pipeline_layout = self.device.create_pipeline_layout(&wgpu::PipelineLayoutDescriptor {
            label: None,
            bind_group_layouts: &[Some(&layout)],
            immediate_size: 0,
        });
        let pipeline = self.device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
            label: Some(&kernel.name),
            layout: Some(&pipeline_layout),
            module: &module,
            entry_point: Some(kernel.entry),
            compilation_options: wgpu::PipelineCompilationOptions { constants: &constants, ..Default::default() },
            cache: None,
        });
        let uniform = self.device.create_buffer(&wgpu::BufferDescriptor {
            label: None,
            size: (pass.uniforms.len() as u64 * 4).max(16),
            usage: wgpu::BufferUsages::UNIFORM | wgpu::BufferUsages::COPY_DST,
            mapped_at_creation: false,
        });
        self.queue.write_buffer(&uniform, 0, bytemuck::cast_slice(&pass.uniforms));
        let mut entries = Vec::new();
        if kernel.uniform_words > 0 {
            entries.push(wgpu::BindGroupEntry { binding: 0, resource: uniform.as_entire_binding() });
        }
        for (i, operand) in pass.operands.iter().enumerate() {
            let id = match *operand {
                Operand::Read(id) | Operand::Write(id) | Operand::StateWrite(id) => id,
                Operand::InPlace { input, .. } => input,
            };
            entries.push(wgpu::BindGroupEntry {
                binding: i as u32 + 1,
                resource: buffers[place[id.index()]].as_entire_binding(),
            });
        }
        let group = self.device.create_bind_group(&wgpu::BindGroupDescriptor {
            label: None,
            layout: &layout,
            entries: &entries,
        });
        let mut encoder = self.device.create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
        {
            let mut compute = encoder.begin_compute_pass(&wgpu::ComputePassDescriptor::default());
            compute.set_pipeline(&pipeline);
            compute.set_bind_group(0, &group, &[]);
            compute.dispatch_workgroups(pass.grid[0], pass.grid[1], pass.grid[2]);
        }
        self.queue.submit([encoder.finish()]);
    }

    fn read(&self, buffer: &wgpu::Buffer) -> Vec<u32> {
        let staging = self.device.create_buffer(&wgpu::BufferDescriptor {
            label: None,
            size: buffer.size(),
            usage: wgpu::BufferUsages::COPY_DST | wgpu::BufferUsages::MAP_READ,
            mapped_at_creation: false,
        });
        let mut encoder = self.device.create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
        encoder.copy_buffer_to_buffer(buffer, 0, &staging, 0, buffer.size());
        self.queue.submit([encoder.finish()]);
        staging.slice(..).map_async(wgpu::MapMode::Read, |result| result.expect("mapping failed"));
        self.device.poll(wgpu::PollType::wait_indefinitely()).expect("the device is lost");
        let view = staging.slice(..).get_mapped_range().expect("just mapped");
        bytemuck::pod_collect_to_vec(&view)
    }
}
