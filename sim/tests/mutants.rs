//! The mutants that `sim/mutants/run` builds still fit the code.

use std::{fs, path::Path, process::Command};

#[test]
fn patches_of_mutants_apply() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let patches = fs::read_dir(root.join("sim/mutants")).expect("the mutants are there");
    let mut count = 0;
    for patch in patches {
        let patch = patch.expect("entries are readable").path();
        if patch.extension().is_none_or(|found| found != "patch") {
            continue;
        }
        count += 1;
        let git = Command::new("git")
            .args(["apply", "--check"])
            .arg(patch.canonicalize().expect("it is there"))
            .current_dir(&root)
            .output()
            .expect("git runs");
        let why = String::from_utf8_lossy(&git.stderr);
        assert!(git.status.success(), "{}: {why}", patch.display());
    }
    assert!(count > 0, "there are no mutants");
}
