//! Speed of generated kernels on a software adapter (Linux), printed on request:
//! `cargo xtask bench figures`.

use remat::error::Result;
use remat::fuse::program::Operand;
use remat::graph::{Recorder, Tensor};

use super::fused;

/// CPU milliseconds of this process so far: on a software adapter the work is
/// done in it, and neighbours on the machine do not count.
fn cpu() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
    (fields[11].parse::<f64>().unwrap() + fields[12].parse::<f64>().unwrap()) * 10.0
}

/// CPU milliseconds of one run of the recorded passes, bytes moved, and the passes.
fn time(
    device: &wgpu::Device,
    queue: &wgpu::Queue,
    record: impl FnOnce(&Recorder) -> Result<Vec<Tensor>>,
) -> (f64, f64, String) {
    let program = fused(record);
    let buffers: Vec<wgpu::Buffer> = program
        .storages
        .iter()
        .map(|s| {
            let buffer = device.create_buffer(&wgpu::BufferDescriptor {
                label: None,
                size: s.bytes,
                usage: wgpu::BufferUsages::STORAGE | wgpu::BufferUsages::COPY_DST,
                mapped_at_creation: false,
            });
            let words: Vec<f32> = (0..s.bytes / 4).map(|i| (i % 1000) as f32 * 0.004 - 2.0).collect();
            queue.write_buffer(&buffer, 0, bytemuck::cast_slice(&words));
            buffer
        })
        .collect();
    let mut place: Vec<usize> = (0..buffers.len()).collect();
    let mut bytes = 0.0;
    let mut prepared = Vec::new();
    for pass in &program.passes {
        let kernel = &program.kernels[pass.kernel.index()];
        let module = device.create_shader_module(wgpu::ShaderModuleDescriptor {
            label: None,
            source: wgpu::ShaderSource::Wgsl(kernel.source.as_ref().into()),
        });
        let pipeline = device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
            label: None,
            layout: None,
            module: &module,
            entry_point: Some("main"),
            compilation_options: wgpu::PipelineCompilationOptions::default(),
            cache: None,
        });
        let uniform = device.create_buffer(&wgpu::BufferDescriptor {
            label: None,
            size: pass.uniforms.len() as u64 * 4,
            usage: wgpu::BufferUsages::UNIFORM | wgpu::BufferUsages::COPY_DST,
            mapped_at_creation: false,
        });
        queue.write_buffer(&uniform, 0, bytemuck::cast_slice(&pass.uniforms));
        let mut entries = vec![wgpu::BindGroupEntry { binding: 0, resource: uniform.as_entire_binding() }];
        for (i, operand) in pass.operands.iter().enumerate() {
            let id = match *operand {
                Operand::Read(id) | Operand::Write(id) | Operand::StateWrite(id) => id,
                Operand::InPlace { input, output } => {
                    place[output.index()] = place[input.index()];
                    input
                }
            };
            let resource = buffers[place[id.index()]].as_entire_binding();
            entries.push(wgpu::BindGroupEntry { binding: i as u32 + 1, resource });
        }
        let group = device.create_bind_group(&wgpu::BindGroupDescriptor {
            label: None,
            layout: &pipeline.get_bind_group_layout(0),
            entries: &entries,
        });
        bytes += pass.cost.bytes;
        prepared.push((pipeline, group, pass.grid));
    }
    let run = || {
        let clock = cpu();
        let mut encoder = device.create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
        {
            let mut compute = encoder.begin_compute_pass(&wgpu::ComputePassDescriptor::default());
            for (pipeline, group, grid) in &prepared {
                compute.set_pipeline(pipeline);
                compute.set_bind_group(0, group, &[]);
                compute.dispatch_workgroups(grid[0], grid[1], grid[2]);
            }
        }
        queue.submit([encoder.finish()]);
        device.poll(wgpu::PollType::wait_indefinitely()).unwrap();
        cpu() - clock
    };
    run();
    let repeats = 40;
    let mean = (0..repeats).map(|_| run()).sum::<f64>() / f64::from(repeats);
    let names: Vec<&str> = program.passes.iter().map(|p| p.name.as_str()).collect();
    (mean, bytes, names.join(", "))
}

#[test]
#[ignore = "prints figures: cargo xtask bench figures"]
fn speed_of_generated_kernels() {
    let instance = wgpu::Instance::new(wgpu::InstanceDescriptor::new_without_display_handle());
    let adapter = pollster::block_on(instance.request_adapter(&wgpu::RequestAdapterOptions::default())).unwrap();
    let (device, queue) = pollster::block_on(adapter.request_device(&wgpu::DeviceDescriptor::default())).unwrap();
    type Record = fn(&Recorder) -> Result<Vec<Tensor>>;
    let cases: [(&str, Record); 12] = [
        ("x + 1, 16M", |g| Ok(vec![g.input::<f32>("x", [16 << 20])?.add_scalar(1.0)?])),
        ("x + 1, 16M - 1", |g| Ok(vec![g.input::<f32>("x", [(16 << 20) - 1])?.add_scalar(1.0)?])),
        ("a + b, 4M", |g| Ok(vec![g.input::<f32>("a", [4 << 20])?.add(&g.input::<f32>("b", [4 << 20])?)?])),
        ("gelu [1024, 512]", |g| Ok(vec![g.input::<f32>("x", [1024, 512])?.gelu()?])),
        ("gelu_tanh [1024, 512]", |g| Ok(vec![g.input::<f32>("x", [1024, 512])?.gelu_tanh()?])),
        ("gelu backward [1024, 512]", |g| {
            let x = g.input::<f32>("x", [1024, 512])?;
            let y = x.gelu()?.narrow(0, 0, 1)?.narrow(1, 0, 1)?.reshape([])?;
            Ok(vec![g.gradients(&y, &[&x])?.swap_remove(0)])
        }),
        ("relu(x + bias) [4096, 1024]", |g| {
            Ok(vec![g.input::<f32>("x", [4096, 1024])?.add(&g.input::<f32>("b", [1024])?)?.relu()?])
        }),
        ("x^T + 1 [2048, 2048]", |g| Ok(vec![g.input::<f32>("x", [2048, 2048])?.t()?.add_scalar(1.0)?])),
        ("heads [8, 128, 4, 32] -> [8, 4, 128, 32]", |g| {
            Ok(vec![g.input::<f32>("x", [8, 128, 4, 32])?.permute(&[0, 2, 1, 3])?.add_scalar(1.0)?])
        }),
        ("scaled causal scores [8, 4, 128, 128]", |g| {
            Ok(vec![g.input::<f32>("x", [8, 4, 128, 128])?.mul_scalar(0.17)?.causal_fill(-3e38)?])
        }),
        ("masked scores, mask stored", |g| {
            let mask = g.input::<u32>("m", [128, 128])?.to_bool()?;
            Ok(vec![g.input::<f32>("x", [8, 4, 128, 128])?.mul_scalar(0.17)?.masked_fill(&mask, -3e38)?])
        }),
        ("dropout [1024, 512]", |g| Ok(vec![g.input::<f32>("x", [1024, 512])?.dropout(0.1)?])),
    ];
    for (name, record) in cases {
        let (ms, bytes, passes) = time(&device, &queue, record);
        println!("{name:44} {ms:8.2} CPU ms {:6.1} GB/s on two cores   {passes}", 2.0 * bytes / ms / 1e6);
    }
}
