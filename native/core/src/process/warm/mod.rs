//! Warm starts: templates that fork children ahead of the calls that they serve.

mod pool;

pub use pool::{Pool, Standing, Warm};
