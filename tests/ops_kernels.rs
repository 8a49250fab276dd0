//! Ops with kernels of their own, each in the middle of a graph, against plain numbers.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;
mod ops_kernels {
    mod arrange;
    mod copies;
    mod gathers;
    pub(crate) mod harness;
    mod images;
    mod reduce;
    mod rows;
    mod scans;
    mod sorts;
    mod values;
}
