//! Bytes to the device and back. Both directions move in bounded pieces.

use std::sync::atomic::Ordering;
use std::sync::{Mutex, MutexGuard};

use super::device::Inner;
use super::memory::{BufferCategory, DeviceBuffer, Handle};
use super::wait::{Signal, TurnGuard};
use crate::error::{Error, Result};
use crate::shared::lock;

/// Longest single write: wgpu stages each in an allocation of its own.
const WRITE_BYTES: usize = 4 << 20;
/// Most bytes staged before a submit, and before waiting for the device.
const STAGED_BYTES: u64 = 16 << 20;
/// Longest read-back buffer made for reading state.
const READ_BYTES: u64 = 16 << 20;

/// Part of a buffer to be read.
#[derive(Debug)]
pub(super) struct ReadRange {
    pub(super) buffer: wgpu::Buffer,
    pub(super) offset: u64,
    pub(super) bytes: u64,
}

/// A buffer that is copied to and then mapped, again and again.
///
/// A read may be given up while its mapping is still asked for. The mapping is
/// then undone by the next read, once the device has answered: undoing it at the
/// moment when another thread completes it fails, and leaves the buffer mapped.
#[derive(Debug)]
pub(super) struct Staging {
    buffer: DeviceBuffer,
    /// The answer to a mapping that was not undone yet. Whoever reads holds the turn.
    mapping: Mutex<Option<Signal>>,
}

impl Staging {
    pub(super) fn new(buffer: DeviceBuffer) -> Self {
        Self { buffer, mapping: Mutex::new(None) }
    }

    /// Length in bytes.
    pub(super) fn bytes(&self) -> u64 {
        self.buffer.bytes()
    }

    /// Waits for a mapping that was given up, and undoes it.
    async fn settle(&self) {
        let left = lock(&self.mapping).clone();
        if let Some(answer) = left {
            let mapped = answer.wait().await;
            self.end(mapped);
        }
    }

    fn end(&self, mapped: bool) {
        *lock(&self.mapping) = None;
        if mapped {
            self.buffer.raw().unmap();
        }
    }
}

impl Inner {
    /// Writes all of `data` at `offset`, before whatever is submitted next.
    /// Staging is submitted every few MiB, so that it does not pile up.
    pub(super) fn stage(&self, buffer: &wgpu::Buffer, offset: u64, data: &[u8]) {
        for (index, piece) in data.chunks(WRITE_BYTES).enumerate() {
            let bytes = piece.len() as u64;
            let at = offset + (index * WRITE_BYTES) as u64;
            let tail = piece.len() % 4;
            self.queue.write_buffer(buffer, at, &piece[..piece.len() - tail]);
            if tail > 0 {
                // An odd number of halves fills up its last word.
                let mut word = [0; 4];
                word[..tail].copy_from_slice(&piece[piece.len() - tail..]);
                self.queue.write_buffer(buffer, at + bytes - tail as u64, &word);
            }
            self.unfinished_bytes.fetch_add(bytes, Ordering::Relaxed);
            if self.staged_bytes.fetch_add(bytes, Ordering::Relaxed) + bytes >= STAGED_BYTES {
                self.submit([]);
            }
        }
    }

    /// Waits for the device if much was staged since the last wait.
    pub(crate) async fn settle(&self) -> Result<()> {
        if self.unfinished_bytes.load(Ordering::Relaxed) >= STAGED_BYTES { self.idle().await } else { Ok(()) }
    }

    /// Writes part of a buffer, before whatever is submitted next.
    pub(crate) fn write(&self, buffer: &Handle, offset: u64, data: &[u8]) {
        self.stage(&buffer.0, offset, data);
    }

    /// Makes every byte of a buffer 0, before whatever is submitted next.
    pub(crate) fn clear(&self, buffer: &Handle) {
        let mut encoder = self.device.create_command_encoder(&wgpu::CommandEncoderDescriptor { label: Some("clear") });
        encoder.clear_buffer(&buffer.0, 0, None);
        self.submit([encoder.finish()]);
    }

    /// Waits for a turn between runs, if the device is well.
    pub(crate) async fn take_turn(&self) -> Result<TurnGuard> {
        self.faults.check()?;
        Ok(self.turn.acquire().await)
    }

    /// Reads whole buffers, in order; one that is not there is empty.
    pub(crate) async fn read_buffers(
        &self,
        what: &str,
        buffers: impl Iterator<Item = (Option<Handle>, u64)>,
    ) -> Result<Vec<Vec<u8>>> {
        let mut places = Vec::new();
        let mut ranges = Vec::new();
        for (handle, bytes) in buffers {
            places.push(handle.is_some());
            ranges.extend(handle.map(|handle| ReadRange { buffer: handle.0, offset: 0, bytes }));
        }
        let mut read = self.read_ranges(what, &ranges).await?.into_iter();
        Ok(places.into_iter().map(|there| if there { read.next() } else { None }.unwrap_or_default()).collect())
    }

    /// Reads ranges through a read-back buffer made for it, as many ranges per
    /// mapping as fit: a mapping may take 100 ms in a browser.
    pub(super) async fn read_ranges(&self, what: &str, ranges: &[ReadRange]) -> Result<Vec<Vec<u8>>> {
        let total: u64 = ranges.iter().map(|r| r.bytes).sum();
        if total == 0 {
            return Ok(vec![Vec::new(); ranges.len()]);
        }
        let limit = READ_BYTES.min(self.profile.max_buffer_bytes);
        let staging = self.allocate(&format!("reading {what}"), total.min(limit), BufferCategory::Readback).await?;
        self.read_through(what, ranges, &Staging::new(staging), || Ok(None)).await
    }

    /// Reads ranges through this read-back buffer, in as many pieces as needed.
    /// `gate` is asked before each submit; what it returns is held over the submit.
    pub(super) async fn read_through<'g>(
        &self,
        what: &str,
        ranges: &[ReadRange],
        staging: &Staging,
        gate: impl Fn() -> Result<Option<MutexGuard<'g, ()>>>,
    ) -> Result<Vec<Vec<u8>>> {
        let mut out: Vec<Vec<u8>> = ranges.iter().map(|r| Vec::with_capacity(r.bytes as usize)).collect();
        let mut next = 0;
        let mut done_of_next = 0;
        let (buffer, length) = (staging.buffer.raw(), staging.bytes());
        staging.settle().await;
        while next < ranges.len() {
            let mut encoder = self.device.create_command_encoder(&wgpu::CommandEncoderDescriptor { label: Some(what) });
            let mut pieces = Vec::new();
            let mut used = 0;
            while next < ranges.len() && used < length {
                let range = &ranges[next];
                let bytes = (range.bytes - done_of_next).min(length - used);
                if bytes > 0 {
                    encoder.copy_buffer_to_buffer(&range.buffer, range.offset + done_of_next, buffer, used, bytes);
                    pieces.push((next, used as usize, bytes as usize));
                }
                used += bytes;
                done_of_next += bytes;
                if done_of_next == range.bytes {
                    next += 1;
                    done_of_next = 0;
                }
            }
            if used > 0 {
                let index = {
                    let _held = gate()?;
                    self.submit([encoder.finish()])
                };
                let take = |bytes: &[u8]| {
                    for &(range, from, len) in &pieces {
                        out[range].extend_from_slice(&bytes[from..from + len]);
                    }
                };
                self.map(what, staging, used, index, take).await?;
            }
        }
        Ok(out)
    }

    async fn map(
        &self,
        what: &str,
        staging: &Staging,
        bytes: u64,
        index: wgpu::SubmissionIndex,
        take: impl FnOnce(&[u8]),
    ) -> Result<()> {
        let failed = |detail: String| Error::Read { what: what.to_owned(), detail };
        let signal = Signal::default();
        let set = signal.clone();
        *lock(&staging.mapping) = Some(signal.clone());
        let slice = staging.buffer.raw().slice(..bytes);
        slice.map_async(wgpu::MapMode::Read, move |result| set.set(result.is_ok()));
        self.waiter.watch(index, &signal);
        if self.faults.is_lost() {
            signal.set(false);
        }
        if !signal.wait().await {
            staging.end(false);
            // A lost device refuses mappings before it says that it is lost, which comes with the end of its work.
            let end = Signal::default();
            self.waiter.watch_end(&end);
            end.wait().await;
            self.faults.check()?;
            return Err(failed("the mapping was refused".into()));
        }
        let taken = slice.get_mapped_range().map(|view| take(&view));
        staging.end(true);
        taken.map_err(|error| failed(error.to_string()))
    }
}
