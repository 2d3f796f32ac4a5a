//! The byte budget: how much memory a server may use for blocks.

use std::fs;

/// What memory this machine and this control group really have left, in bytes.
pub fn available_memory() -> u64 {
    let machine = meminfo("MemAvailable:").unwrap_or(1 << 30);
    control_group_left().map_or(machine, |left| left.min(machine))
}

/// The default budget of one of `servers` servers that share a machine: half of what is left.
pub fn default_budget(servers: u64) -> u64 {
    (available_memory() / 2 / servers.max(1)).max(64 << 20)
}

fn meminfo(key: &str) -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find(|line| line.starts_with(key))?;
    line.split_whitespace().nth(1)?.parse::<u64>().ok().map(|kib| kib * 1024)
}

/// What the tightest control group (version 2) above this process leaves.
fn control_group_left() -> Option<u64> {
    let own = fs::read_to_string("/proc/self/cgroup").ok()?;
    let path = own.lines().find_map(|line| line.strip_prefix("0::"))?;
    let mut directory = std::path::PathBuf::from("/sys/fs/cgroup").join(path.trim_start_matches('/'));
    let number = |file: std::path::PathBuf| fs::read_to_string(file).ok()?.trim().parse::<u64>().ok();
    let mut left = None;
    while directory.starts_with("/sys/fs/cgroup") {
        if let (Some(limit), Some(used)) =
            (number(directory.join("memory.max")), number(directory.join("memory.current")))
        {
            let here = limit.saturating_sub(used);
            left = Some(left.map_or(here, |left: u64| left.min(here)));
        }
        if !directory.pop() {
            break;
        }
    }
    left
}
