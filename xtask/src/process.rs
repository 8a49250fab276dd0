//! Child processes that never outlive their welcome.
//!
//! A browser or a test binary starts processes of its own; stopping only the one
//! that was started leaves the others running. So each supervised child runs in
//! a process group of its own under a three-line shell that ends the whole group
//! when its standard input closes. The kernel closes that pipe whenever `xtask`
//! ends, be it by Ctrl-C or a kill, so nothing is left behind in any case.

use std::ffi::OsStr;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use crate::memory;

/// Runs `"$@"`, and ends the process group as soon as standard input closes.
/// The reader needs a descriptor of its own, as shells give background jobs
/// `/dev/null` for their standard input.
#[cfg(unix)]
const SUPERVISOR: &str = r#"
exec 3<&0
(read -r line <&3; kill -KILL 0) >/dev/null 2>&1 &
reader=$!
"$@" </dev/null 3<&- &
wait $!
code=$?
kill -KILL $reader
exit $code
"#;

/// A running process group.
#[derive(Debug)]
pub(crate) struct Supervised {
    child: Child,
}

impl Supervised {
    /// Starts `command` (its program, arguments, environment and folder).
    /// Standard output and error go where the two last arguments say.
    pub(crate) fn start(command: &Command, stdout: Stdio, stderr: Stdio) -> Result<Self, String> {
        let mut shell = supervisor(command)?;
        shell.stdin(Stdio::piped()).stdout(stdout).stderr(stderr);
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => shell.env(name, value),
                None => shell.env_remove(name),
            };
        }
        if let Some(folder) = command.get_current_dir() {
            shell.current_dir(folder);
        }
        let child = shell.spawn().map_err(|error| format!("cannot start {}: {error}", line_of(command)))?;
        Ok(Self { child })
    }

    /// The process group's id, which is the supervising shell's process id.
    pub(crate) fn group(&self) -> u32 {
        self.child.id()
    }

    /// The pipe of the child's standard output, if it was asked for.
    pub(crate) fn take_stdout(&mut self) -> Option<std::process::ChildStdout> {
        self.child.stdout.take()
    }

    /// The status, once the child has ended.
    pub(crate) fn try_wait(&mut self) -> Result<Option<ExitStatus>, String> {
        self.child.try_wait().map_err(|error| error.to_string())
    }

    /// Waits until the child ends or the deadline passes; `None` for the latter,
    /// after which the group is gone.
    pub(crate) fn wait_until(&mut self, deadline: Instant) -> Result<Option<ExitStatus>, String> {
        loop {
            if let Some(status) = self.try_wait()? {
                return Ok(Some(status));
            }
            if Instant::now() >= deadline {
                self.stop();
                return Ok(None);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Ends every process of the tree and returns how many refused to go.
    pub(crate) fn stop(&mut self) -> usize {
        // The tree is read first: once a parent has ended, its children belong
        // to process 1 and can no longer be told from others.
        let group = self.group();
        let tree = memory::tree(group);
        drop(self.child.stdin.take());
        for _ in 0..5 {
            let left: Vec<u32> = tree.iter().copied().filter(|&pid| memory::is_alive(pid)).collect();
            signal_group(group, &left);
            if !matches!(self.child.try_wait(), Ok(None)) && left.is_empty() {
                return 0;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        tree.iter().filter(|&&pid| memory::is_alive(pid)).count()
    }
}

impl Drop for Supervised {
    fn drop(&mut self) {
        self.stop();
    }
}

#[cfg(unix)]
fn supervisor(command: &Command) -> Result<Command, String> {
    use std::os::unix::process::CommandExt;
    let mut shell = Command::new("sh");
    shell.args(["-c", SUPERVISOR, "supervisor"]).arg(command.get_program()).args(command.get_args()).process_group(0);
    Ok(shell)
}

#[cfg(not(unix))]
fn supervisor(command: &Command) -> Result<Command, String> {
    let mut plain = Command::new(command.get_program());
    plain.args(command.get_args());
    Ok(plain)
}

/// Kills what is left of the group and the processes named. Errors are ignored:
/// what is gone already cannot be killed.
fn signal_group(group: u32, others: &[u32]) {
    let mut kill = Command::new("sh");
    kill.args(["-c", r#"kill -s KILL -- "$@""#, "kill", &format!("-{group}")]);
    kill.args(others.iter().map(u32::to_string));
    kill.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    drop(kill.status());
}

/// Runs a command to its end, its output going to the terminal.
///
/// # Errors
/// The command that failed and how, or that it was stopped at the deadline.
pub(crate) fn run(command: &Command, deadline: Instant) -> Result<(), String> {
    println!("$ {}", line_of(command));
    let mut child = Supervised::start(command, Stdio::inherit(), Stdio::inherit())?;
    check(command, child.wait_until(deadline)?)
}

/// Turns a status into an error that names the command.
pub(crate) fn check(command: &Command, status: Option<ExitStatus>) -> Result<(), String> {
    match status {
        Some(status) if status.success() => Ok(()),
        Some(status) => Err(format!("{status}: {}", line_of(command))),
        None => Err(format!("stopped at its time limit: {}", line_of(command))),
    }
}

/// A command as one would type it, settings of the environment first.
pub(crate) fn line_of(command: &Command) -> String {
    let settings = command
        .get_envs()
        .filter_map(|(name, value)| value.map(|value| format!("{}={}", name.to_string_lossy(), quoted(value))));
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    settings.chain(words.map(quoted)).collect::<Vec<_>>().join(" ")
}

fn quoted(word: &OsStr) -> String {
    let word = word.to_string_lossy();
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,+@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.into_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    fn soon() -> Instant {
        Instant::now() + Duration::from_millis(400)
    }

    #[test]
    fn the_exit_code_comes_through() -> Result<(), String> {
        let mut child = Supervised::start(&shell("exit 7"), Stdio::null(), Stdio::null())?;
        let status = child.wait_until(Instant::now() + Duration::from_secs(20))?;
        assert_eq!(status.and_then(|status| status.code()), Some(7));
        Ok(())
    }

    #[test]
    fn a_hang_is_stopped_with_all_its_children() -> Result<(), String> {
        let hang = shell("sleep 1000 & sleep 1000 & setsid sleep 1000 & wait");
        let mut child = Supervised::start(&hang, Stdio::null(), Stdio::null())?;
        std::thread::sleep(Duration::from_millis(200));
        let tree = memory::tree(child.group());
        assert!(tree.len() >= 5, "{tree:?}");
        assert!(child.wait_until(soon())?.is_none());
        let left: Vec<_> = tree.into_iter().filter(|&pid| memory::is_alive(pid)).collect();
        assert!(left.is_empty(), "{left:?}");
        Ok(())
    }

    #[test]
    fn a_closed_pipe_ends_the_group() -> Result<(), String> {
        let mut child = Supervised::start(&shell("sleep 1000"), Stdio::null(), Stdio::null())?;
        std::thread::sleep(Duration::from_millis(200));
        let tree = memory::tree(child.group());
        drop(child.child.stdin.take());
        std::thread::sleep(Duration::from_millis(300));
        assert!(child.try_wait()?.is_some());
        assert!(!tree.into_iter().any(memory::is_alive));
        Ok(())
    }

    #[test]
    fn lines_can_be_typed_again() {
        let mut command = Command::new("cargo");
        command.args(["doc", "a b", "it's"]).env("X", "-D warnings");
        assert_eq!(line_of(&command), r"X='-D warnings' cargo doc 'a b' 'it'\''s'");
    }
}
