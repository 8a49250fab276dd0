//! The one pointer alias: atomic natively, plain in the browser, where the
//! device's handles stay on the thread that made them.

#[cfg(not(target_arch = "wasm32"))]
mod native {
    /// A shared pointer.
    pub type Shared<T> = std::sync::Arc<T>;

    /// `Send + Sync` natively; nothing in the browser.
    pub trait MaybeSendSync: Send + Sync {}
    impl<T: Send + Sync + ?Sized> MaybeSendSync for T {}
}

#[cfg(target_arch = "wasm32")]
mod web {
    /// A shared pointer.
    pub type Shared<T> = std::rc::Rc<T>;

    /// `Send + Sync` natively; nothing in the browser.
    pub trait MaybeSendSync {}
    impl<T: ?Sized> MaybeSendSync for T {}
}

#[cfg(not(target_arch = "wasm32"))]
pub use native::{MaybeSendSync, Shared};
#[cfg(target_arch = "wasm32")]
pub use web::{MaybeSendSync, Shared};

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks, also after a panic elsewhere: every critical section of this library
/// leaves its data consistent at every point where it could unwind.
pub(crate) fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
