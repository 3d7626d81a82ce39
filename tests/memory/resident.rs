//! What the process takes of memory.

/// In bytes, without what is only mapped from files, as the program itself.
pub fn resident() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: Vec<u64> = pages.split_whitespace().map(|pages| pages.parse().unwrap()).collect();
    (pages[1] - pages[2]) * 4096
}
