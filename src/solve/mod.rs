//! Scheduling under a memory budget, on an abstract graph.
//!
//! A [`Graph`] says what each node costs, reads and writes; a [`Schedule`] says
//! in which order nodes run, some of them several times, and what is freed when.
//! Nothing here knows operations, kernels or devices.

mod graph;
mod schedule;

pub use graph::{Graph, Node, SolveError};
pub use schedule::{Figures, Run, Schedule};
