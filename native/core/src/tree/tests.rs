use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};

use super::*;
use crate::digest::sha256;
use crate::testing::Scratch;

fn names(root: &Path, filter: &Filter) -> Vec<String> {
    let entries = list_tree(root, filter).unwrap();
    entries
        .into_iter()
        .map(|entry| String::from_utf8(entry.rel).unwrap())
        .collect()
}

fn all() -> Filter {
    Filter::new(None, Vec::new(), true)
}

fn sample() -> Scratch {
    let scratch = Scratch::new();
    for name in ["b.py", "a/z.py", "a.py", "a/deep/er.txt", "skip/x.py"] {
        scratch.write(name, name.as_bytes());
    }
    scratch
}

#[test]
fn whatever_is_put_into_a_folder_shows_where_every_file_counts() {
    let scratch = Scratch::new();
    scratch.write("tree/deep/file.py", b"1");
    let root = scratch.path("tree");
    let every = Filter::new(None, Vec::new(), true);
    let python = Filter::new(Some(vec![".py".to_owned()]), Vec::new(), true);
    let before = (stat_tree(&root, &every), stat_tree(&root, &python));
    std::os::unix::fs::symlink("/", scratch.path("tree/deep/link")).unwrap();
    assert_ne!(stat_tree(&root, &every).unwrap(), before.0.unwrap());
    assert_eq!(stat_tree(&root, &python).unwrap(), before.1.unwrap());
}

#[test]
fn files_are_listed_by_the_bytes_of_their_paths() {
    let scratch = sample();
    assert_eq!(
        names(scratch.root(), &all()),
        ["a.py", "a/deep/er.txt", "a/z.py", "b.py", "skip/x.py"]
    );
}

#[test]
fn the_filter_knows_suffixes_folders_and_depth() {
    let scratch = sample();
    scratch.write(".py", b"hidden, without a suffix");
    scratch.write("archive.py.gz", b"");
    let exclude = || vec!["skip".to_owned()];
    for suffix in ["py", ".py"] {
        let python = Filter::new(Some(vec![suffix.to_owned()]), exclude(), true);
        assert_eq!(names(scratch.root(), &python), ["a.py", "a/z.py", "b.py"]);
    }
    let flat = Filter::new(None, Vec::new(), false);
    assert_eq!(
        names(scratch.root(), &flat),
        [".py", "a.py", "archive.py.gz", "b.py"]
    );
}

#[test]
fn links_to_files_are_told_apart_and_links_to_folders_not_followed() {
    let scratch = Scratch::new();
    scratch.write("real/file", b"1");
    symlink("real/file", scratch.path("link")).unwrap();
    symlink("real", scratch.path("folder-link")).unwrap();
    symlink("nowhere", scratch.path("dangling")).unwrap();
    scratch.fifo("fifo");
    let entries = list_tree(scratch.root(), &all()).unwrap();
    let expected = [("link", Kind::Symlink), ("real/file", Kind::File)];
    let expected = expected.map(|(rel, kind)| Entry {
        rel: rel.into(),
        kind,
    });
    assert_eq!(entries, expected);
}

#[test]
fn the_digest_is_that_of_sha256sum_lines() {
    let scratch = Scratch::new();
    scratch.write("b", b"2");
    scratch.write("a", b"1");
    let tree = digest_tree(scratch.root(), &all()).unwrap();
    let lines = format!(
        "{}  a\n{}  b\n",
        to_hex(&sha256(b"1")),
        to_hex(&sha256(b"2"))
    );
    assert_eq!(tree.digest, sha256(lines.as_bytes()));
    assert_eq!(tree.files.len(), 2);
}

#[test]
fn every_kind_of_change_changes_the_fingerprint() {
    let scratch = sample();
    let root = scratch.root();
    let outside = Scratch::new();
    let target = outside.write("target", b"1");
    symlink(&target, scratch.path("link")).unwrap();
    let mut seen = vec![stat_tree(root, &all()).unwrap()];
    assert_eq!(seen[0], stat_tree(root, &all()).unwrap());
    let mut changed = |what: &str| {
        let now = stat_tree(root, &all()).unwrap();
        assert!(!seen.contains(&now), "{what} went unnoticed");
        seen.push(now);
    };
    scratch.write("a.py", b"longer than before");
    changed("another content");
    fs::rename(scratch.path("b.py"), scratch.path("c.py")).unwrap();
    changed("another name");
    fs::set_permissions(scratch.path("c.py"), fs::Permissions::from_mode(0o700)).unwrap();
    changed("another mode");
    fs::remove_file(scratch.path("c.py")).unwrap();
    changed("a file less");
    fs::write(&target, b"12").unwrap();
    changed("the content behind a link");
}

#[test]
fn a_missing_root_is_named() {
    let scratch = Scratch::new();
    let missing = scratch.path("missing");
    for failed in [
        list_tree(&missing, &all()).map(drop),
        stat_tree(&missing, &all()).map(drop),
        digest_tree(&missing, &all()).map(drop),
    ] {
        assert_eq!(failed, Err(Error::os("read", &missing, Errno::NOENT)));
    }
}

#[test]
fn all_but_what_is_left_out_shows_in_a_fingerprint() {
    let scratch = Scratch::new();
    let root = scratch.path("root");
    let left_out = BTreeSet::from([b".ai/state".to_vec(), b".ai/cache".to_vec()]);
    let stat = || stat_beside(&root, &left_out).unwrap();
    let nothing = stat();
    fs::create_dir(&root).unwrap();
    assert_eq!(stat(), nothing);
    scratch.write("root/.ai/state/one", b"1");
    assert_eq!(stat(), nothing);
    scratch.write("root/.ai/tools/t.py", b"1");
    let before = stat();
    assert_ne!(before, nothing);
    scratch.write("root/.ai/state/one", b"22");
    scratch.write("root/.ai/cache/two", b"2");
    assert_eq!(stat(), before);
    let mut seen = BTreeSet::from([nothing, before]);
    scratch.write("root/.ai/tools/t.py", b"22");
    assert!(seen.insert(stat()));
    scratch.write("root/.ai/tools/state/one", b"1");
    assert!(seen.insert(stat()));
    scratch.write("root/state", b"1");
    assert!(seen.insert(stat()));
    symlink("nowhere", scratch.path("root/link")).unwrap();
    assert!(seen.insert(stat()));
    fs::remove_dir_all(scratch.path("root/.ai/cache")).unwrap();
    assert!(!seen.insert(stat()));
    symlink("tools", scratch.path("root/.ai/cache")).unwrap();
    assert!(seen.insert(stat()));
}
