//! Waiting without blocking: signals set by the device's callbacks, the native
//! thread that makes these callbacks happen, and a lock that is awaited.

use std::future::poll_fn;
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};

use crate::shared::lock;

/// Something that happens once, set from a callback of the device.
#[derive(Debug, Clone, Default)]
pub(super) struct Signal {
    state: Arc<Mutex<SignalState>>,
}

#[derive(Debug, Default)]
struct SignalState {
    outcome: Option<bool>,
    waker: Option<Waker>,
}

impl Signal {
    /// Sets the outcome (the first one stays) and wakes whoever waits.
    pub(super) fn set(&self, ok: bool) {
        let waker = {
            let mut state = lock(&self.state);
            state.outcome.get_or_insert(ok);
            state.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// True once it was set.
    pub(super) fn is_set(&self) -> bool {
        lock(&self.state).outcome.is_some()
    }

    /// Waits for the outcome. One task at a time may wait.
    pub(super) async fn wait(&self) -> bool {
        poll_fn(|context| {
            let mut state = lock(&self.state);
            if let Some(ok) = state.outcome {
                return Poll::Ready(ok);
            }
            state.waker = Some(context.waker().clone());
            Poll::Pending
        })
        .await
    }
}

/// A lock that is awaited, never blocked on. Whoever holds the guard has the turn.
#[derive(Debug, Clone, Default)]
pub(super) struct Turn {
    state: Arc<Mutex<TurnState>>,
}

#[derive(Debug, Default)]
struct TurnState {
    taken: bool,
    waiting: Vec<Waker>,
}

/// Gives the turn back when dropped.
#[derive(Debug)]
pub(crate) struct TurnGuard {
    state: Arc<Mutex<TurnState>>,
}

impl Turn {
    /// Waits for the turn. A waiter dropped in between leaves nothing behind
    /// that matters: giving back wakes all, and each tries again.
    pub(super) async fn acquire(&self) -> TurnGuard {
        poll_fn(|context| {
            let mut state = lock(&self.state);
            if state.taken {
                if !state.waiting.iter().any(|w| w.will_wake(context.waker())) {
                    state.waiting.push(context.waker().clone());
                }
                return Poll::Pending;
            }
            state.taken = true;
            Poll::Ready(TurnGuard { state: Arc::clone(&self.state) })
        })
        .await
    }
}

impl Drop for TurnGuard {
    fn drop(&mut self) {
        let waiting = {
            let mut state = lock(&self.state);
            state.taken = false;
            std::mem::take(&mut state.waiting)
        };
        for waker in waiting {
            waker.wake();
        }
    }
}

/// Polls the device; on the web there is nothing to do. wgpu panics in here
/// when the driver lost the device: that is turned into the loss it is.
pub(super) fn poll_device(device: &wgpu::Device, kind: wgpu::PollType, faults: &super::fault::Faults) -> Polled {
    match std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| device.poll(kind))) {
        Ok(Ok(status)) if status.is_queue_empty() => Polled::Empty,
        Ok(Ok(_) | Err(wgpu::PollError::Timeout)) => Polled::Busy,
        Ok(Err(_)) => Polled::Refused,
        Err(_) => {
            faults.lose("waiting for the device failed".into());
            Polled::Refused
        }
    }
}

/// What a poll found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Polled {
    /// Nothing is left to do.
    Empty,
    /// Work is under way.
    Busy,
    /// There is nothing by this index to wait for.
    Refused,
}

#[cfg(not(target_arch = "wasm32"))]
pub(super) use native::Waiter;
#[cfg(target_arch = "wasm32")]
pub(super) use web::Waiter;

#[cfg(target_arch = "wasm32")]
mod web {
    use super::{Arc, Mutex, Signal, lock};

    /// The browser calls back by itself; what is kept are the signals that a
    /// loss of the device must set.
    #[derive(Debug, Clone, Default)]
    pub(in crate::gpu) struct Waiter {
        watched: Arc<Mutex<Vec<Signal>>>,
    }

    impl Waiter {
        pub(in crate::gpu) fn start(_device: &wgpu::Device, _faults: &crate::gpu::fault::Faults) -> Self {
            Self::default()
        }

        pub(in crate::gpu) fn watch(&self, _index: wgpu::SubmissionIndex, signal: &Signal) {
            let mut watched = lock(&self.watched);
            watched.retain(|s| !s.is_set());
            watched.push(signal.clone());
        }

        /// A browser tells of a loss before it refuses anything for it.
        pub(in crate::gpu) fn watch_end(&self, signal: &Signal) {
            signal.set(true);
        }

        pub(in crate::gpu) fn set_all(&self) {
            for signal in std::mem::take(&mut *lock(&self.watched)) {
                signal.set(false);
            }
        }

        pub(in crate::gpu) fn stop(&self) {}
    }
}

#[cfg(not(target_arch = "wasm32"))]
mod native {
    use std::collections::VecDeque;
    use std::sync::Condvar;
    use std::thread::JoinHandle;
    use std::time::Duration;

    use super::{Arc, Mutex, Polled, Signal, lock, poll_device};
    use crate::gpu::fault::Faults;

    /// Pause between polls where the driver cannot be waited for.
    const REFUSED_WAIT: Duration = Duration::from_millis(1);

    /// A thread that sleeps while nothing is awaited and else waits in the
    /// driver for the oldest submission awaited, so that callbacks fire and
    /// futures wake under any executor without spinning.
    #[derive(Debug, Clone)]
    pub(in crate::gpu) struct Waiter {
        shared: Arc<Shared>,
        thread: Arc<Mutex<Option<JoinHandle<()>>>>,
    }

    #[derive(Debug, Default)]
    struct Shared {
        queue: Mutex<Queue>,
        changed: Condvar,
    }

    #[derive(Debug, Default)]
    struct Queue {
        /// Without an index: waits for the end of all work, and is set here.
        watched: VecDeque<(Option<wgpu::SubmissionIndex>, Signal)>,
        stopped: bool,
    }

    impl Waiter {
        /// Starts the thread. Where no thread can be had, futures would never
        /// wake: the device counts as lost, which every call reports.
        pub(in crate::gpu) fn start(device: &wgpu::Device, faults: &Faults) -> Self {
            let shared = Arc::new(Shared::default());
            let (of_thread, device, seen) = (Arc::clone(&shared), device.clone(), faults.clone());
            let thread = std::thread::Builder::new()
                .name("remat device wait".into())
                .stack_size(256 << 10)
                .spawn(move || run(&of_thread, &device, &seen));
            if let Err(error) = &thread {
                faults.lose(format!("no thread to wait for the device: {error}"));
            }
            Self { shared, thread: Arc::new(Mutex::new(thread.ok())) }
        }

        /// Sees to it that `signal`, which a callback of this submission sets, gets set.
        pub(in crate::gpu) fn watch(&self, index: wgpu::SubmissionIndex, signal: &Signal) {
            lock(&self.shared.queue).watched.push_back((Some(index), signal.clone()));
            self.shared.changed.notify_one();
        }

        /// Sets `signal` when the device has nothing left to do.
        pub(in crate::gpu) fn watch_end(&self, signal: &Signal) {
            lock(&self.shared.queue).watched.push_back((None, signal.clone()));
            self.shared.changed.notify_one();
        }

        /// Sets every signal awaited: the device is lost and will not.
        pub(in crate::gpu) fn set_all(&self) {
            let watched = std::mem::take(&mut lock(&self.shared.queue).watched);
            for (_, signal) in watched {
                signal.set(false);
            }
        }

        /// Ends the thread and waits for its end, except from within itself.
        pub(in crate::gpu) fn stop(&self) {
            lock(&self.shared.queue).stopped = true;
            self.shared.changed.notify_one();
            if let Some(thread) = lock(&self.thread).take() {
                if thread.thread().id() != std::thread::current().id() {
                    // An error here is a panic of that thread, which has nothing left to say.
                    let _ = thread.join();
                }
            }
        }
    }

    fn run(shared: &Shared, device: &wgpu::Device, faults: &Faults) {
        loop {
            let (index, signal) = {
                let mut queue = lock(&shared.queue);
                loop {
                    if queue.stopped {
                        return;
                    }
                    queue.watched.retain(|(_, signal)| !signal.is_set());
                    if let Some(first) = queue.watched.front() {
                        break first.clone();
                    }
                    queue = shared.changed.wait(queue).unwrap_or_else(std::sync::PoisonError::into_inner);
                }
            };
            let all = index.is_none();
            // Without a time limit: wgpu 30 asserts that a wait that timed out found work left to do,
            // which is not so if another thread's poll has noticed the end of that work just then.
            let wait = wgpu::PollType::Wait { submission_index: index, timeout: None };
            match poll_device(device, wait, faults) {
                Polled::Empty if all => signal.set(true),
                Polled::Empty | Polled::Busy => {}
                Polled::Refused => {
                    // A submit that the device refused has no end to wait for; what
                    // hangs on it is answered by a poll once the queue is empty.
                    poll_device(device, wgpu::PollType::Poll, faults);
                    std::thread::sleep(REFUSED_WAIT);
                }
            }
            if faults.is_lost() {
                let watched = std::mem::take(&mut lock(&shared.queue).watched);
                for (_, signal) in watched {
                    signal.set(false);
                }
            }
        }
    }
}
