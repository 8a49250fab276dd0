//! The resident memory of a tree of processes, read from `/proc`.
//!
//! On a software adapter GPU memory is process memory, so what a page holds on
//! to shows here. Elsewhere than on Linux there is no `/proc`: trees are then
//! empty and sums zero, and a demand for flat memory says that it cannot be
//! judged.

use std::collections::BTreeSet;
use std::fs;

/// One process as `/proc/PID/stat` has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Process {
    pid: u32,
    parent: u32,
    group: u32,
    zombie: bool,
}

/// All living processes of the group, and all their descendants in whatever
/// group those are.
pub(crate) fn tree(group: u32) -> BTreeSet<u32> {
    members(&processes(), group)
}

fn members(processes: &[Process], group: u32) -> BTreeSet<u32> {
    let mut found: BTreeSet<u32> = BTreeSet::new();
    loop {
        let before = found.len();
        found.extend(
            processes
                .iter()
                .filter(|p| !p.zombie && (p.group == group || found.contains(&p.parent)))
                .map(|p| p.pid)
                .collect::<Vec<_>>(),
        );
        if found.len() == before {
            return found;
        }
    }
}

/// Whether the process is there and has not merely gone unnoticed by its parent.
pub(crate) fn is_alive(pid: u32) -> bool {
    fs::read_to_string(format!("/proc/{pid}/stat"))
        .ok()
        .and_then(|stat| parse(&stat))
        .is_some_and(|process| !process.zombie)
}

/// The sum of the resident bytes of a group's tree. Pages that several processes
/// share are counted in each, which is why growth is judged and not the sum.
pub(crate) fn resident_bytes(group: u32) -> u64 {
    tree(group).into_iter().filter_map(resident_of).sum()
}

fn resident_of(pid: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: u64 = line.split_whitespace().next()?.parse().ok()?;
    Some(kib * 1024)
}

fn processes() -> Vec<Process> {
    let Ok(entries) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    entries
        .flatten()
        .filter(|entry| entry.file_name().to_string_lossy().starts_with(|c: char| c.is_ascii_digit()))
        .filter_map(|entry| fs::read_to_string(entry.path().join("stat")).ok())
        .filter_map(|stat| parse(&stat))
        .collect()
}

/// The second field is the program's name in parentheses and may itself hold
/// spaces and parentheses, so the fields after it are counted from the last one.
fn parse(stat: &str) -> Option<Process> {
    let (pid, _) = stat.split_once(' ')?;
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_whitespace();
    let state = fields.next()?;
    Some(Process {
        pid: pid.parse().ok()?,
        parent: fields.next()?.parse().ok()?,
        group: fields.next()?.parse().ok()?,
        zombie: matches!(state, "Z" | "X"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_with_parentheses_are_read() {
        let process = parse("12 (a) b (c) S 3 4 5 0 -1");
        let expected = Process { pid: 12, parent: 3, group: 4, zombie: false };
        assert_eq!(process, Some(expected));
        assert_eq!(parse("nonsense"), None);
    }

    #[test]
    fn descendants_in_other_groups_belong_to_the_tree() {
        let process = |pid, parent, group, zombie| Process { pid, parent, group, zombie };
        let all = [
            process(30, 20, 30, false),
            process(20, 10, 10, false),
            process(10, 1, 10, false),
            process(40, 10, 10, true),
            process(50, 1, 50, false),
        ];
        assert_eq!(members(&all, 10), BTreeSet::from([10, 20, 30]));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn this_process_is_alive_and_resident() {
        let pid = std::process::id();
        assert!(is_alive(pid));
        assert!(resident_of(pid).is_some_and(|bytes| bytes > 100_000));
    }
}
