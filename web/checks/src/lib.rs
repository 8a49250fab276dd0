//! The browser build of `remat`: the checks that `cargo xtask test` runs in
//! Chromium and Firefox.
//!
//! To add one, write an `async fn(Reporter) -> Result<Value, String>` in a module
//! below `checks` and name it in `checks::all`.
//!
//! On other targets than WebAssembly this crate has only [`training`], by which a
//! native test computes what the browsers' results are compared with.

pub mod training;

#[cfg(target_arch = "wasm32")]
mod checks;
#[cfg(target_arch = "wasm32")]
mod page;
#[cfg(target_arch = "wasm32")]
mod report;

#[cfg(target_arch = "wasm32")]
pub use report::run_tests;
