//! Values become passes: fusion, decided by the recording alone.

pub mod program;
