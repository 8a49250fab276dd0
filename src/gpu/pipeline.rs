//! Kernels become pipelines: created once per source, entry and constants.

use std::collections::HashMap;
use std::sync::Mutex;

use super::device::Inner;
use super::fault::scoped;
use crate::error::Result;
use crate::fuse::program::Kernel;
use crate::shared::{Shared, lock};

/// A pipeline with the layout that its bind groups need.
#[derive(Debug)]
pub(super) struct Compiled {
    pub(super) pipeline: wgpu::ComputePipeline,
    pub(super) layout: wgpu::BindGroupLayout,
}

/// What makes two kernels the same pipeline.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Key {
    source: Shared<str>,
    entry: &'static str,
    constants: Vec<(&'static str, u64)>,
    operand_count: usize,
    uniform_words: usize,
}

impl From<&Kernel> for Key {
    fn from(kernel: &Kernel) -> Self {
        Self {
            source: kernel.source.clone(),
            entry: kernel.entry,
            constants: kernel.constants.iter().map(|&(name, value)| (name, value.to_bits())).collect(),
            operand_count: kernel.operand_count,
            uniform_words: kernel.uniform_words,
        }
    }
}

/// Pipelines of a device, by what they are made of.
#[derive(Debug, Default)]
pub(super) struct Pipelines {
    known: Mutex<HashMap<Key, Shared<Compiled>>>,
}

impl Inner {
    /// The pipelines of these kernels, in order; each is created at most once per device.
    ///
    /// # Errors
    /// [`crate::Error::Validation`] naming the kernel whose source was refused.
    pub(super) async fn compile(&self, kernels: &[Kernel]) -> Result<Vec<Shared<Compiled>>> {
        let mut out = Vec::with_capacity(kernels.len());
        let mut pending = Vec::new();
        let mut new: HashMap<Key, Shared<Compiled>> = HashMap::new();
        for kernel in kernels {
            let key = Key::from(kernel);
            let known = lock(&self.pipelines.known).get(&key).or_else(|| new.get(&key)).cloned();
            if let Some(compiled) = known {
                out.push(compiled);
                continue;
            }
            let scope = self.device.push_error_scope(wgpu::ErrorFilter::Validation);
            let internal = self.device.push_error_scope(wgpu::ErrorFilter::Internal);
            let compiled = Shared::new(self.create_pipeline(kernel));
            // All are created before the first answer is awaited: a browser compiles them side by side.
            pending.push((&kernel.name, internal.pop(), scope.pop()));
            new.insert(key, compiled.clone());
            out.push(compiled);
        }
        for (name, internal, validation) in pending {
            let caught = (internal.await, validation.await);
            scoped(&self.faults, caught.1.or(caught.0), &format!("kernel {name:?}"))?;
        }
        lock(&self.pipelines.known).extend(new);
        Ok(out)
    }

    fn create_pipeline(&self, kernel: &Kernel) -> Compiled {
        let label = Some(kernel.name.as_str());
        let mut entries = Vec::new();
        let buffer = |binding: usize, ty| wgpu::BindGroupLayoutEntry {
            binding: binding as u32,
            visibility: wgpu::ShaderStages::COMPUTE,
            ty: wgpu::BindingType::Buffer { ty, has_dynamic_offset: false, min_binding_size: None },
            count: None,
        };
        if kernel.uniform_words > 0 {
            entries.push(buffer(0, wgpu::BufferBindingType::Uniform));
        }
        // Always read_write: one buffer may then be bound at several disjoint ranges.
        let storage = wgpu::BufferBindingType::Storage { read_only: false };
        entries.extend((1..=kernel.operand_count).map(|binding| buffer(binding, storage)));
        let layout =
            self.device.create_bind_group_layout(&wgpu::BindGroupLayoutDescriptor { label, entries: &entries });
        let module = self.device.create_shader_module(wgpu::ShaderModuleDescriptor {
            label,
            source: wgpu::ShaderSource::Wgsl(std::borrow::Cow::Borrowed(&kernel.source)),
        });
        let pipeline_layout = self.device.create_pipeline_layout(&wgpu::PipelineLayoutDescriptor {
            label,
            bind_group_layouts: &[Some(&layout)],
            immediate_size: 0,
        });
        let pipeline = self.device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
            label,
            layout: Some(&pipeline_layout),
            module: &module,
            entry_point: Some(kernel.entry),
            compilation_options: wgpu::PipelineCompilationOptions {
                constants: &kernel.constants,
                zero_initialize_workgroup_memory: true,
            },
            cache: None,
        });
        Compiled { pipeline, layout }
    }
}
