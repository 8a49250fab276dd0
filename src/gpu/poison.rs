//! NaN into memory before it is used again: what a kernel fails to write, or
//! reads after its life, then shows in every number computed from it.

use super::bind::Op;
use super::device::Inner;
use super::pipeline::Compiled;
use crate::error::Result;
use crate::fuse::program::Kernel;
use crate::shared::Shared;

/// Threads per workgroup of the kernel.
const GROUP: u64 = 256;

/// The kernel that fills a range, for whoever checks all kernels.
#[doc(hidden)]
#[must_use]
pub fn fill_kernel() -> Kernel {
    Kernel {
        name: "poison".into(),
        source: include_str!("poison.wgsl").into(),
        entry: "fill",
        constants: Vec::new(),
        operand_count: 1,
        uniform_words: 0,
    }
}

impl Inner {
    pub(super) async fn compile_fill(&self) -> Result<Shared<Compiled>> {
        let mut compiled = self.compile(&[fill_kernel()]).await?;
        Ok(compiled.remove(0))
    }

    /// The dispatches that fill `bytes` bytes from `offset` on.
    pub(super) fn fill_ops(&self, fill: &Shared<Compiled>, buffer: &wgpu::Buffer, offset: u64, bytes: u64) -> Vec<Op> {
        let piece = (self.profile.max_binding_bytes & !255).max(256);
        let mut ops = Vec::new();
        let mut done = 0;
        while done < bytes {
            let now = piece.min(bytes - done);
            let group = self.device.create_bind_group(&wgpu::BindGroupDescriptor {
                label: Some("poison"),
                layout: &fill.layout,
                entries: &[wgpu::BindGroupEntry {
                    binding: 1,
                    resource: wgpu::BindingResource::Buffer(wgpu::BufferBinding {
                        buffer,
                        offset: offset + done,
                        size: wgpu::BufferSize::new(now),
                    }),
                }],
            });
            let grid = self.profile.split_grid((now / 4).div_ceil(GROUP));
            ops.push(Op { kernel: fill.clone(), group, grid, cost_ns: now as f64, dispatch: None });
            done += now;
        }
        ops
    }

    /// Fills a whole buffer now.
    pub(super) async fn poison_whole(&self, buffer: &wgpu::Buffer) -> Result<()> {
        let fill = self.compile_fill().await?;
        let ops = self.fill_ops(&fill, buffer, 0, buffer.size());
        let mut encoder = self.device.create_command_encoder(&wgpu::CommandEncoderDescriptor { label: Some("poison") });
        super::bind::encode(&mut encoder, &ops);
        self.submit([encoder.finish()]);
        Ok(())
    }
}
